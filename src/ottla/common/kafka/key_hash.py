"""Partition of a key: Apache Kafka's hash (`Utils.murmur2`) without the sign bit, so that all clients agree."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def murmur2(key: bytes) -> int:
    """Return the unsigned 32 bits of Kafka's hash."""
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
    """Return the partition that Apache Kafka's producer selects for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
