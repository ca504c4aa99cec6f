"""Rows of Arrow batches to a topic, and epochs of a query exactly once, without Spark."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.client.admin.cluster import Cluster  # noqa: E402
from ottla.client.librdkafka.transactional_producer import ProducerFenced, TransactionalProducer  # noqa: E402
from ottla.common.errors import KafkaError, OperatorError  # noqa: E402
from ottla.pipeline.model.decode import HEADERS_TYPE  # noqa: E402
from ottla.pipeline.model.lru_pool import LruPool  # noqa: E402
from ottla.pipeline.sinks import epochs  # noqa: E402
from ottla.pipeline.sinks.epochs import EpochTask, write_epoch  # noqa: E402
from ottla.pipeline.sinks.topic import Fingerprint, RowWriter, TopicTarget  # noqa: E402
from ottla.testing import Broker  # noqa: E402

from .committed import read_committed  # noqa: E402

pytestmark = pytest.mark.pipeline


@pytest.fixture
def target(bootstrap: str, topic: str) -> TopicTarget:
    return TopicTarget(bootstrap, topic, {"linger.ms": "1"})


def values(start: int, end: int) -> Any:
    return pa.record_batch({"value": [b"%d" % number for number in range(start, end)]})


def written(target: TopicTarget, count: int = 0) -> list[int]:
    assert target.topic is not None
    return sorted(int(message.value()) for message in read_committed(target.bootstrap_servers, target.topic, count))


def write(target: TopicTarget, batch: Any) -> None:
    writer = RowWriter(target.producer(), target.topic)
    writer.write(batch)
    writer.finish()


def test_the_time_zero_is_refused_and_no_time_is_now(target: TopicTarget) -> None:
    kind = pa.timestamp("us", tz="UTC")
    with pytest.raises(KafkaError, match="row 1 of the task can't be sent: the timestamp 0"):
        write(target, pa.record_batch({"value": [b"1"], "timestamp": pa.array([0], kind)}))
    write(target, pa.record_batch({"value": [b"2"], "timestamp": pa.array([None], kind)}))
    (found,) = read_committed(target.bootstrap_servers, str(target.topic), 1)
    assert found.value() == b"2"
    assert found.timestamp()[1] > 1_700_000_000_000


def test_rows_that_fail_in_the_last_flush_are_counted(bootstrap: str) -> None:
    with Cluster(bootstrap) as cluster:
        cluster.topics.create("small-rows", partitions=1, replication_factor=1, configs={"max.message.bytes": "1000"})
    target = TopicTarget(bootstrap, "small-rows", {"queue.buffering.max.messages": "1500", "linger.ms": "1"})
    with pytest.raises(KafkaError) as refused:
        write(target, pa.record_batch({"value": [b"x" * 2000] * 20_000}))
    numbers = re.match(r"([0-9,]+) of ([0-9,]+) records were not delivered", refused.value.message)
    assert numbers is not None
    assert numbers[1] == numbers[2]


def test_columns_become_fields_of_records(target: TopicTarget) -> None:
    headers = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, []]
    batch = pa.record_batch(
        {
            "topic": [target.topic] * 3,
            "key": [None, "text", ""],
            "value": [b"v", None, b""],
            "partition": pa.array([2, 1, 1], pa.int32()),
            "headers": pa.array(headers, HEADERS_TYPE),
            "timestamp": pa.array([1_700_000_000_123_456] * 3, pa.timestamp("us", tz="UTC")),
            "other": [1, 2, 3],
        }
    )
    by_column = TopicTarget(target.bootstrap_servers)
    by_column.check(batch.schema)
    write(by_column, batch)
    found = read_committed(target.bootstrap_servers, str(target.topic), 3)
    assert [(each.partition(), each.key(), each.value()) for each in found] == [
        (1, b"text", None),
        (1, b"", b""),
        (2, None, b"v"),
    ]
    assert [each.headers() for each in found] == [None, None, [("a", b"1"), ("a", None)]]
    assert {each.timestamp()[1] for each in found} == {1_700_000_000_123}


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"key": [b"k"]}, "a topic needs a column `value`, but the rows only have: key"),
        ({"value": [1]}, "the column `value` must be binary or string, not int64; cast it"),
        ({"value": [b""], "partition": ["1"]}, "the column `partition` must be integer, not string; cast it"),
        (
            {"value": [b""], "headers": ["a=b"]},
            r"the column `headers` must be array<struct<key: string, value: binary>>",
        ),
    ],
)
def test_invalid_columns_are_refused(columns: dict[str, list[Any]], sentence: str) -> None:
    with pytest.raises(OperatorError, match=sentence):
        TopicTarget("127.0.0.1:1", "topic").check(pa.record_batch(columns).schema)


def test_a_row_needs_a_topic(target: TopicTarget) -> None:
    with pytest.raises(OperatorError, match="set the option `topic`, or add a column"):
        TopicTarget("127.0.0.1:1").check(values(0, 1).schema)
    batch = pa.record_batch({"topic": [target.topic, None], "value": [b"1", b"2"]})
    with pytest.raises(OperatorError, match="a row has no topic"):
        write(TopicTarget(target.bootstrap_servers), batch)


def test_undelivered_row_is_reported(target: TopicTarget) -> None:
    big = pa.record_batch({"value": [b"1", b"x" * 2_000_000]})
    with pytest.raises(
        KafkaError, match=r"^row 2 of the task can't be sent: .*[Mm]essage size too large; .* -X message.max.bytes="
    ):
        write(target, big)
    elsewhere = pa.record_batch({"value": [b"1"], "partition": [7]})
    with pytest.raises(KafkaError, match="nknown partition"):
        write(target, elsewhere)


def test_an_epoch_is_written_once(target: TopicTarget) -> None:
    first = EpochTask(f"query-{target.topic}", 0, 0)
    assert write_epoch(target, first, [values(0, 5), values(5, 5), values(5, 2_500)]) == 2_500
    assert write_epoch(target, first, [values(0, 2_000), values(2_000, 2_500)]) == 0
    assert write_epoch(target, EpochTask(first.query_id, 0, 1), [values(2_500, 2_600)]) == 100
    assert write_epoch(target, EpochTask(first.query_id, 1, 0), [values(2_600, 2_700)]) == 100
    assert write_epoch(target, EpochTask(first.query_id, 1, 1), []) == 0
    assert write_epoch(target, first, [values(7, 8)]) == 0  # a zombie
    assert written(target, 2_700) == list(range(2_700))


@pytest.mark.promise("P10")
def test_a_replay_with_other_rows_is_refused(target: TopicTarget) -> None:
    task = EpochTask(f"query-{target.topic}", 3, 0)
    write_epoch(target, task, [values(0, 10)])
    with pytest.raises(OperatorError, match=r"epoch 3 .* task 0 committed 10 rows, .* and has 11 rows, .*checkpoint"):
        write_epoch(target, task, [values(0, 11)])
    assert written(target, 10) == list(range(10))


@pytest.mark.promise("P10")
def test_surviving_attempt_is_fenced(target: TopicTarget) -> None:
    """The old attempt pauses before its last row; the new one writes the epoch; then the old one continues."""
    task = EpochTask(f"query-{target.topic}", 0, 0)

    def halted() -> Any:
        yield values(0, 50)
        assert write_epoch(target, task, [values(0, 100)]) == 100
        yield values(50, 100)

    with pytest.raises(ProducerFenced):
        write_epoch(target, task, halted())
    assert written(target, 100) == list(range(100))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids for which producers were created, in order."""
    ids: list[str] = []
    make = TopicTarget.transactional_producer

    def counted(target: TopicTarget, transactional_id: str) -> TransactionalProducer:
        ids.append(transactional_id)
        return make(target, transactional_id)

    monkeypatch.setattr(TopicTarget, "transactional_producer", counted)
    return ids


