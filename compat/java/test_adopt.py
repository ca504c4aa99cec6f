"""Ottla serves the directories of Apache Kafka unchanged, and Apache Kafka resumes on them afterwards.

A broker writes and is stopped or killed, and the other implementation starts on the same files. These contain records
of every codec, compacted logs, committed, aborted and open transactions, groups of both protocols, configs and quotas,
in one directory and in two. The tests compare the records that clients read, never the files. Ottla cleans a log that
Apache Kafka never cleaned.
"""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from apache import Kafka
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ottla.testing import Broker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 400
KEYS = 10
TIMEOUT_S = 180.0
REJOIN_S = 20.0
"""How long a former member may take to rejoin before a new one replaces it, whether or not it would rejoin later."""
HELD_BACK_MS = "86400000"
CONFIGS = {
    "node.id": "1",
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "log.cleaner.backoff.ms": "100",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "200",
}
OURS = (
    "log.retention.ms",
    "group.initial.rebalance.delay.ms",
    "log.cleaner.backoff.ms",
    "offsets.topic.num.partitions",
    "transaction.state.log.num.partitions",
)
BROKER_CONFIGS = {name: CONFIGS[name] for name in OURS}


class Writer(NamedTuple):
    """The implementation that wrote a directory, and how it ended."""

    version: str
    release: str
    """Metadata version; a broker may be older than its newest level."""
    voters_in_log: bool
    protocol: str
    """Newest group protocol that the version supports in its default configuration."""
    end: signal.Signals
    directories: int


WRITERS = [
    Writer("4.4", "4.0", True, "consumer", signal.SIGKILL, 2),
    Writer("4.4", "4.0", False, "consumer", signal.SIGTERM, 2),
    Writer("4.1", "4.0", False, "consumer", signal.SIGTERM, 1),
    Writer("3.9", "3.9", False, "classic", signal.SIGTERM, 1),
    Writer("4.4", "3.3", True, "classic", signal.SIGTERM, 1),
]


class Content(NamedTuple):
    """The data that clients read from a cluster."""

    committed: dict[str, list[Any]]
    everything: dict[str, list[Any]]
    latest: dict[bytes | None, bytes | None]
    """Newest values of the compacted topic, which is still being cleaned."""
    offsets: dict[str, int]
    settings: dict[str, str]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "writer", WRITERS, ids=lambda writer: f"{writer.version}-at-{writer.release}-{writer.end.name}-{writer.directories}"
)
def test_there_and_back(writer: Writer, kafka_of: Callable[[str], str]) -> None:
    with Kafka(
        kafka_of(writer.version), CONFIGS, voters_in_log=writer.voters_in_log, directories=writer.directories
    ) as kafka:
        kafka.format("--release-version", writer.release)
        kafka.start()
        filling = Filling(kafka.bootstrap_servers, kafka.data_dirs, writer.protocol)
        before = content(kafka.bootstrap_servers)
        kafka.stop(writer.end)
        for directory in kafka.data_dirs:
            assert list(directory.glob("records-*-0")), "each directory has partitions"

        report = adopt(kafka.data_dirs)
        assert report["obstacles"] == []
        types = Counter(["classic", writer.protocol])
        assert report["groups"]["types"] == {kind: types[kind] for kind in ("classic", "consumer", "share", "streams")}
        assert report["groups"]["offsets"] == len(before.offsets)
        assert report["transactions"] == {"ids": 2 + len(CODECS), "open": ["open"], "unreadable": 0}

        with Broker(data_dir=kafka.log_dirs, configs=BROKER_CONFIGS, port=kafka.port) as ours:
            assert content(ours.bootstrap_servers) == before
            clean_what_was_held_back(ours, kafka.data_dirs)
            filling.resume()
            abort_open_transaction(ours.bootstrap_servers, "open")
            write_some(ours.bootstrap_servers)
            leave_open(ours.bootstrap_servers, "ours")
            there = content(ours.bootstrap_servers)
            if writer.end is signal.SIGKILL:
                ours.kill()
        kafka.start()
        assert content(kafka.bootstrap_servers) == there
        filling.resume()
        abort_open_transaction(kafka.bootstrap_servers, "ours")


