"""Copies from Ottla to Apache Kafka and back, by `ottla mirror` and by MirrorMaker 1 and 2 of Kafka 2.7."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from apache import Kafka
from fetch import log_jar
from old_kafka import WITHIN_S, OldPrograms

from ottla import Consumer, Producer
from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.batch_producer import BatchProducer
from ottla.client.librdkafka.consumer import RecordConsumer
from ottla.client.wire.model import LATEST_TIMESTAMP
from ottla.record.batch import BatchView
from ottla.record.builder import RecordData, build_batch
from ottla.testing import Broker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIGS = {
    "node.id": "1",
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
TIME = 1_700_000_000_000
TIMEOUT_S = 120.0
WAYS = (("ottla", "apache"), ("apache", "ottla"))
SESSION_MS = 6000
"""Session timeout of a killed MirrorMaker 1, which delays its successor."""
ONE_REPLICA = (
    *("replication.factor", "offset-syncs.topic.replication.factor", "checkpoints.topic.replication.factor"),
    *("heartbeats.topic.replication.factor", "offset.storage.replication.factor"),
    *("status.storage.replication.factor", "config.storage.replication.factor"),
)
EACH_SECOND = ("emit.heartbeats", "emit.checkpoints", "sync.group.offsets", "refresh.topics", "refresh.groups")
Row = tuple[int, tuple[bytes | None, bytes | None, int, object]]
"""Offset, then key, value, timestamp and headers."""


@pytest.fixture(scope="module")
def servers(java_classpath: str) -> Iterator[dict[str, str]]:
    with Broker() as ottla, Kafka(java_classpath, CONFIGS, voters_in_log=True) as apache:
        apache.format()
        apache.start()
        yield {"ottla": ottla.bootstrap_servers, "apache": apache.bootstrap_servers}


def create(servers: str, topic: str) -> None:
    with Cluster(servers) as cluster:
        cluster.topics.create(topic, 2, configs={"retention.ms": "-1"})
        cluster.records.list_offsets(
            {(topic, 0): LATEST_TIMESTAMP, (topic, 1): LATEST_TIMESTAMP}
        )  # waits until both serve


def fill(servers: str, topic: str, first: int = 0) -> None:
    """Produce ten transactions with all codecs; every third is aborted."""
    with Cluster(servers) as cluster:
        producer = BatchProducer(cluster, f"filler-{topic}")
        producer.initialize()
        for number in range(first, first + 10):
            rows = [
                RecordData(TIME + n, b"k%d" % (n % 5), b"%d.%d" % (number, n) * 20, [("h", None)]) for n in range(9)
            ]
            batch = BatchView(build_batch(rows, compression=CODECS[number % 5]))
            producer.begin([(topic, 0), (topic, 1)])
            for partition in (0, 1):
                producer.send((topic, partition), [batch] * 2)
            if number % 3 == 2:
                producer.initialize()
            else:
                producer.commit()


def content(servers: str, topic: str) -> dict[int, list[Row]]:
    """Returns offsets and records of each partition, under read_committed."""
    with Cluster(servers) as cluster:
        keys = [(topic, index) for index in range(len(cluster.topics.get(topic).partitions))]
        ends = cluster.records.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP))
    found: dict[int, list[Row]] = {index: [] for _, index in keys}
    with RecordConsumer(
        servers, dict.fromkeys(keys, 0), ends={key: info.offset for key, info in ends.items()}
    ) as consumer:
        for records in consumer.batches():
            for record in records:
                found[record.partition].append(
                    (record.offset, (record.key, record.value, record.timestamp_ms, record.headers))
                )
    return found


def mirrored(source: str, target: str, topic: str, *options: str) -> dict[str, int]:
    """Run the mirror and return its last report."""
    command = [sys.executable, "-m", "ottla", "mirror", "--from", source, "--to", target, "--once", "--json"]
    command += ["--topics", topic, "--groups", f"{topic}-.*", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, int] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_content_and_groups_are_equal(servers: dict[str, str], source: str, target: str) -> None:
    topic = f"from-{source}"
    create(servers[source], topic)
    fill(servers[source], topic)
    wanted = content(servers[source], topic)
    with Cluster(servers[source]) as cluster:
        offsets = {f"{topic}-{at}": at for at, _ in wanted[0][::7]}
        for group, offset in offsets.items():
            cluster.groups.commit_offsets(group, {(topic, 0): offset})
    assert mirrored(servers[source], servers[target], topic)["records"] == 7 * 18 * 2
    found = content(servers[target], topic)
    assert {index: [row for _, row in rows] for index, rows in found.items()} == {
        index: [row for _, row in rows] for index, rows in wanted.items()
    }
    with Cluster(servers[target]) as cluster:
        for group, offset in offsets.items():
            carried = cluster.groups.offsets(group)[topic, 0].offset
            left = [row for at, row in wanted[0] if at >= offset]
            assert [row for at, row in found[0] if at >= carried] == left
    assert mirrored(servers[source], servers[target], topic)["records"] == 0


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_only_refused_records_are_skipped(servers: dict[str, str], source: str, target: str) -> None:
    """Refused for size, timestamp and a missing key, amid valid records in consecutive batches; none in a new topic."""
    topic = f"refused-from-{source}"
    now_ms = int(time.time() * 1000)
    good = RecordData(now_ms, b"k", b"v" * 30, [("h", None)])
    bad = [
        good._replace(timestamp_ms=now_ms + 86_400_000),
        good._replace(key=None),
        good._replace(value=os.urandom(20_000)),
    ]
    limits = {"message.timestamp.after.max.ms": str((1 << 63) - 1), "max.message.bytes": "2000000"}
    with Cluster(servers[source]) as here, Cluster(servers[target]) as there:
        here.topics.create(topic, 1, configs=limits)
        there.topics.create(topic, 1, configs={"max.message.bytes": "5000", "cleanup.policy": "compact"})
        producer = BatchProducer(here, topic)
        producer.initialize()
        producer.begin([(topic, 0)])
        batches = [[record, good, good] for record in bad] + [[good, *bad, good], [good], bad]
        for codec in CODECS:
            producer.send((topic, 0), [BatchView(build_batch(rows, compression=codec)) for rows in batches])
        producer.commit()
    skipped = mirrored(servers[source], servers[target], topic, "--on-refused", "skip")
    assert (skipped["records"], skipped["skipped"]) == (len(CODECS) * 9, len(CODECS) * 9)
    rows = [row for _, row in content(servers[target], topic)[0]]
    assert rows == [row for _, row in content(servers[source], topic)[0] if row == rows[0]]
    assert mirrored(servers[source], servers[target], topic, "--rename", "new.{topic}")["skipped"] == 0
    assert [row for _, row in content(servers[target], f"new.{topic}")[0]] == [
        row for _, row in content(servers[source], topic)[0]
    ]


class Running:
    """MirrorMakers of 2.7, each in a separate JVM; as a context manager it stops them on exit."""

    def __init__(self, classpath: str, folder: Path) -> None:
        self._programs = OldPrograms(classpath, folder)
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def begin(self, name: str, *arguments: str) -> None:
        log = "-Dorg.slf4j.simpleLogger.logFile=System.out"
        self._processes[name] = self._programs.begin(log, *arguments, out=self._folder / name)

    def properties(self, name: str, settings: Mapping[str, object]) -> str:
        return self._programs.properties(name, settings)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            said = {name: (self._folder / name).read_text()[-2000:] for name in self._processes}
            assert time.monotonic() < deadline, f"it did not come to that: {said}"
            assert all(process.poll() is None for process in self._processes.values()), f"one ended: {said}"
            time.sleep(0.2)

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(WITHIN_S)
        self._processes.clear()


def rows(servers: str, topic: str) -> Counter[object]:
    """Returns the number of occurrences of each record."""
    return Counter(row for partition in content(servers, topic).values() for _, row in partition)


@pytest.fixture
def mirror_makers(kafka_of: Callable[[str], str], tmp_path: Path) -> Iterator[Running]:
    libraries = kafka_of("2.7")  # skips the test where they are unavailable
    with Running(f"{log_jar()}:{libraries}", tmp_path) as running:
        yield running


@pytest.mark.timeout(900)
def test_mirror_maker_1_copies_each_record_despite_kills(servers: dict[str, str], mirror_makers: Running) -> None:
    topics = {source: f"one-from-{source}" for source, _ in WAYS}

    def begin(source: str, target: str) -> None:
        reading = {"bootstrap.servers": servers[source], "group.id": "one", "auto.offset.reset": "earliest"}
        reading |= {"isolation.level": "read_committed", "session.timeout.ms": str(SESSION_MS)}
        consumer = mirror_makers.properties(f"consumer-{source}", reading)
        producer = mirror_makers.properties(f"producer-{source}", {"bootstrap.servers": servers[target]})
        files = ("--consumer.config", consumer, "--producer.config", producer)
        mirror_makers.begin(source, "kafka.tools.MirrorMaker", *files, "--whitelist", topics[source])

    def arrived() -> bool:
        """Returns whether each sent record arrived at least once, and no others."""
        found = [[rows(servers[end], topics[way[0]]) for end in way] for way in WAYS]
        return all(sent <= there and sent.keys() == there.keys() for sent, there in found)

    for source, target in WAYS:
        create(servers[source], topics[source])
        create(servers[target], topics[source])
        fill(servers[source], topics[source])
        begin(source, target)
    mirror_makers.until(arrived)
    mirror_makers.kill()
    for source, target in WAYS:
        fill(servers[source], topics[source], first=10)
        begin(source, target)
    mirror_makers.until(arrived)
    mirror_makers.stop()  # it commits during shutdown
    for source, _ in WAYS:
        with Cluster(servers[source]) as cluster:
            committed = {partition: found.offset for (_, partition), found in cluster.groups.offsets("one").items()}
        sent = content(servers[source], topics[source])
        assert committed == {partition: listed[-1][0] + 1 for partition, listed in sent.items()}


def strings(packed: bytes, count: int) -> list[str]:
    """Returns the first string fields of a MirrorMaker 2 key, in the encoding of Kafka's protocol."""
    found, position = [], 0
    for _ in range(count):
        (length,) = struct.unpack_from(">h", packed, position)
        found.append(packed[position + 2 : position + 2 + length].decode())
        position += 2 + length
    return found