class Workers:
    """Several workers in one process: each has producers of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._kept: dict[str, Any] = {}

    def be(self, name: str) -> None:
        self._monkeypatch.setattr(epochs, "_KEPT", self._kept.setdefault(name, LruPool(4)))


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    """The test itself is a worker that had no task before."""
    found = Workers(monkeypatch)
    found.be("the first")
    return found


def test_worker_reuses_producer_of_task(target: TopicTarget, made: list[str]) -> None:
    """For one query, into one target with one set of properties."""
    query = f"query-{target.topic}"
    for epoch in range(4):
        rows = [values(epoch * 10, epoch * 10 + 5), values(epoch * 10 + 5, epoch * 10 + 10)]
        assert write_epoch(target, EpochTask(query, epoch, 0), rows) == 10
    assert len(made) == 1
    assert write_epoch(target, EpochTask(query, 9, 0), [values(40, 50)]) == 10  # it had no rows meanwhile
    assert write_epoch(replace(target, properties={"linger.ms": "2"}), EpochTask(query, 10, 0), [values(50, 60)]) == 10
    assert write_epoch(target, EpochTask(f"other-{query}", 0, 0), [values(60, 70)]) == 10
    assert len(made) == 3
    assert written(target, 70) == list(range(70))


def test_replay_after_pooled_producer_compares_fingerprint(target: TopicTarget, made: list[str]) -> None:
    query = f"query-{target.topic}"
    for epoch in range(2):
        write_epoch(target, EpochTask(query, epoch, 0), [values(epoch * 10, epoch * 10 + 10)])
    assert write_epoch(target, EpochTask(query, 1, 0), [values(10, 20)]) == 0
    with pytest.raises(OperatorError, match=r"epoch 1 .* task 0 committed 10 rows, .* and has 9 rows"):
        write_epoch(target, EpochTask(query, 1, 0), [values(10, 19)])
    assert write_epoch(target, EpochTask(query, 2, 0), [values(20, 30)]) == 10
    assert written(target, 30) == list(range(30))


def test_fenced_worker_initializes_id_again(target: TopicTarget, made: list[str], workers: Workers) -> None:
    query = f"query-{target.topic}"
    write_epoch(target, EpochTask(query, 0, 0), [values(0, 10)])
    workers.be("the second")
    write_epoch(target, EpochTask(query, 1, 0), [values(10, 20)])
    workers.be("the first")
    assert write_epoch(target, EpochTask(query, 1, 0), [values(10, 20)]) == 0  # an attempt that was late
    workers.be("the second")
    assert write_epoch(target, EpochTask(query, 2, 0), [values(20, 30)]) == 10
    assert len(made) == 4
    assert written(target, 30) == list(range(30))


def test_pooled_producer_is_fenced_by_later_attempt(
    target: TopicTarget, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later attempt starts after this producer has started its transaction."""
    query = f"query-{target.topic}"
    write_epoch(target, EpochTask(query, 0, 0), [values(0, 10)])
    send_offsets = TransactionalProducer.send_offsets

    def overtaken(producer: TransactionalProducer, *arguments: Any) -> None:
        send_offsets(producer, *arguments)
        monkeypatch.setattr(TransactionalProducer, "send_offsets", send_offsets)
        workers.be("the second")
        assert write_epoch(target, EpochTask(query, 1, 0), [values(10, 20)]) == 10
        workers.be("the first")

    monkeypatch.setattr(TransactionalProducer, "send_offsets", overtaken)
    with pytest.raises(ProducerFenced):
        write_epoch(target, EpochTask(query, 1, 0), [values(10, 20)])
    assert write_epoch(target, EpochTask(query, 1, 0), [values(10, 20)]) == 0
    assert written(target, 20) == list(range(20))


