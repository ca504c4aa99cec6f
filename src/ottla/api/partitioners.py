"""Who chooses the partition of a record: Kafka's hash of its key, chance, one partition for a while, or a function.

`murmur2` is Apache Kafka's own (`Utils.murmur2`, with the sign bit off), so that all clients agree where a key lives.
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

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def murmur2(key: bytes) -> int:
    """The 32 bits of Kafka's hash, without a sign."""
    length = len(key)
    hashed = (0x9747B28C ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(key[position : position + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ word
    if length > whole:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def hash_partition(key: bytes, partition_count: int) -> int:
    """The partition that Apache Kafka's producer puts a key into."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


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
