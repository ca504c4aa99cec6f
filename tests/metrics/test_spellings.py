"""Spellings of metric names for dashboards."""

from __future__ import annotations

import pytest

from ottla.metrics.spellings import SPELLINGS, spelling

_IDLE = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle"


@pytest.mark.parametrize(
    ("strimzi", "reporter", "confluent"),
    [
        (
            "kafka_server_brokertopicmetrics_bytesin_total",
            "kafka_server_brokertopicmetrics_bytesinpersec_total",
            "kafka_server_brokertopicmetrics_bytesinpersec",
        ),
        (
            "kafka_network_requestmetrics_errors_total",
            "kafka_network_requestmetrics_errorspersec_total",
            "kafka_network_requestmetrics_errorspersec",
        ),
        (
            "kafka_server_replicamanager_isrshrinks_total",
            "kafka_server_replicamanager_isrshrinkspersec_total",
            "kafka_server_replicamanager_isrshrinkspersec",
        ),
        (
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            "kafka_controller_controllerstats_uncleanleaderelectionspersec_total",
            "kafka_controller_controllerstats_uncleanleaderelectionspersec",
        ),
        (f"{_IDLE}_percent", f"{_IDLE}_percent", f"{_IDLE}percent_oneminuterate"),
        ("ottla_loop_idle_ns_total", f"{_IDLE}percent_total", "ottla_loop_idle_ns_total"),
        ("ottla_loop_idle_ratio", "ottla_loop_idle_ratio", f"{_IDLE}percent_total"),
        ("clientId", "clientId", "clientid"),
        (
            "kafka_server_socket_server_metrics_connection_count",
            "kafka_server_socket_server_metrics_connection_count",
            "kafka_server_socketservermetrics_connection_count",
        ),
        *[(name,) * 3 for name in ("kafka_log_log_size", "ottla_request_time_ms", "kafka_consumergroup_lag")],
    ],
)
def test_names_are_those_of_the_dashboards(strimzi: str, reporter: str, confluent: str) -> None:
    assert [spelling(name)(strimzi) for name in SPELLINGS] == [strimzi, reporter, confluent]
