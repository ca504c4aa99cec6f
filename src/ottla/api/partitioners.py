"""Partitioners: Kafka's hash of the key, random, sticky, or a function.

The hash is that of Apache Kafka (`ottla.common.kafka.key_hash`), so all clients choose the same partition for a key.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

Partitioner = Callable[[bytes | None, int], int]
"""A function of the serialized key and the number of partitions of the topic, which returns a partition index."""

STICKY_S = 0.1
"""Time of `sticky` with one partition: longer than a batch takes to fill at any rate that needs batches."""


class Sticky:
    """One partition for all records of `hold_s`, then another: larger batches than with a random choice (KIP-480)."""

    def __init__(
        self,
        hold_s: float = STICKY_S,
        choose: Callable[[int], int] = random.randrange,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hold_s = hold_s
        self._choose = choose
        self._now = now
        self._until = float("-inf")
        self._lot = 0

    def __call__(self, key: bytes | None, partition_count: int) -> int:
        now = self._now()
        if now >= self._until:
            self._until = now + self._hold_s
            self._lot = self._choose(1 << 31)
        return self._lot % partition_count


BY_NAME: Mapping[str, Mapping[str, Any]] = {
    "hash": {"partitioner": "murmur2_random"},
    "random": {"partitioner": "random", "sticky.partitioning.linger.ms": 0},
}
"""librdkafka settings of built-in partitioners by name. `hash` is Kafka's default: records without a key stay with one
partition for a while."""