@pytest.mark.timeout(600)
def test_apache_kafka_serves_a_directory_of_ottla(kafka_of: Callable[[str], str]) -> None:
    """Only Ottla has written to the directory, including the format."""
    with Kafka(kafka_of("4.4"), CONFIGS, voters_in_log=True) as kafka:
        with Broker(data_dir=kafka.log_dirs, configs=BROKER_CONFIGS) as ours:
            Filling(ours.bootstrap_servers, kafka.data_dirs, "consumer")
            build_key_filters(ours, kafka.data_dirs)
            before = content(ours.bootstrap_servers)
        kafka.start()
        assert content(kafka.bootstrap_servers) == before
        abort_open_transaction(kafka.bootstrap_servers, "open")


def build_key_filters(ours: Broker, data_dirs: list[Path]) -> None:
    """Leave files beside the segments that Apache Kafka does not know."""
    admin = AdminClient(client(ours.bootstrap_servers))
    alter(admin, ConfigResource(ResourceType.TOPIC, "held-back"), "ottla.search.index", "key")
    deadline = time.monotonic() + TIMEOUT_S
    while not any(path for directory in data_dirs for path in directory.glob("held-back-0/*.keyfilter")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    alter(admin, ConfigResource(ResourceType.TOPIC, "held-back"), "ottla.search.index", "none")


def adopt(data_dirs: list[Path]) -> dict[str, Any]:
    """Returns the report for directories without obstacles."""
    command = [sys.executable, "-m", "ottla", "adopt", *map(str, data_dirs), "--json", "--verify"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def clean_what_was_held_back(ours: Broker, data_dirs: list[Path]) -> None:
    """Clean a log that only Apache Kafka wrote and that was never cleaned: fewer records, same newest values."""
    (directory,) = (path for path in data_dirs if (path / "held-back-0").exists())
    logs = directory / "held-back-0"
    checkpoint = directory / "cleaner-offset-checkpoint"
    assert "held-back 0 " not in (checkpoint.read_text() if checkpoint.exists() else "")
    segments = {path.name: path.stat().st_size for path in logs.glob("*.log")}
    before = read(ours.bootstrap_servers, ["held-back"], "read_committed")["held-back"]
    admin = AdminClient(client(ours.bootstrap_servers))
    alter(admin, ConfigResource(ResourceType.TOPIC, "held-back"), "min.compaction.lag.ms", "0")
    wait_until_cleaned(data_dirs, "held-back")
    # Later records are not cleaned by either broker.
    alter(admin, ConfigResource(ResourceType.TOPIC, "held-back"), "min.compaction.lag.ms", HELD_BACK_MS)
    after = read(ours.bootstrap_servers, ["held-back"], "read_committed")["held-back"]
    assert set(after) < set(before)
    assert {row[2]: row[3] for row in after} == {row[2]: row[3] for row in before}
    assert re.search(r"held-back-0 is clean up to offset \d+: .* [1-9]\d* bytes dropped", ours.logs())
    left = {path.name: path.stat().st_size for path in logs.glob("*.log")}
    assert sum(left.values()) < sum(segments.values())


def wait_until_cleaned(data_dirs: list[Path], topic: str) -> None:
    """Wait for a completed pass over the first partition, by the checkpoint file of either broker."""
    deadline = time.monotonic() + TIMEOUT_S
    files = [path / "cleaner-offset-checkpoint" for path in data_dirs]
    done = re.compile(rf"^{topic} 0 [1-9]", re.MULTILINE)
    while not any(path.exists() and done.search(path.read_text()) for path in files):
        assert time.monotonic() < deadline, f"{topic} was not compacted"
        time.sleep(0.05)


def alter(admin: AdminClient, resource: ConfigResource, name: str, value: str) -> None:
    resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(TIMEOUT_S)


def client(servers: str) -> dict[str, Any]:
    """Returns the common client settings; a short backoff finds the next broker soon after a change."""
    return {"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 200}


class Filling:
    """A cluster with data of every kind; its clients stay open, as those of a killed broker would."""

    def __init__(self, servers: str, data_dirs: list[Path], protocol: str) -> None:
        self.servers = servers
        self.admin = AdminClient(client(self.servers))
        topics = [
            NewTopic(f"records-{codec}", 1, 1, config={"segment.bytes": "1048576", "index.interval.bytes": "512"})
            for codec in CODECS
        ]
        compaction = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"}
        topics += [NewTopic("latest", 1, 1, config=compaction), NewTopic("tx", 1, 1), NewTopic("steady", 1, 1)]
        topics.append(NewTopic("held-back", 1, 1, config={**compaction, "min.compaction.lag.ms": HELD_BACK_MS}))
        for made in self.admin.create_topics(topics).values():
            made.result(TIMEOUT_S)
        for codec in CODECS:
            self._produce(codec)
        self._compact(data_dirs)
        self._hold_back()
        alter(self.admin, ConfigResource(ResourceType.BROKER, "1"), "message.max.bytes", "2000000")
        self._transactions()
        self._groups = [("records-gzip", "old", "classic"), ("records-lz4", "new", protocol)]
        self.readers = [self._read(*group) for group in self._groups]
        self.open = leave_open(self.servers, "open")
        self._steady = Producer({**client(servers), "enable.idempotence": True})
        self._sent: list[bytes] = []
        self.resume()

    def resume(self) -> None:
        """Reconnected clients resume: the producer's sequences continue, and both groups have their members."""
        fresh = [b"%d" % number for number in range(len(self._sent), len(self._sent) + 20)]
        self._sent += fresh
        for value in fresh:
            self._steady.produce("steady", value)
        assert self._steady.flush(TIMEOUT_S) == 0
        assert [row[3] for row in read(self.servers, ["steady"], "read_committed")["steady"]] == self._sent
        for number, group in enumerate(self._groups):
            if not read_and_commit(self.readers[number]):
                self.readers[number].close()
                self.readers[number] = self._read(*group)
                assert read_and_commit(self.readers[number])

    def _produce(self, codec: str) -> None:
        settings = {"compression.type": codec, "enable.idempotence": True, "linger.ms": 5, "batch.num.messages": 50}
        producer = Producer({**client(self.servers), **settings})
        for number in range(RECORDS):
            value = (b"%d " % number) * 500
            producer.produce(f"records-{codec}", value, b"k%d" % number, headers={"n": b"%d" % number})
        assert producer.flush(TIMEOUT_S) == 0

    def _compact(self, data_dirs: list[Path]) -> None:
        """Write several segments of a few keys, with every fifth key deleted, until a cleaner pass is complete."""
        producer = Producer(client(self.servers))
        for number in range(60):
            producer.produce("latest", b"%d" % number * 40_000, b"k%d" % (number % KEYS))
        for number in range(0, KEYS, 5):
            producer.produce("latest", None, b"k%d" % number)
        assert producer.flush(TIMEOUT_S) == 0
        wait_until_cleaned(data_dirs, "latest")

    def _hold_back(self) -> None:
        """Write records with every codec, in a committed and an aborted transaction, to a log that is never cleaned."""
        noise = random.Random(1)
        for number, codec in enumerate(CODECS):
            producer = transactional(self.servers, f"held back by {codec}", codec)
            producer.begin_transaction()
            for each in range(40):
                producer.produce("held-back", noise.randbytes(10_000), b"k%d" % (each % KEYS))
            producer.produce("held-back", None, b"k%d" % number)
            producer.commit_transaction(TIMEOUT_S)
            producer.begin_transaction()
            producer.produce("held-back", b"aborted", b"k%d" % (number + 1))
            assert producer.flush(TIMEOUT_S) == 0
            producer.abort_transaction(TIMEOUT_S)

    def _transactions(self) -> None:
        producer = transactional(self.servers, "ended")
        for number in range(4):
            producer.begin_transaction()
            producer.produce("tx", b"%d" % number, b"ended")
            assert producer.flush(TIMEOUT_S) == 0  # an abort would discard unsent records
            if number % 2:
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer.commit_transaction(TIMEOUT_S)

    def _read(self, topic: str, group: str, protocol: str) -> Consumer:
        """Returns a group member that has read a record."""
        consumer = Consumer(
            {
                **client(self.servers),
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **({"session.timeout.ms": 10_000} if protocol == "classic" else {}),
            }
        )
        consumer.subscribe([topic])
        deadline = time.monotonic() + TIMEOUT_S
        while not consumer.consume(1, 0.1):
            assert time.monotonic() < deadline, f"{group}: nothing was read"
        return consumer


NO_MEMBER = {
    KafkaError._WAIT_COORD,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
}


def read_and_commit(reader: Consumer) -> bool:
    """Returns False when the reader finds no coordinator, or a coordinator that does not know it.

    A cluster names no broker while its only broker shuts down, and librdkafka may then forget the address for good. A
    member without a heartbeat for its session timeout is removed, for example between brokers on a busy machine.
    """
    found = reader.consume(1, REJOIN_S)
    if not found:
        return False
    assert found[0].error() is None
    try:
        reader.commit(found[0], asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() not in NO_MEMBER:
            raise
        return False
    return True


def transactional(servers: str, name: str, codec: str = "none") -> Producer:
    """Returns a producer that has its epoch and has completed any transaction of its predecessor."""
    # Open during the whole test, across broker restarts: on a busy machine longer than the default minute.
    settings = {"transactional.id": name, "transaction.timeout.ms": 900_000, "compression.type": codec}
    producer = Producer({**client(servers), **settings})
    producer.init_transactions(TIMEOUT_S)
    return producer


def leave_open(servers: str, name: str) -> Producer:
    """Returns the producer of an open transaction with a record in `tx`, before a record of another producer."""
    producer = transactional(servers, name)
    producer.begin_transaction()
    producer.produce("tx", name.encode(), b"open")
    assert producer.flush(TIMEOUT_S) == 0
    plain = Producer(client(servers))
    plain.produce("tx", b"behind " + name.encode(), b"plain")
    assert plain.flush(TIMEOUT_S) == 0
    return producer


def abort_open_transaction(servers: str, name: str) -> None:
    """Abort the open transaction by a new producer of that name: readers then see the later record and skip the aborted
    one.
    """
    seen = len(read(servers, ["tx"], "read_committed")["tx"])
    transactional(servers, name)
    rows = read(servers, ["tx"], "read_committed")["tx"]
    assert len(rows) == seen + 1
    assert rows[-1][3] == b"behind " + name.encode()


def write_some(servers: str) -> None:
    """Write more of the same with idempotent producers, a new topic, and newer offsets."""
    for codec in CODECS:
        settings = {"compression.type": codec, "enable.idempotence": True}
        producer = Producer({**client(servers), **settings})
        for number in range(20):
            producer.produce(f"records-{codec}", b"more %d" % number)
        assert producer.flush(TIMEOUT_S) == 0
    admin = AdminClient(client(servers))
    for made in admin.create_topics([NewTopic("new", 1, 1, config={"retention.ms": "-1"})]).values():
        made.result(TIMEOUT_S)
    producer.produce("new", b"first")
    assert producer.flush(TIMEOUT_S) == 0


def content(servers: str) -> Content:
    """Returns all records of the test's topics, fetched from the beginning."""
    admin = AdminClient(client(servers))
    topics = [name for name in admin.list_topics(timeout=TIMEOUT_S).topics if not name.startswith("__")]
    resource = ConfigResource(ResourceType.TOPIC, "records-gzip")
    described = next(iter(admin.describe_configs([resource]).values())).result(TIMEOUT_S)
    committed_rows, rows = read(servers, topics, "read_committed"), read(servers, topics, "read_uncommitted")
    rows.pop("latest")
    latest = {row[2]: row[3] for row in committed_rows.pop("latest")}
    return Content(
        committed_rows,
        rows,
        latest,
        {group: committed(admin, group, topic) for group, topic in GROUPS.items()},
        {name: described[name].value for name in ("segment.bytes", "index.interval.bytes")},
    )


GROUPS = {"old": "records-gzip", "new": "records-lz4"}


def committed(admin: AdminClient, group: str, topic: str) -> int:
    """Returns the group's committed offset."""
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (future,) = admin.list_consumer_group_offsets([asked]).values()
    (found,) = future.result(TIMEOUT_S).topic_partitions
    return int(found.offset)


def read(servers: str, topics: Iterable[str], isolation: str) -> dict[str, list[tuple[Any, ...]]]:
    """Returns (offset, timestamp, key, value, headers) of every visible record up to the end, by topic."""
    consumer = Consumer(
        {
            **client(servers),
            "group.id": "reader of everything",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    rows: dict[str, list[tuple[Any, ...]]] = {topic: [] for topic in topics}
    unread = set(rows)
    consumer.assign([TopicPartition(topic, 0, 0) for topic in rows])
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while unread:
            assert time.monotonic() < deadline, f"{unread} have no end"
            message = consumer.poll(0.05)
            error = None if message is None else message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                unread.discard(message.topic())
            elif message is not None:
                headers = tuple(message.headers() or ())
                row = (message.offset(), message.timestamp(), message.key(), message.value(), headers)
                rows[message.topic()].append(row)
    finally:
        consumer.close()
    return rows
