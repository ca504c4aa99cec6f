"""Spellings of Kafka's metric names for dashboards (`--metrics-names`).

The names of a registry are those of Strimzi's rules for the JMX exporter. `reporter` is the spelling of Strimzi's
metrics reporter, `confluent` that of the JMX exporter rules for Confluent Platform. Other names and all labels are the
same in all spellings.
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
        "kafka_server_replicamanager_failedisrupdates_total",
        "kafka_server_replicamanager_isrexpands_total",
        "kafka_server_replicamanager_isrshrinks_total",
    }
)
"""Families that Kafka names `...PerSec`, as all of `_TOPIC_METERS`."""
_NETWORK_IDLE = "kafka_network_socketserver_networkprocessoravgidle_percent"
_HANDLER_IDLE = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
_SOCKETS = "kafka_server_socket_server_metrics_"
_REPORTER = {
    _NETWORK_IDLE: "kafka_network_socketserver_networkprocessoravgidlepercent",
    _HANDLER_IDLE: "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
}
_CONFLUENT = {
    _NETWORK_IDLE: "kafka_network_socketserver_networkprocessoravgidlepercent",
    _HANDLER_IDLE: "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
}


def spelling(name: str) -> Callable[[str], str]:
    """The function that maps a family's name to one of `SPELLINGS`."""
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
