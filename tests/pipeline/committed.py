"""Records of a topic for read_committed consumers, and all records of its log, by the confluent-kafka client."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka

WAIT_S = 120.0


def read_committed(servers: str, topic: str, count: int = 0) -> list[Any]:
    """The messages of a topic, partition by partition; repeats the read until there are `count`, or the time is up.

    A marker may follow the response to a commit with a short delay.
    """
    deadline = time.monotonic() + WAIT_S
    while True:
        found = _read(servers, topic, deadline)
        if len(found) >= count or time.monotonic() > deadline:
            return found


def read_appended(servers: str, topic: str) -> list[Any]:
    """All messages of the log, those of aborted transactions too."""
    return _read(servers, topic, time.monotonic() + WAIT_S, "read_uncommitted")


def _read(servers: str, topic: str, deadline: float, isolation: str = "read_committed") -> list[Any]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "committed",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, WAIT_S).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in partitions])
    found: list[Any] = []
    ended: set[int] = set()
    while len(ended) < len(partitions):
        assert time.monotonic() < deadline, f"{topic} was not read to its end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            found.append(message)
        else:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))
