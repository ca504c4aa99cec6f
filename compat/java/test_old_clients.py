"""Unchanged ZooKeeper clients of Kafka 0.8.2 and 0.9: console clients, offset tools, MirrorMaker.

Each version first runs the same steps with its own broker: this proves that it works on this Java and that the
expectations are correct.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from old_kafka import WITHIN_S, OldKafka, OldPrograms, ottla_on

from ottla import Admin, Producer, SimpleConsumer
from ottla.testing import Broker

PARTITIONS = 3
GROUP, TOPIC = "old", "old"
MIRRORED = "mirrored"
SESSION_MS = 10_000
"""Session timeout of a killed MirrorMaker, which delays its successor."""


def offsets_path(partition: int) -> str:
    return f"/consumers/{GROUP}/offsets/{TOPIC}/{partition}"


def consoles_and_tools(programs: OldPrograms, zookeeper: str, servers: str) -> None:
    """Produce, consume, export, check, rewind by an import, and consume again."""
    first, second = [f"first-{number}" for number in range(12)], [f"second-{number}" for number in range(5)]
    programs.produce(servers, TOPIC, first)
    assert sorted(programs.consume(zookeeper, GROUP, TOPIC, len(first), "--from-beginning")) == sorted(first)
    rows = programs.checked(zookeeper, GROUP, TOPIC)
    assert len(rows) == PARTITIONS
    assert sum(row.offset for row in rows.values()) == len(first)
    assert all((row.end, row.lag) == (row.offset, 0) for row in rows.values())
    offsets = programs.exported(zookeeper, GROUP)
    assert offsets == {offsets_path(partition): row.offset for partition, row in rows.items()}

    programs.produce(servers, TOPIC, second)
    assert sum(row.lag for row in programs.checked(zookeeper, GROUP, TOPIC).values()) == len(second)
    rewound = {path: max(offset - 1, 0) for path, offset in offsets.items()}
    programs.imported(zookeeper, rewound)
    assert programs.exported(zookeeper, GROUP) == rewound
    again = sum(offset > 0 for offset in offsets.values())
    read = programs.consume(zookeeper, GROUP, TOPIC, len(second) + again)
    assert sorted(value for value in read if value in second) == sorted(second)
    assert {value for value in read if value not in second} <= set(first)
    assert sum(programs.exported(zookeeper, GROUP).values()) == len(first) + len(second)


@pytest.mark.parametrize("version", ["0.8", "0.9"])
def test_clients_with_their_own_broker(kafka_of: Callable[[str], str], tmp_path: Path, version: str) -> None:
    classpath = kafka_of(version)
    programs = OldPrograms(classpath, tmp_path)
    with OldKafka(classpath) as own:
        create = ["--create", "--topic", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "1"]
        programs.run("kafka.admin.TopicCommand", "--zookeeper", own.address, *create)
        consoles_and_tools(programs, own.address, own.bootstrap_servers)


@pytest.mark.parametrize("version", ["0.8", "0.9"])
def test_clients_with_ottla(kafka_of: Callable[[str], str], tmp_path: Path, version: str) -> None:
    classpath = kafka_of(version)
    programs = OldPrograms(classpath, tmp_path)
    with ottla_on(classpath) as (zookeeper, broker):
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=1)
        described = programs.run("kafka.admin.TopicCommand", "--zookeeper", zookeeper, "--describe", "--topic", TOPIC)
        assert described.count("Leader: 7\tReplicas: 7\tIsr: 7") == PARTITIONS, described
        consoles_and_tools(programs, zookeeper, broker.bootstrap_servers)


def test_offsets_of_0_8_1_clients_are_in_zookeeper(
    kafka_of: Callable[[str], str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("kafka-python 1.4 does not run on this Python")
    program = [str(request.getfixturevalue("older_python")), str(Path(__file__).parents[1] / "older" / "client.py")]
    classpath = kafka_of("0.9")
    programs = OldPrograms(classpath, tmp_path)
    with ottla_on(classpath) as (zookeeper, broker):

        def consume(count: int) -> tuple[list[int], int]:
            """Returns the positions of the next records and the then committed offset, by OffsetCommit 0 and
            OffsetFetch 0.
            """
            command = [*program, "consume", broker.bootstrap_servers, "0.8.1", TOPIC, GROUP, str(count)]
            printed = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=True).stdout
            *rows, committed = [json.loads(line) for line in printed.splitlines()]
            return [row["offset"] for row in rows], committed

        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, partitions=1, replication_factor=1)
        programs.produce(broker.bootstrap_servers, TOPIC, "abcde")
        assert consume(3) == ([0, 1, 2], 3)
        assert programs.exported(zookeeper, GROUP) == {offsets_path(0): 3}
        assert programs.consume(zookeeper, GROUP, TOPIC, 1) == ["d"]
        assert consume(1) == ([4], 5)
        programs.imported(zookeeper, {offsets_path(0): 1})
        assert consume(2) == ([1, 2], 3)


class Mirrored:
    """A topic in two clusters, and 0.9's MirrorMaker between them."""

    def __init__(self, programs: OldPrograms, zookeeper: str, source: str, target: str) -> None:
        self._programs = programs
        self._source, self._target = source, target
        reading = {"group.id": "mirror", "zookeeper.connect": zookeeper, "auto.offset.reset": "smallest"}
        session = {"zookeeper.session.timeout.ms": SESSION_MS, "rebalance.max.retries": 10_000}
        consumer = programs.properties("consumer", {**reading, **session, "rebalance.backoff.ms": 200})
        producer = programs.properties("producer", {"bootstrap.servers": target})
        self._arguments = ["--consumer.config", consumer, "--producer.config", producer, "--whitelist", f"{MIRRORED}.*"]
        self.sent: Counter[tuple[bytes | None, bytes | None]] = Counter()
        self._process: subprocess.Popen[bytes] | None = None
        for servers in (source, target):
            with Admin(servers) as admin:
                admin.create_topic(MIRRORED, partitions=PARTITIONS, replication_factor=1)

    def fill(self, count: int) -> None:
        with Producer(self._source) as producer:
            for number in range(self.sent.total(), self.sent.total() + count):
                key = None if number % 4 == 0 else f"k{number}".encode()
                self.sent[key, str(number).encode()] += 1
                producer.send(MIRRORED, str(number), key=key)

    def arrived(self) -> Counter[tuple[bytes | None, bytes | None]]:
        with SimpleConsumer(self._target) as reader:
            found: Counter[tuple[bytes | None, bytes | None]] = Counter()
            for key, (start, end) in reader.bounds(reader.partitions(MIRRORED)).items():
                while start < end:
                    fetched = reader.fetch(*key, start)
                    found.update((record.key, record.value) for record in fetched.records)
                    start = fetched.next_offset
            return found

    def begin(self) -> None:
        self._process = self._programs.begin("kafka.tools.MirrorMaker", *self._arguments, "--num.streams", "2")

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline, "it did not come to that"
            assert self._process is not None
            assert self._process.poll() is None, "it ended by itself"
            time.sleep(0.05)

    def end(self, *, killed: bool = False) -> None:
        process, self._process = self._process, None
        if process is not None:
            (process.kill if killed else process.terminate)()
            process.wait(WITHIN_S)


def test_mirror_maker_copies_from_ottla_to_ottla(
    kafka_of: Callable[[str], str], broker: Broker, tmp_path: Path
) -> None:
    classpath = kafka_of("0.9")
    programs = OldPrograms(classpath, tmp_path)
    with ottla_on(classpath) as (zookeeper, source):
        mirrored = Mirrored(programs, zookeeper, source.bootstrap_servers, broker.bootstrap_servers)
        try:
            for _ in range(2):
                mirrored.fill(30)
                mirrored.begin()
                mirrored.until(lambda: mirrored.arrived().keys() == mirrored.sent.keys())
                mirrored.end()  # it commits during shutdown, so the next one duplicates nothing
            assert mirrored.arrived() == mirrored.sent
            assert sum(programs.exported(zookeeper, "mirror").values()) == mirrored.sent.total()

            mirrored.begin()
            mirrored.fill(30)
            mirrored.until(lambda: mirrored.arrived().total() > mirrored.sent.total() - 30)
            mirrored.end(killed=True)
            mirrored.begin()
            mirrored.until(lambda: mirrored.arrived().keys() == mirrored.sent.keys())
        finally:
            mirrored.end(killed=True)
