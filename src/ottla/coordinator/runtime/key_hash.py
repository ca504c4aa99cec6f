"""Partition of an internal topic that coordinates a key: Java's `String.hashCode` modulo the number of partitions.

Keys come from clients, and one request may contain 100 MB of keys, so hashing must not take an interpreter step per
character. The UTF-16 units of a chunk form one Python integer. Its 64-bit lanes are hashed all at once, each with its
four units. Then the upper half of the lanes is weighted and added to the lower half, until one lane is left. After each
step a lane is below 2^32, and so is a weight: lower + upper * weight stays below 2^64, and never carries into the next
lane.
"""

from __future__ import annotations

_LANE_BYTES = 8
_LANE_UNITS = 4
_CHUNK_LANES = 1024
_CHUNK_BYTES = _CHUNK_LANES * _LANE_BYTES

_HASH_MASK = (1 << 32) - 1


def _weight(units: int) -> int:
    """Return the factor for the hash of a string that is followed by this many units."""
    return pow(31, units, 1 << 32)


def _lower_half_of_lanes(lanes: int) -> int:
    return int.from_bytes(b"\0\0\0\0\xff\xff\xff\xff" * lanes, "big")


_EVERY_SECOND_UNIT = int.from_bytes(b"\0\0\xff\xff" * (2 * _CHUNK_LANES), "big")
_EVERY_LANE = _lower_half_of_lanes(_CHUNK_LANES)
_CHUNK_WEIGHT = _weight(_LANE_UNITS * _CHUNK_LANES)
_FOLDS = tuple(
    (8 * _LANE_BYTES * lanes, _weight(_LANE_UNITS * lanes), _lower_half_of_lanes(lanes))
    for lanes in (1 << power for power in range(_CHUNK_LANES.bit_length() - 1))
)
"""(bits, weight, mask) of the lower half of twice 1, 2, 4 ... lanes; the last one is half a chunk."""


def partition_for(key: str, partition_count: int) -> int:
    """`abs(key.hashCode()) % partition_count` of Java, where the abs of the smallest integer counts as 0."""
    hashed = string_hash(key)
    if hashed >= 1 << 31:
        hashed = 0 if hashed == 1 << 31 else (1 << 32) - hashed
    return hashed % partition_count


def string_hash(string: str) -> int:
    """`String.hashCode` of Java as an unsigned integer of 32 bits: the sum of unit[i] * 31^(n - 1 - i) modulo 2^32."""
    encoded = string.encode("utf-16-be", "surrogatepass")
    first = len(encoded) % _CHUNK_BYTES
    hashed = _chunk_hash(encoded[:first])
    for start in range(first, len(encoded), _CHUNK_BYTES):
        hashed = hashed * _CHUNK_WEIGHT + _chunk_hash(encoded[start : start + _CHUNK_BYTES]) & _HASH_MASK
    return hashed


def _chunk_hash(units: bytes) -> int:
    """Return the hash of big-endian UTF-16 units, up to a chunk; zero units that fill the uppermost lane have no
    effect."""
    every = int.from_bytes(units, "big")
    pairs = (every & _EVERY_SECOND_UNIT) + (every >> 16 & _EVERY_SECOND_UNIT) * 31
    hashed = (pairs & _EVERY_LANE) + (pairs >> 32 & _EVERY_LANE) * 31**2 & _EVERY_LANE
    folds = (-(-len(units) // _LANE_BYTES) - 1).bit_length() if units else 0
    for bits, weight, mask in reversed(_FOLDS[:folds]):
        hashed = (hashed >> bits) * weight + (hashed & mask) & mask
    return hashed
