"""A broker is killed at random times during cleaning, retention, roll and swap, under load: each start is clean, and no
required record is lost.

OTTLA_CLEANER_KILLS=200 OTTLA_CLEANER_SEED=1 sets the number of kills, as `make cleaner-kills` does; then each kind of
moment must have occurred, as shown by the files that a kill left.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.broker import Broker

KILLS = int(os.environ.get("OTTLA_CLEANER_KILLS", "3"))
SEED = int(os.environ.get("OTTLA_CLEANER_SEED", "1"))
MANY = 100
"""Kills from which on every kind of moment is met."""
KEYS = 300
TOMBSTONES = 0.05
VALUE_BYTES = 300
SEGMENT_BYTES = 1 << 16
RETENTION_BYTES = 4 * SEGMENT_BYTES
PAUSE_S = 0.01
RECORDS_A_PAUSE = 20
MOMENT_S = 3.0
"""The longest wait for the moment of a kill."""
MOMENTS = (".cleaned", ".swap", ".deleted", "roll", "any")
COMPACTED, DELETED = "compacted", "deleted"
CONFIGS = {
    "log.cleaner.backoff.ms": 20,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.delete.retention.ms": 0,
    "log.initial.task.delay.ms": 0,
    "log.retention.check.interval.ms": 50,
    "log.segment.delete.delay.ms": 100,
    "log.flush.scheduler.interval.ms": 50,
}
TOPICS = {
    COMPACTED: {"cleanup.policy": "compact", "internal.segment.bytes": SEGMENT_BYTES},
    DELETED: {"cleanup.policy": "delete", "internal.segment.bytes": SEGMENT_BYTES, "retention.bytes": RETENTION_BYTES},
}


class Written(NamedTuple):
    key: bytes
    value: bytes | None


class Feeder(threading.Thread):
    """Writes to both topics, and stores the offset of each acknowledged record."""

    def __init__(self, servers: str, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.size": SEGMENT_BYTES // 8,
                "compression.type": "lz4",
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._rng = rng
        self._over = threading.Event()
        self.acknowledged: dict[str, dict[int, Written]] = {topic: {} for topic in TOPICS}
        self.sent: dict[str, set[Written]] = {topic: set() for topic in TOPICS}
        self.failures: list[str] = []

    def run(self) -> None:
        number = 0
        while not self._over.wait(PAUSE_S):
            for _ in range(RECORDS_A_PAUSE):
                number += 1
                key = b"%d" % self._rng.randrange(KEYS)
                value = b"%d " % number + self._rng.randbytes(VALUE_BYTES)
                self._send(COMPACTED, Written(key, None if self._rng.random() < TOMBSTONES else value))
                self._send(DELETED, Written(key, value))
            self._producer.poll(0)
        self._producer.flush(60)

    def _send(self, topic: str, record: Written) -> None:
        def acknowledgements(error: object, message: Message) -> None:
            if error is not None:
                self.failures.append(str(error))
            else:
                self.acknowledged[topic][message.offset()] = record

        self.sent[topic].add(record)
        try:
            self._producer.produce(topic, record.value, record.key, partition=0, on_delivery=acknowledgements)
        except BufferError:
            self._producer.poll(0.1)

    def acknowledged_to(self, topic: str, end: int) -> dict[int, Written]:
        """The acknowledged records below an offset that the log has reached, once all were acknowledged."""
        while True:
            known = dict(self.acknowledged[topic])
            if max(known, default=-1) >= end - 1:
                return {offset: record for offset, record in known.items() if offset < end}
            time.sleep(PAUSE_S)

    def end(self) -> None:
        self._over.set()
        self.join()


def read(broker: Broker, topic: str) -> tuple[range, dict[int, Written]]:
    """Start and end offset of the topic at the time of the read, and its records until then, in order.

    Retention may delete records during the read; then it continues at the new start.
    """
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    try:
        partition = TopicPartition(topic, 0, OFFSET_BEGINNING)
        end = consumer.get_watermark_offsets(partition, timeout=30)[1]  # it is written to all the while
        consumer.assign([partition])
        found: dict[int, Written] = {}
        while True:
            message = consumer.poll(30)
            assert message is not None, "a consumer waits without progress"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                break
            offset, key = message.offset(), message.key()
            assert offset is not None
            assert isinstance(key, bytes)
            assert offset > next(reversed(found), -1)
            found[offset] = Written(key, message.value())
            if offset >= end - 1:
                break
        return range(*consumer.get_watermark_offsets(partition, timeout=30)), found
    finally:
        consumer.close()


def check_compacted(
    before: dict[int, Written], sent: set[Written], found: dict[int, Written], after: dict[int, Written]
) -> None:
    """The latest record of each key exists, and each record was written at its offset.

    `found` ends at the log end at the start of the read, and `after` has all records written until it was over. A later
    record of a key may have replaced one that was to be read; and a tombstone may have been removed, and its key with
    it.
    """
    assert set(found.values()) <= sent
    assert all(before.get(offset, record) == record for offset, record in found.items())
    newest = {record.key: (offset, record) for offset, record in sorted(before.items())}
    latest = {record.key: (offset, record) for offset, record in found.items()}
    last = {record.key: (offset, record) for offset, record in sorted(after.items())}
    read_to = max(found)
    for key, (offset, _) in newest.items():
        last_offset, last_record = last[key]
        if last_offset <= read_to and last_record.value is not None:
            there, _ = latest.get(key, (-1, None))
            assert there >= offset, f"the latest of key {key!r}, at offset {offset}, is lost"


def check_deleted(before: dict[int, Written], there: range, earlier_start: int, found: dict[int, Written]) -> None:
    """From where the log begins nothing is missing, and it has as much as retention keeps."""
    assert there.start >= earlier_start
    assert [offset for offset in before if offset >= there.start and offset not in found] == []
    assert all(before.get(offset, record) == record for offset, record in found.items())
    read_on = [offset for offset in found if offset >= there.start]
    assert read_on == list(range(there.start, there.start + len(read_on)))
    if there.start > 0:
        assert len(there) * VALUE_BYTES >= RETENTION_BYTES // 2, "more went than retention lets go"


class Moment:
    """Waits until the files show that it is time to kill."""

    def __init__(self, data_dir: Path, kind: str, rng: random.Random) -> None:
        self._folders = [data_dir / f"{topic}-0" for topic in TOPICS]
        self._kind = kind
        self._rng = rng
        self._logs = self._names(".log")

    def _names(self, suffix: str) -> set[str]:
        return {name for folder in self._folders for name in os.listdir(folder) if name.endswith(suffix)}

    def wait(self) -> None:
        deadline = time.monotonic() + (self._rng.uniform(0, 1.0) if self._kind == "any" else MOMENT_S)
        while time.monotonic() < deadline:
            if self._kind == "roll" and self._names(".log") - self._logs:
                return
            if self._kind.startswith(".") and self._names(self._kind):
                return

    def left(self) -> list[str]:
        """The kinds of unfinished work that the kill has left."""
        return [suffix for suffix in (".cleaned", ".swap", ".deleted") if self._names(suffix)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path / "data", configs=CONFIGS) as running:
        yield running


@pytest.mark.promise("D11")
@pytest.mark.timeout(120 + 20 * KILLS)
def test_kills_at_any_moment_of_a_logs_life_lose_nothing(broker: Broker) -> None:
    rng = random.Random(SEED)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    topics = [
        NewTopic(topic, 1, 1, config={name: str(value) for name, value in config.items()})
        for topic, config in TOPICS.items()
    ]
    for created in admin.create_topics(topics).values():
        created.result(30)
    feeder = Feeder(broker.bootstrap_servers, random.Random(SEED))
    feeder.start()
    start = 0
    left: Counter[str] = Counter()

    def check() -> None:
        nonlocal start
        before = {topic: dict(feeder.acknowledged[topic]) for topic in TOPICS}
        there, found = read(broker, COMPACTED)
        after = before[COMPACTED] | feeder.acknowledged_to(COMPACTED, there.stop)
        check_compacted(before[COMPACTED], feeder.sent[COMPACTED], found, after)
        there, found = read(broker, DELETED)
        check_deleted(before[DELETED], there, start, found)
        start = there.start

    for number in range(KILLS):
        moment = Moment(broker.data_dir, MOMENTS[number % len(MOMENTS)], rng)
        moment.wait()
        broker.kill()
        left.update(moment.left() or ["nothing"])
        broker.start()
        check()
    feeder.end()
    assert not feeder.failures
    check()
    print(f"{KILLS} kills left {dict(left)}; {sum(map(len, feeder.acknowledged.values()))} records acknowledged")
    assert " ERROR " not in broker.logs()
    assert "can't be cleaned" not in broker.logs()
    if KILLS >= MANY:
        assert {".cleaned", ".swap", ".deleted"} <= set(left)
    assert start > 0
