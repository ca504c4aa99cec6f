"""Who chooses the partition of a record: Kafka's hash of its key, chance, one partition for a while, or a function.

The hash is Apache Kafka's own (`ottla.common.kafka.key_hash`), so that all clients agree where a key lives.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

Partitioner = Callable[[bytes | None, int], int]
"""From a key as it is sent, and the number of partitions of the topic, to the index of one of them."""

STICKY_S = 0.1
"""How long `sticky` stays: longer than a batch takes to fill at any rate that needs batches."""


class Sticky:
    """One partition for all records of `hold_s`, then another: larger batches than chance gives (KIP-480)."""

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
"""What librdkafka does itself, by the names that a producer takes. `hash` is Kafka's default: records without a key
stay with one partition for a while."""
