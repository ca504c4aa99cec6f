"""Spellings of Kafka's metric names for dashboards (`--metrics-names`).

The names of a registry are those of Strimzi's rules for the JMX exporter. `reporter` is the spelling of Strimzi's
metrics reporter, `confluent` that of the JMX exporter rules for Confluent Platform, which also writes label names in
lower case. Other names are the same in all spellings.

The same name can mean different things: for `reporter`, `requesthandleravgidlepercent_total` is a counter of
nanoseconds, for `confluent` a ratio. So both are exported, under names of Ottla's own where a spelling has none.
"""

from __future__ import annotations

from collections.abc import Callable

SPELLINGS = ("strimzi", "reporter", "confluent")

_TOPIC_METERS = "kafka_server_brokertopicmetrics_"
_METERS = frozenset(
    {
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "kafka_network_requestmetrics_errors_total",
        "kafka_network_requestmetrics_requests_total",
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
        "kafka_server_replicamanager_failedisrupdates_total",
        "kafka_server_replicamanager_isrexpands_total",
        "kafka_server_replicamanager_isrshrinks_total",
        "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total",
        "kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total",
        "kafka_server_sharegroupmetrics_recordacknowledgements_total",
        "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total",
        "kafka_server_sharesessioncache_sharesessionevictions_total",
    }
)
"""Families that Kafka names `...PerSec`, as all of `_TOPIC_METERS`."""
_NETWORK_IDLE = "kafka_network_socketserver_networkprocessoravgidle_percent"
_HANDLER_IDLE = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
_SOCKETS = "kafka_server_socket_server_metrics_"
_REPORTER = {
    _NETWORK_IDLE: "kafka_network_socketserver_networkprocessoravgidlepercent",
    "ottla_loop_idle_ns_total": "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
}
_CONFLUENT = {
    _NETWORK_IDLE: "kafka_network_socketserver_networkprocessoravgidlepercent",
    _HANDLER_IDLE: "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
    "ottla_loop_idle_ratio": "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
    "ackType": "acktype",
    "clientId": "clientid",
}


def spelling(name: str) -> Callable[[str], str]:
    """The function that maps names of families and labels to one of `SPELLINGS`."""
    return {"reporter": _reporter, "confluent": _confluent}.get(name, str)


def _is_meter(family: str) -> bool:
    return family in _METERS or family.startswith(_TOPIC_METERS)


def _reporter(family: str) -> str:
    if _is_meter(family):
        return family.removesuffix("_total") + "persec_total"
    return _REPORTER.get(family, family)


def _confluent(family: str) -> str:
    if _is_meter(family):
        return family.removesuffix("_total") + "persec"
    if family.startswith(_SOCKETS):
        return "kafka_server_socketservermetrics_" + family.removeprefix(_SOCKETS)
    return _CONFLUENT.get(family, family)
