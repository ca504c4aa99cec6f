"""Apache Kafka's administration tools."""

from __future__ import annotations

import json
from pathlib import Path

from differential_pair import wait_for
from tools import JavaTools

from ottla.testing import Broker


def test_topics(tools: JavaTools, broker: Broker) -> None:
    at = ["--bootstrap-server", broker.bootstrap_servers]
    tools.run(
        "kafka-topics", *at, "--create", "--topic", "managed", "--partitions", "3", "--config", "retention.ms=3600000"
    )
    assert "managed" in tools.run("kafka-topics", *at, "--list").split()
    described = tools.run("kafka-topics", *at, "--describe", "--topic", "managed")
    assert "PartitionCount: 3" in described
    assert "retention.ms=3600000" in described
    assert "Leader: 1" in described
    tools.run("kafka-topics", *at, "--alter", "--topic", "managed", "--partitions", "5")
    assert "PartitionCount: 5" in tools.run("kafka-topics", *at, "--describe", "--topic", "managed")
    tools.run("kafka-topics", *at, "--delete", "--topic", "managed")
    assert "managed" not in tools.run("kafka-topics", *at, "--list").split()


def test_configs(tools: JavaTools, broker: Broker) -> None:
    at = ["--bootstrap-server", broker.bootstrap_servers]
    tools.run("kafka-topics", *at, "--create", "--topic", "configured", "--partitions", "1")
    topic = ["--entity-type", "topics", "--entity-name", "configured"]
    tools.run(
        "kafka-configs", *at, "--alter", *topic, "--add-config", "retention.ms=1234,cleanup.policy=[compact,delete]"
    )
    described = tools.run("kafka-configs", *at, "--describe", *topic)
    assert "retention.ms=1234" in described
    assert "cleanup.policy=compact,delete" in described
    tools.run("kafka-configs", *at, "--alter", *topic, "--delete-config", "retention.ms")
    assert "retention.ms" not in tools.run("kafka-configs", *at, "--describe", *topic)
    everything = tools.run("kafka-configs", *at, "--describe", "--all", *topic)
    assert "segment.bytes=1073741824 sensitive=false" in everything
    brokers = tools.run("kafka-configs", *at, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
    assert "log.retention.hours=168" in brokers
    refused = tools.run("kafka-configs", *at, "--alter", *topic, "--add-config", "retention.ms=soon", check=False)
    assert "Completed" not in refused


def test_offsets(tools: JavaTools, broker: Broker) -> None:
    at = ["--bootstrap-server", broker.bootstrap_servers]
    tools.run("kafka-topics", *at, "--create", "--topic", "offsets", "--partitions", "1")
    lines = "".join(f"line {number}\n" for number in range(10))
    tools.run("kafka-console-producer", *at, "--topic", "offsets", stdin=lines)

    def offset(time: str) -> str:
        return tools.run("kafka-get-offsets", *at, "--topic", "offsets", "--time", time).strip()

    assert offset("-1") == offset("latest") == "offsets:0:10"
    assert offset("-2") == offset("earliest") == "offsets:0:0"
    assert offset("max-timestamp") in {f"offsets:0:{number}" for number in range(10)}
    assert offset("earliest-local") == "offsets:0:0"
    assert offset("1") == "offsets:0:0"


def test_delete_records_and_log_dirs(tools: JavaTools, broker: Broker, tmp_path: Path) -> None:
    at = ["--bootstrap-server", broker.bootstrap_servers]
    tools.run("kafka-topics", *at, "--create", "--topic", "trimmed", "--partitions", "1")
    tools.run("kafka-console-producer", *at, "--topic", "trimmed", stdin="a\nb\nc\nd\n")
    request = tmp_path / "delete.json"
    request.write_text(json.dumps({"version": 1, "partitions": [{"topic": "trimmed", "partition": 0, "offset": 3}]}))
    assert "low_watermark: 3" in tools.run("kafka-delete-records", *at, "--offset-json-file", str(request))
    earliest = tools.run("kafka-get-offsets", *at, "--topic", "trimmed", "--time", "-2")
    assert earliest.strip() == "trimmed:0:3"
    dirs = tools.run("kafka-log-dirs", *at, "--describe", "--topic-list", "trimmed")
    [report] = [json.loads(line) for line in dirs.splitlines() if line.startswith("{")]
    [directory] = report["brokers"][0]["logDirs"]
    assert directory["error"] is None
    assert directory["partitions"][0]["partition"] == "trimmed-0"
    assert directory["partitions"][0]["size"] > 0


def test_log_dirs_of_two_directories(tools: JavaTools, tmp_path: Path) -> None:
    places = [str(tmp_path / "a"), str(tmp_path / "b")]

    def found() -> dict[str, set[str]]:
        dirs = tools.run("kafka-log-dirs", *at, "--describe", "--topic-list", "spread")
        [report] = [json.loads(line) for line in dirs.splitlines() if line.startswith("{")]
        directories = report["brokers"][0]["logDirs"]
        return {each["logDir"]: {one["partition"] for one in each["partitions"]} for each in directories}

    with Broker(data_dir=",".join(places)) as broker:
        at = ["--bootstrap-server", broker.bootstrap_servers]
        tools.run("kafka-topics", *at, "--create", "--topic", "spread", "--partitions", "4")
        tools.run("kafka-console-producer", *at, "--topic", "spread", stdin="a\nb\nc\nd\n")
        assert found() == {places[0]: {"spread-0", "spread-2"}, places[1]: {"spread-1", "spread-3"}}
        rows = [{"topic": "spread", "partition": 0, "replicas": [1], "log_dirs": [places[1]]}]
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        arguments = [*at, "--reassignment-json-file", str(plan)]
        started = tools.run("kafka-reassign-partitions", *arguments, "--execute")
        assert f"Successfully started moving log directory to {places[1]} for replica spread-0 with broker 1" in started
        wait_for(
            lambda: "completed successfully" in tools.run("kafka-reassign-partitions", *arguments, "--verify"),
            "the replica is moved",
        )
        assert found() == {places[0]: {"spread-2"}, places[1]: {"spread-0", "spread-1", "spread-3"}}
        read = tools.run("kafka-console-consumer", *at, "--topic", "spread", "--from-beginning", "--max-messages", "4")
        assert sorted(read.split()) == ["a", "b", "c", "d"]


def test_versions_features_and_cluster(tools: JavaTools, broker: Broker) -> None:
    at = ["--bootstrap-server", broker.bootstrap_servers]
    versions = tools.run("kafka-broker-api-versions", *at)
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    assert "Fetch(1): 0 to 18 [usable: 18]" in versions
    assert "metadata.version" in tools.run("kafka-features", *at, "describe")
    assert "Cluster ID: " in tools.run("kafka-cluster", "cluster-id", *at)