def test_many_rows_are_not_buffered(target: TopicTarget, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are sent as they arrive, by a producer that initialized its id before the first."""
    query = f"query-{target.topic}"
    write_epoch(target, EpochTask(query, 0, 0), [values(0, 10)])
    monkeypatch.setattr(epochs, "FEW_BYTES", values(0, 10).nbytes)
    given = (values(start, start + 10) for start in range(10, 100, 10))
    assert write_epoch(target, EpochTask(query, 1, 0), given) == 90
    assert len(made) == 2
    assert written(target, 100) == list(range(100))


def test_pooled_producer_after_broker_outage(ottla_broker_factory: Callable[..., Broker]) -> None:
    broker = ottla_broker_factory()
    with Cluster(broker.bootstrap_servers) as cluster:
        cluster.topics.create("rows", 1)
    target = TopicTarget(broker.bootstrap_servers, "rows", {"linger.ms": "1"})
    for epoch in range(3):
        assert write_epoch(target, EpochTask("query", epoch, 0), [values(epoch * 10, epoch * 10 + 10)]) == 10
        broker.kill()
        broker.start()
    assert written(target, 30) == list(range(30))


def test_fenced_writer_raises_producer_fenced(target: TopicTarget) -> None:
    """Also if the error occurs while it queues a row, and not in its commit."""
    transactional_id = f"fenced-{target.topic}"
    old = RowWriter(target.transactional_producer(transactional_id), target.topic)
    old.write(values(0, 50))
    target.transactional_producer(transactional_id)

    def write_on() -> None:
        while True:
            old.write(values(0, 1))

    with pytest.raises(ProducerFenced):
        write_on()


def test_a_task_that_fails_leaves_nothing(target: TopicTarget) -> None:
    task = EpochTask(f"query-{target.topic}", 0, 0)

    def failing() -> Any:
        yield values(0, 50)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_epoch(target, task, failing())
    assert write_epoch(target, task, [values(0, 50)]) == 50
    assert written(target, 50) == list(range(50))


def test_abort_unknown_to_coordinator(ottla_broker_factory: Callable[..., Broker]) -> None:
    """The broker dies with the request that would have begun the transaction. librdkafka reports a fatal error
    (INVALID_TXN_STATE, as with Apache Kafka); the failed task ignores it, and its next attempt continues."""
    broker = ottla_broker_factory()
    with Cluster(broker.bootstrap_servers) as cluster:
        cluster.topics.create("rows", 1)
    target = TopicTarget(broker.bootstrap_servers, "rows", {"linger.ms": "1"})
    producer = target.transactional_producer("task")
    producer.send("rows", b"0")
    producer.commit()
    os.kill(broker.pid, signal.SIGSTOP)
    producer.send("rows", b"1")
    producer.flush(1.0)  # the stopped broker does not read the request
    broker.kill()
    starter = threading.Timer(0.5, broker.start)
    starter.start()
    producer.end(60.0)
    starter.join()
    assert (producer.committed_count, producer.open_count) == (1, 1)
    following = target.transactional_producer("task")
    following.send("rows", b"2")
    following.commit()
    assert written(target, 2) == [0, 2]


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_string()])
def test_fingerprint_does_not_depend_on_batches(kind: Any) -> None:
    keys = pa.array([None, "ab", "", "c"] * 5).cast(kind)
    batch = pa.record_batch(
        {"key": keys, "value": pa.array([f"x{n}" if n % 3 else None for n in range(20)]).cast(kind)}
    )
    whole, parts, other = Fingerprint(), Fingerprint(), Fingerprint()
    whole.add(batch)
    for start in range(0, 20, 3):
        parts.add(batch.slice(start, 3))
    assert str(whole) == str(parts)
    other.add(pa.record_batch({"key": pa.array(["a", "b", "", "c"] * 5).cast(kind), "value": batch.column("value")}))
    assert str(other) != str(whole)