def keys_of(servers: str, topic: str, count: int) -> set[tuple[str, ...]]:
    """Returns the distinct keys of one of its internal topics; none while the topic does not exist."""
    with Cluster(servers) as cluster:
        if topic not in cluster.topics.all():
            return set()
    listed = [row for partition in content(servers, topic).values() for _, row in partition]
    return {tuple(strings(key or b"", count)) for key, *_ in listed}


@pytest.mark.timeout(900)
def test_mirror_maker_2_copies_records_and_groups_both_ways(servers: dict[str, str], mirror_makers: Running) -> None:
    settings: dict[str, object] = {"clusters": "ottla,apache", "topics": "two-.*", "groups": "two-.*"}
    settings |= dict.fromkeys(ONE_REPLICA, 1) | {f"{name}.interval.seconds": 1 for name in EACH_SECOND}
    for source, target in WAYS:
        settings[f"{source}.bootstrap.servers"] = servers[source]
        way = {"enabled": "true", "sync.group.offsets.enabled": "true", "consumer.isolation.level": "read_committed"}
        settings |= {f"{source}->{target}.{name}": value for name, value in way.items()}

    def plain(source: str, first: int) -> None:
        with Producer(servers[source]) as producer:
            for number in range(first, first + 20):
                producer.send("two-plain", f"{source}-{number}", key=f"k{number}", partition=number % 2)

    def same(source: str, target: str, topic: str) -> bool:
        """Returns whether each record is in its source partition at least once, and no others."""
        with Cluster(servers[target]) as cluster:
            if f"{source}.{topic}" not in cluster.topics.all():
                return False
        sent, there = (content(servers[name], of) for name, of in ((source, topic), (target, f"{source}.{topic}")))
        sets = [(Counter(row for _, row in sent[each]), Counter(row for _, row in there[each])) for each in sent]
        return all(once <= again and once.keys() == again.keys() for once, again in sets)

    def mirrored(source: str, target: str) -> bool:
        if not same(source, target, "two-plain") or not same(source, target, "two-transactions"):
            return False
        with Cluster(servers[target]) as cluster:
            carried = cluster.groups.offsets(f"two-{source}")
        syncs = keys_of(servers[source], f"mm2-offset-syncs.{target}.internal", 1)
        checkpoints = keys_of(servers[target], f"{source}.checkpoints.internal", 2)
        return (
            {key: found.offset for key, found in carried.items()} == {(f"{source}.two-plain", 0): 7}
            and syncs >= {("two-plain",), ("two-transactions",)}
            and (f"two-{source}", f"{source}.two-plain") in checkpoints
            and (source, target) in keys_of(servers[target], "heartbeats", 2)
            and (target, source) in keys_of(servers[target], f"{source}.heartbeats", 2)
        )

    for source, _ in WAYS:
        create(servers[source], "two-plain")
        plain(source, 0)
        create(servers[source], "two-transactions")
        fill(servers[source], "two-transactions")
        reading = {"group.id": f"two-{source}", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        with Consumer(servers[source], reading, topics="two-plain") as consumer:  # groups without members are skipped
            assert consumer.poll(TIMEOUT_S)
            consumer.commit({("two-plain", 0): 7})
    file = mirror_makers.properties("two", settings)
    mirror_makers.begin("two-log", "org.apache.kafka.connect.mirror.MirrorMaker", file)
    mirror_makers.until(lambda: all(mirrored(*way) for way in WAYS))
    for source, _ in WAYS:
        plain(source, 20)
    mirror_makers.until(lambda: all(same(*way, "two-plain") for way in WAYS))
    for source, target in WAYS:  # a group resumes at the same record
        assert content(servers[source], "two-plain")[0][7] == content(servers[target], f"{source}.two-plain")[0][7]
