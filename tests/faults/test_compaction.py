"""A broker that cleans its compacted topics, also those of groups, while it is written to, killed and started again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.broker import Broker

KEYS = 200
ROUNDS = 5
CONFIGS = {
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.max.compaction.lag.ms": 300,
    "offsets.topic.num.partitions": 1,
}


@pytest.fixture
def broker(tmp_path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path / "data", configs=CONFIGS) as running:
        yield running


def until(condition, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def produce(broker: Broker, round_number: int) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "compression.type": "lz4"}
    )
    for number in range(KEYS):
        producer.produce("t", key=b"%d" % number, value=b"%d of %d" % (number, round_number))
    assert producer.flush(30) == 0


def read(broker: Broker) -> list[tuple[int, bytes, bytes]]:
    """Everything, as (offset, key, value)."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            consumer.close()
            return found
        found.append((message.offset(), message.key(), message.value()))


def commit(broker: Broker, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "committer"})
    consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    consumer.close()


def committed(broker: Broker) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "committer"})
    [found] = consumer.committed([TopicPartition("t", 0)], 30)
    consumer.close()
    return found.offset


def stored_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def test_only_the_latest_stays_over_a_kill_too(broker, tmp_path):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("t", 1, 1, config={"cleanup.policy": "compact"})])["t"].result(30)
    for round_number in range(ROUNDS):
        produce(broker, round_number)
        commit(broker, round_number)
    want = [
        ((ROUNDS - 1) * KEYS + number, b"%d" % number, b"%d of %d" % (number, ROUNDS - 1)) for number in range(KEYS)
    ]
    until(lambda: len(read(broker)) == KEYS)
    assert read(broker) == want
    checkpoint = tmp_path / "data" / "cleaner-offset-checkpoint"
    until(lambda: f"t 0 {ROUNDS * KEYS}\n" in checkpoint.read_text())
    offsets = tmp_path / "data" / "__consumer_offsets-0"
    until(lambda: "__consumer_offsets 0" in checkpoint.read_text() and len(list(offsets.glob("*.log"))) >= 2)
    broker.kill()
    broker.start()
    assert read(broker) == want
    assert committed(broker) == ROUNDS - 1
    produce(broker, ROUNDS)
    until(lambda: len(read(broker)) == KEYS)
    assert [offset for offset, _, _ in read(broker)] == list(range(ROUNDS * KEYS, (ROUNDS + 1) * KEYS))
