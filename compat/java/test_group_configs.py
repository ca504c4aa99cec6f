"""Group configs by Apache Kafka's own tool."""

from __future__ import annotations

import pytest
from tools import JavaTools

from ottla.testing import Broker


@pytest.mark.timeout(180)
def test_kafka_configs_alters_and_describes_groups(tools: JavaTools) -> None:
    with Broker() as broker:
        server = ("--bootstrap-server", broker.bootstrap_servers)
        group = (*server, "--entity-type", "groups", "--entity-name", "readers")
        tools.run("kafka-configs", *group, "--alter", "--add-config", "consumer.heartbeat.interval.ms=10000")
        shown = tools.run("kafka-configs", *group, "--describe")
        assert "consumer.heartbeat.interval.ms=10000" in shown
        assert "DYNAMIC_GROUP_CONFIG:consumer.heartbeat.interval.ms=10000" in shown
        assert "DEFAULT_CONFIG:group.consumer.heartbeat.interval.ms=5000" in shown
        everything = tools.run("kafka-configs", *server, "--entity-type", "groups", "--describe")
        assert "group readers" in everything
        assert "consumer.heartbeat.interval.ms=10000" in everything
        shown = tools.run("kafka-configs", *group, "--describe", "--all")
        assert "consumer.session.timeout.ms=45000" in shown
        refused = tools.run(
            "kafka-configs", *group, "--alter", "--add-config", "consumer.session.timeout.ms=1", check=False
        )
        assert "Completed updating" not in refused
        tools.run("kafka-configs", *group, "--alter", "--delete-config", "consumer.heartbeat.interval.ms")
        assert "10000" not in tools.run("kafka-configs", *group, "--describe")
