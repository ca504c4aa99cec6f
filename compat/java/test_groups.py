"""Apache Kafka's group tools and consumers: kafka-consumer-groups, console consumer, VerifiableConsumer, dump-log."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from differential_pair import wait_for
from tools import JavaTools

from ottla.testing import Broker

WAIT_S = 120.0
RECORDS = 30


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


@pytest.fixture
def filled(tools: JavaTools, group_broker: Broker) -> str:
    """A topic of three partitions with ten records each."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"java-groups-{time.time_ns() // 1_000_000}"
    client = AdminClient({"bootstrap.servers": group_broker.bootstrap_servers})
    client.create_topics([NewTopic(name, 3, 1)], request_timeout=20)[name].result(30)
    producer = Producer({"bootstrap.servers": group_broker.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(name, f"{number}", partition=number % 3)
    assert producer.flush(30) == 0
    return name


def groups(tools: JavaTools, broker: Broker, *arguments: str, check: bool = True) -> str:
    return tools.run("kafka-consumer-groups", "--bootstrap-server", broker.bootstrap_servers, *arguments, check=check)


def offsets(output: str, topic: str) -> dict[int, tuple[str, str, str]]:
    """Returns current offset, end and lag by partition, from --describe."""
    found = {}
    for line in output.splitlines():
        words = line.split()
        if topic in words:
            at = words.index(topic)
            found[int(words[at + 1])] = (
                (words[-6], words[-5], words[-4]) if len(words) - at > 8 else tuple(words[at + 2 : at + 5])
            )
    return {partition: (values[0], values[1], values[2]) for partition, values in found.items()}


@contextmanager
def member(tools: JavaTools, broker: Broker, topic: str, group: str, protocol: str) -> Iterator[subprocess.Popen[str]]:
    """A console consumer that is in the group and has read everything."""
    command = tools.command(
        "kafka-console-consumer",
        *["--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--group", group, "--from-beginning"],
        *["--command-property", f"group.protocol={protocol}", "--command-property", "client.id=console"],
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(RECORDS)]
        assert sorted(lines) == sorted(map(str, range(RECORDS)))
        yield process
        process.terminate()
        process.wait(WAIT_S)
    finally:
        process.kill()
        process.communicate()


def test_group_life_cycle(tools: JavaTools, group_broker: Broker, filled: str, protocol: str) -> None:
    group = f"{filled}-{protocol}"
    one = ["--group", group]
    with member(tools, group_broker, filled, group, protocol):
        described = groups(tools, group_broker, "--describe", *one)
        assert sorted(offsets(described, filled)) == [0, 1, 2]
        assert "console" in described
        assert "/127.0.0.1" in described
        state = groups(tools, group_broker, "--describe", *one, "--state")
        assert re.search(rf"{group}\s+\S+:\d+\s+\(\d+\)\s+(range|uniform)\s+Stable\s+1", state), state
        if protocol == "consumer":  # a new group is in epoch 1, its first subscription raises that to 2
            epochs = groups(tools, group_broker, "--describe", *one, "--state", "--verbose")
            assert re.search(rf"{group}\s+\S+:\d+\s+\(\d+\)\s+uniform\s+Stable\s+2\s+2\s+1", epochs), epochs
        members = groups(tools, group_broker, "--describe", *one, "--members", "--verbose")
        assert re.search(rf"{group}\s+.*console\s+3\s", members), members
        assert re.search(rf"{group}\s.*Stable", groups(tools, group_broker, "--list", "--state"))
        listed = tools.run("kafka-groups", "--bootstrap-server", group_broker.bootstrap_servers, "--list")
        assert re.search(rf"{group}\s+{protocol.capitalize()}\s+consumer", listed), listed
        refused = groups(
            tools, group_broker, "--reset-offsets", *one, "--all-topics", "--to-earliest", "--execute", check=False
        )
        assert "current state is Stable" in refused
        refused = groups(tools, group_broker, "--delete", *one, check=False)
        assert "could not be deleted" in refused
        assert "GroupNotEmpty" in refused

    left = re.compile(rf"{group}\s.*Empty")
    wait_for(lambda: left.search(groups(tools, group_broker, "--list", "--state")), "the member left")
    described = groups(tools, group_broker, "--describe", *one)
    assert offsets(described, filled) == dict.fromkeys(range(3), ("10", "10", "0"))
    reset = [*one, "--reset-offsets", "--topic", filled]
    for target, expected in {
        ("--to-earliest",): "0",
        ("--to-latest",): "10",
        ("--to-offset", "4"): "4",
        ("--shift-by", "-2"): "8",
        ("--to-datetime", "2001-01-01T00:00:00.000"): "0",
        ("--by-duration", "P1D"): "0",
        ("--to-current",): "10",
    }.items():
        planned = groups(tools, group_broker, *reset, *target, "--dry-run")
        assert set(re.findall(rf"{filled}\s+\d\s+(\d+)", planned)) == {expected}, (target, planned)
    groups(tools, group_broker, "--reset-offsets", *one, "--topic", f"{filled}:0,2", "--to-offset", "4", "--execute")
    described = groups(tools, group_broker, "--describe", *one)
    assert offsets(described, filled) == {0: ("4", "10", "6"), 1: ("10", "10", "0"), 2: ("4", "10", "6")}
    exported = groups(tools, group_broker, *reset, "--to-current", "--dry-run", "--export")
    assert re.search(rf'^"?{filled}"?,0,4$', exported, re.MULTILINE), exported
    again = tools.run(
        "kafka-console-consumer",
        *["--bootstrap-server", group_broker.bootstrap_servers, "--topic", filled, *one],
        *["--command-property", f"group.protocol={protocol}", "--max-messages", "12", "--timeout-ms", "100000"],
    )
    expected_values = {str(number) for number in range(RECORDS) if number % 3 != 1 and number // 3 >= 4}
    assert set(again.split()) == expected_values
    groups(tools, group_broker, "--delete-offsets", *one, "--topic", f"{filled}:1")
    assert sorted(offsets(groups(tools, group_broker, "--describe", *one), filled)) == [0, 2]
    assert "successful" in groups(tools, group_broker, "--delete", *one)
    assert group not in groups(tools, group_broker, "--list").split()
    gone = groups(tools, group_broker, "--describe", *one, check=False)
    assert filled not in gone.replace(group, "")


def test_verifiable_consumers(
    tools: JavaTools, group_broker: Broker, filled: str, protocol: str, tmp_path: Path
) -> None:
    """Two of them share the records; all commits succeed."""
    group = f"{filled}-{protocol}"
    command = tools.command(
        "kafka-verifiable-consumer",
        *["--bootstrap-server", group_broker.bootstrap_servers, "--topic", filled, "--group-id", group],
        *["--group-protocol", protocol, "--reset-policy", "earliest"],
    )
    outputs = [tmp_path / f"{number}.out" for number in range(2)]
    processes = []
    for output in outputs:
        with output.open("wb") as stream:
            processes.append(subprocess.Popen(command, stdout=stream))
    wanted = dict.fromkeys(range(3), ("10", "10", "0"))

    def committed() -> bool:
        return offsets(groups(tools, group_broker, "--describe", "--group", group, check=False), filled) == wanted

    try:
        wait_for(committed, "all is read and committed")
        # One of them may have read everything. The other handles the signal only after it reported its startup.
        wait_for(lambda: all("startup_complete" in each.read_text() for each in outputs), "both are there")
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(WAIT_S)
        lines = [line for output in outputs for line in output.read_text().splitlines()]
        events = [json.loads(line) for line in lines if line.startswith("{")]
    finally:
        for process in processes:
            process.kill()
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") >= RECORDS
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert commits
    assert sum(event["name"] == "shutdown_complete" for event in events) == 2
    assert [event for event in commits if not event["success"] and "Rebalance" not in event.get("error", "")] == []


def test_dump_log_decodes_the_offsets_topic(tools: JavaTools, tmp_path: Path) -> None:
    """Apache Kafka decodes every record of __consumer_offsets, including the committed offsets."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    with Broker(data_dir=tmp_path / "data", configs={"group.initial.rebalance.delay.ms": 0}) as broker:
        client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        client.create_topics([NewTopic("dumped", 2, 1)], request_timeout=20)["dumped"].result(30)
        for protocol in ("classic", "consumer"):
            settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": f"dumped-{protocol}"}
            consumer = Consumer({**settings, "group.protocol": protocol, "client.id": "dumper"})
            consumer.subscribe(["dumped"])
            deadline = time.monotonic() + WAIT_S
            while len(consumer.assignment()) < 2:
                consumer.poll(0.1)
                assert time.monotonic() < deadline
            consumer.commit(offsets=[TopicPartition("dumped", 1, 7, metadata="note")], asynchronous=False)
            consumer.close()
    segments = [path for path in (tmp_path / "data").glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    assert segments
    output = "".join(tools.run("kafka-dump-log", "--offsets-decoder", "--files", str(path)) for path in segments)
    assert "isvalid: false" not in output
    assert "Could not" not in output
    assert "Failed to decode" not in output
    payloads = [json.loads(found) for found in re.findall(r"payload: (\{.*\})$", output, re.M)]
    keys = [json.loads(found) for found in re.findall(r" key: (\{.*?\}) payload: ", output)]
    assert keys
    names = {json.dumps(key["data"]) for key in keys}
    assert json.dumps({"group": "dumped-classic", "topic": "dumped", "partition": 1}) in names
    assert json.dumps({"group": "dumped-consumer", "topic": "dumped", "partition": 1}) in names
    text = json.dumps(payloads)
    assert '"offset": 7' in text
    assert '"metadata": "note' in text  # librdkafka also sends its terminating zero byte
    assert '"protocolType": "consumer"' in text
