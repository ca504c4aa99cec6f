"""Spark's own Kafka connector, unmodified: batch, stream and sink, compared with librdkafka's delivery reports."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from spark_process import Record, SparkError, SparkProcess
from three_brokers import ThreeBrokers

from ottla.testing import Broker

pytestmark = pytest.mark.timeout(600)  # the first test installs Spark

PARTITIONS = 3
EACH = 100
"""Number of records in each partition of `clicks`."""
BASE_MS = 1_700_000_000_000
STEP_MS = 1_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WAIT_S = 60.0
DURING_A_KILL = 100
"""Minimum number of records for a topic while a broker is down."""


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


class Topic:
    """A topic and its records, from the producer's delivery reports."""

    def __init__(self, bootstrap_servers: str, name: str, partitions: int = PARTITIONS, **configs: str) -> None:
        self.name = name
        self.records: list[Record] = []
        self.bootstrap_servers = bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        new = NewTopic(name, partitions, configs.pop("replication", 1), config=configs)
        self.admin.create_topics([new])[name].result(30)

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 5, **settings})

    def produce(self, values: Sequence[str], *, producer: Producer | None = None, partitions: int = PARTITIONS) -> None:
        """Send one record to each partition in turn and wait for the deliveries."""
        own = producer or self.producer()
        for number, value in enumerate(values):
            self.send(own, value, partition=number % partitions)
        assert own.flush(WAIT_S) == 0

    def send(self, producer: Producer, value: str | None, *, kept: bool = True, **arguments: Any) -> None:
        """Send one record, which counts after its delivery unless `kept` is false."""
        headers = arguments.get("headers")
        while True:
            try:
                producer.produce(
                    self.name,
                    None if value is None else value.encode("latin-1"),
                    on_delivery=lambda error, message: self._delivered(error, message, headers, kept),
                    **arguments,
                )
            except BufferError:
                producer.poll(0.1)
            else:
                return

    def _delivered(
        self, error: KafkaError | None, message: Message, headers: Sequence[tuple[str, bytes | None]] | None, kept: bool
    ) -> None:
        assert error is None, str(error)
        if kept:
            kind, timestamp_ms = message.timestamp()
            shown = headers and tuple((name, text(value)) for name, value in headers)
            place = (message.topic(), message.partition(), message.offset())
            record = Record(*place, timestamp_ms, kind - 1, text(message.key()), text(message.value()), shown or None)
            self.records.append(record)

    def sorted(self, *, headers: bool = False) -> list[Record]:
        """Returns the rows of a query; headers only on request."""
        return sorted(record if headers else record._replace(headers=None) for record in self.records)

    def between(self, starts: dict[int, int], ends: dict[int, int]) -> list[Record]:
        """Returns the records of [start, end) of each partition."""
        return [
            record for record in self.sorted() if starts[record.partition] <= record.offset < ends[record.partition]
        ]

    def values(self) -> list[str | None]:
        """Returns the values from librdkafka's consumer, under read_committed."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        partitions = self.admin.list_topics(self.name, timeout=30).topics[self.name].partitions
        consumer.assign([TopicPartition(self.name, each, OFFSET_BEGINNING) for each in partitions])
        found, ended, deadline = [], set(), time.monotonic() + WAIT_S
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"{self.name} was not read to its end"
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is None:
                found.append(text(message.value()))
            else:
                ended.add(message.partition())
        consumer.close()
        return found


def named(name: str) -> str:
    return f"{name}-{time.time_ns() // 1_000_000}"


@pytest.fixture(scope="session")
def clicks(broker: Broker) -> Topic:
    """Every codec, null keys and values, headers, and one record per second."""
    topic = Topic(broker.bootstrap_servers, named("clicks"))
    for number, codec in enumerate(CODECS):
        producer = topic.producer(**{"compression.type": codec})
        for index in range(number * EACH // len(CODECS), (number + 1) * EACH // len(CODECS)):
            for partition in range(PARTITIONS):
                topic.send(
                    producer,
                    None if index % 10 == 3 else f"{codec} {partition} {index} \x00\xff" + "x" * 50,
                    partition=partition,
                    key=None if index % 4 == 0 else b"\x00key %d" % (index % 7),
                    timestamp=BASE_MS + index * STEP_MS,
                    headers=[("a", b"\x00\xff"), ("none", None), ("a", b"")] if index % 5 == 0 else None,
                )
        assert producer.flush(WAIT_S) == 0
    assert len(topic.records) == PARTITIONS * EACH
    return topic


@pytest.fixture
def source(clicks: Topic) -> dict[str, str]:
    return {"kafka.bootstrap.servers": clicks.bootstrap_servers, "subscribe": clicks.name}


class TestBatch:
    def test_everything(self, spark: SparkProcess, clicks: Topic, source: dict[str, str]) -> None:
        assert spark.read(**source, includeHeaders="true") == clicks.sorted(headers=True)
        assert spark.read(**source, startingOffsets="earliest", endingOffsets="latest") == clicks.sorted()

    def test_the_time_of_the_broker(self, spark: SparkProcess, broker: Broker) -> None:
        topic = Topic(broker.bootstrap_servers, named("appended"), **{"message.timestamp.type": "LogAppendTime"})
        topic.produce(["a", "b", "c", "d"])
        found = spark.read(**{"kafka.bootstrap.servers": broker.bootstrap_servers}, subscribe=topic.name)
        assert {record.timestamp_type for record in found} == {1}
        assert found == topic.sorted()

    def test_offsets_of_each_partition(self, spark: SparkProcess, clicks: Topic, source: dict[str, str]) -> None:
        starts = json.dumps({clicks.name: {"0": 10, "1": -2, "2": 95}})
        ends = json.dumps({clicks.name: {"0": 20, "1": 3, "2": -1}})
        found = spark.read(**source, startingOffsets=starts, endingOffsets=ends)
        assert found == clicks.between({0: 10, 1: 0, 2: 95}, {0: 20, 1: 3, 2: EACH})

    def test_times_of_all_partitions(self, spark: SparkProcess, clicks: Topic, source: dict[str, str]) -> None:
        """The first record at or after a time, as ListOffsets finds it; the end is exclusive."""
        between, exact = str(BASE_MS + 19 * STEP_MS + 1), str(BASE_MS + 70 * STEP_MS)
        found = spark.read(**source, startingTimestamp=between, endingTimestamp=exact)
        assert found == clicks.between(dict.fromkeys(range(PARTITIONS), 20), dict.fromkeys(range(PARTITIONS), 70))

    def test_times_of_each_partition(self, spark: SparkProcess, clicks: Topic, source: dict[str, str]) -> None:
        late = BASE_MS + EACH * STEP_MS
        starts = json.dumps({clicks.name: {"0": BASE_MS - 1, "1": BASE_MS + 5 * STEP_MS, "2": BASE_MS + 1}})
        ends = json.dumps({clicks.name: {"0": BASE_MS + STEP_MS, "1": late, "2": BASE_MS + 2 * STEP_MS}})
        found = spark.read(**source, startingOffsetsByTimestamp=starts, endingOffsetsByTimestamp=ends)
        assert found == clicks.between({0: 0, 1: 5, 2: 1}, {0: 1, 1: EACH, 2: 2})

    def test_time_after_all_records(self, spark: SparkProcess, clicks: Topic, source: dict[str, str]) -> None:
        late = str(BASE_MS + EACH * STEP_MS)
        with pytest.raises(SparkError, match="timestamp"):
            spark.read(**source, startingTimestamp=late)
        assert spark.read(**source, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == []

    def test_topics_by_a_pattern(self, spark: SparkProcess, broker: Broker) -> None:
        name = named("pattern")
        topics = [Topic(broker.bootstrap_servers, f"{name}-{kind}") for kind in ("a", "b", "other")]
        for topic in topics:
            topic.produce([topic.name] * 5)
        servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        wanted = [record for topic in topics[:2] for record in topic.sorted()]
        assert spark.read(**servers, subscribePattern=f"{name}-[ab]") == wanted
        assert spark.read(**servers, subscribe=f"{topics[0].name},{topics[1].name}") == wanted

    def test_assigned_partitions(self, spark: SparkProcess, clicks: Topic) -> None:
        wanted = json.dumps({clicks.name: [2, 0]})
        found = spark.read(**{"kafka.bootstrap.servers": clicks.bootstrap_servers}, assign=wanted)
        assert found == [record for record in clicks.sorted() if record.partition != 1]

    def test_more_tasks_than_partitions(self, spark: SparkProcess, clicks: Topic, source: dict[str, str]) -> None:
        found, tasks = spark.partitions_read(**source, minPartitions="12")
        assert tasks == PARTITIONS * 4
        assert found == clicks.sorted()


@pytest.fixture(scope="module")
def mixed(broker: Broker) -> Iterator[Topic]:
    """Interleaved committed, aborted and plain records, with an open transaction at the end."""
    topic = Topic(broker.bootstrap_servers, named("transactions"), 1)
    plain = topic.producer()
    # Open while tests read, which on a busy machine takes longer than the default minute.
    settings = {"transaction.timeout.ms": 900_000}
    one, other = (topic.producer(**{"transactional.id": named(f"writer-{number}")}, **settings) for number in range(2))
    for producer in (one, other):
        producer.init_transactions(WAIT_S)
    for number in range(20):
        one.begin_transaction()
        other.begin_transaction()
        commits = number % 3 == 0
        for index in range(5):
            topic.send(one, f"committed {number} {index}")
            assert one.flush(WAIT_S) == 0
            topic.send(other, f"{commits} {number} {index}", kept=commits)
            assert other.flush(WAIT_S) == 0
        topic.produce([f"plain {number}"], producer=plain)
        other.commit_transaction(WAIT_S) if commits else other.abort_transaction(WAIT_S)
        one.commit_transaction(WAIT_S)
    other.begin_transaction()
    topic.send(other, "open", kept=False)
    assert other.flush(WAIT_S) == 0
    topic.send(plain, "after it", kept=False)
    assert plain.flush(WAIT_S) == 0
    yield topic
    other.abort_transaction(WAIT_S)


@pytest.fixture
def committed(mixed: Topic) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": mixed.bootstrap_servers,
        "subscribe": mixed.name,
        "kafka.isolation.level": "read_committed",
    }


class TestTransactions:
    def test_batch(self, spark: SparkProcess, mixed: Topic, committed: dict[str, str]) -> None:
        assert spark.read(**committed) == mixed.sorted()
        everything = spark.read(**{**committed, "kafka.isolation.level": "read_uncommitted"})
        assert len(everything) == 20 * 11 + 2
        assert {record.value for record in everything} >= {"open", "after it", "False 1 0"}

    @pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "30"}], ids=["whole", "limited"])
    def test_stream(
        self, spark: SparkProcess, mixed: Topic, committed: dict[str, str], limit: dict[str, str], tmp_path: Path
    ) -> None:
        options = {**committed, **limit, "startingOffsets": "earliest"}
        spark.run(options, tmp_path / "checkpoint", {"path": str(tmp_path / "table")})
        assert spark.stored(tmp_path / "table") == mixed.sorted()


class TestStream:
    def test_available_now_with_limits_restarts_and_new_partitions(
        self, spark: SparkProcess, broker: Broker, tmp_path: Path
    ) -> None:
        topic = Topic(broker.bootstrap_servers, named("stream"))
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": topic.name,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "50",
            "includeHeaders": "true",
        }
        table = tmp_path / "table"

        def run() -> list[int]:
            return spark.run(options, tmp_path / "checkpoint", {"path": str(table)})

        topic.produce([f"first {number}" for number in range(190)])
        batches = run()
        assert sum(batches) == 190
        assert max(batches) <= 50
        assert spark.stored(table) == topic.sorted()
        topic.admin.create_partitions([NewPartitions(topic.name, PARTITIONS + 2)])[topic.name].result(30)
        topic.produce([f"second {number}" for number in range(100)], partitions=PARTITIONS + 2)
        assert sum(run()) == 100
        assert spark.stored(table) == topic.sorted()
        assert {record.partition for record in topic.records} == set(range(PARTITIONS + 2))
        assert run() == []

    def test_new_topics_are_discovered(self, spark: SparkProcess, broker: Broker, tmp_path: Path) -> None:
        name = named("growing")
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribePattern": f"{name}-.*",
            "startingOffsets": "earliest",
        }
        topics, table = [], tmp_path / "table"
        for number in range(3):
            topics.append(Topic(broker.bootstrap_servers, f"{name}-{number}"))
            topics[-1].produce([f"{number} {index}" for index in range(10)])
            spark.run(options, tmp_path / "checkpoint", {"path": str(table)})
            assert spark.stored(table) == [record for topic in topics for record in topic.sorted()]

    def test_deleted_records(self, spark: SparkProcess, broker: Broker, tmp_path: Path) -> None:
        topic = Topic(broker.bootstrap_servers, named("gone"), 1)
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": topic.name,
            "startingOffsets": "earliest",
        }
        table = tmp_path / "table"
        topic.produce([f"{number}" for number in range(10)], partitions=1)
        spark.run(options, tmp_path / "checkpoint", {"path": str(table)})
        topic.produce([f"{number}" for number in range(10, 30)], partitions=1)
        before = [TopicPartition(topic.name, 0, 20)]
        topic.admin.delete_records(before)[before[0]].result(30)
        with pytest.raises(SparkError, match="failOnDataLoss"):
            spark.run(options, tmp_path / "checkpoint", {"path": str(table)})
        spark.run({**options, "failOnDataLoss": "false"}, tmp_path / "checkpoint", {"path": str(table)})
        assert spark.stored(table) == topic.between({0: 0}, {0: 10}) + topic.between({0: 20}, {0: 30})
        assert spark.read(**options) == topic.between({0: 20}, {0: 30})


class TestSink:
    def test_batch(self, spark: SparkProcess, broker: Broker) -> None:
        topic = Topic(broker.bootstrap_servers, named("sink"))
        servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        rows = [
            (
                topic.name,
                number % PARTITIONS,
                f"\x00{number}",
                None if number == 7 else f"{number}\xff",
                [["a", "\xfe"]],
            )
            for number in range(100)
        ]
        spark.write(rows, **servers, includeHeaders="true", **{"kafka.compression.type": "zstd"})
        found = spark.read(**servers, subscribe=topic.name, includeHeaders="true")
        kept = [
            (*record[:2], record.key, record.value, [list(each) for each in record.headers or ()]) for record in found
        ]
        assert sorted(kept, key=repr) == sorted(rows, key=repr)
        assert sorted(topic.values(), key=repr) == sorted((row[3] for row in rows), key=repr)

    def test_stream(self, spark: SparkProcess, clicks: Topic, source: dict[str, str], tmp_path: Path) -> None:
        target = Topic(clicks.bootstrap_servers, named("copies"))
        sink = {"kafka.bootstrap.servers": clicks.bootstrap_servers, "topic": target.name}
        spark.run({**source, "startingOffsets": "earliest"}, tmp_path / "checkpoint", sink)
        assert sorted(map(repr, target.values())) == sorted(repr(record.value) for record in clicks.records)


class Writer(threading.Thread):
    """Produces until it is stopped."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(name=f"writer of {topic.name}", daemon=True)
        self._topic = topic
        self._stopping = threading.Event()

    def run(self) -> None:
        producer = self._topic.producer(**{"enable.idempotence": True})
        number = 0
        while not self._stopping.is_set():
            self._topic.send(producer, f"{number}", partition=number % PARTITIONS)
            producer.poll(0.01)
            number += 1
        producer.flush(WAIT_S)

    def stop(self) -> None:
        self._stopping.set()
        self.join(2 * WAIT_S)


def test_streams_continue_while_brokers_are_killed(spark: SparkProcess, tmp_path: Path) -> None:
    """Exactly once into files; at least once into a topic, because Spark's Kafka sink guarantees no more."""
    cluster = ThreeBrokers(tmp_path, offsets_topic_num_partitions="3", min_insync_replicas="2")
    try:
        servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        topic = Topic(cluster.bootstrap_servers, "killed", replication=3)
        copies = Topic(cluster.bootstrap_servers, "copies", replication=3)
        options = {**servers, "subscribe": topic.name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
        table = tmp_path / "table"
        writer = Writer(topic)
        writer.start()
        sinks = {"files": {"path": str(table)}, "topic": {**servers, "topic": copies.name}}
        queries = [spark.start(options, tmp_path / name, sink) for name, sink in sinks.items()]
        for node_id in (1, 2):
            before = len(topic.records)
            cluster.end(node_id, signal.SIGKILL)
            cluster.until(lambda before=before: len(topic.records) > before + DURING_A_KILL, "records come")
        writer.stop()
        for query in queries:
            spark.process(query)
            spark.stop(query)
        assert spark.stored(table) == topic.sorted()
        assert set(copies.values()) == {record.value for record in topic.records}
    finally:
        cluster.close()
