"""Fills topics for measurements, by librdkafka and as fast as the broker accepts the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import Producer


class Sent(NamedTuple):
    """A record and its destination."""

    partition: int
    value: bytes
    key: bytes | None = None


def half_random(number: int, size_bytes: int, pool: bytes, start: int) -> bytes:
    """Returns a value, half of it random bytes of `pool` from `start` on: the padding compresses away."""
    half = size_bytes // 2
    return (b"%020d " % number).ljust(size_bytes - half, b"x") + pool[start : start + half]


def send_all(properties: Mapping[str, object], topic: str, records: Iterable[Sent], limit_s: float) -> None:
    """Send all records. Raises RuntimeError if some are not acknowledged within `limit_s` after the last one."""
    producer = Producer(dict(properties))
    for partition, value, key in records:
        while True:
            try:
                producer.produce(topic, value, key, partition=partition)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    if producer.flush(limit_s):
        raise RuntimeError("the broker did not take all records")
