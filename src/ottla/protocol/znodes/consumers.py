"""Znodes of Kafka's first consumers, which coordinate through ZooKeeper: members, partition owners, offsets.

Registrations and owners are ephemeral. As in Kafka 0.9, a thread is named by its consumer and its number, and owners
and offsets are plain text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.protocol.znodes.fields import Fields, decimal, encode

STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"
MAX_STREAMS = 10_000
"""Maximum threads of one consumer and topic. Kafka has no limit, but a large registration creates work for all
members."""


class ConsumerRegistration(NamedTuple):
    """A consumer's topics with thread counts. With a pattern other than STATIC the only key is an expression."""

    subscription: Mapping[str, int]
    pattern: str
    timestamp_ms: int


def encode_consumer(consumer: ConsumerRegistration) -> bytes:
    """Encode version 1."""
    return encode(
        {
            "version": 1,
            "subscription": dict(consumer.subscription),
            "pattern": consumer.pattern,
            "timestamp": str(consumer.timestamp_ms),
        }
    )


def decode_consumer(path: str, data: bytes) -> ConsumerRegistration:
    """Inverse of `encode_consumer`; raises ProtocolError, also for a pattern with more than one expression."""
    fields = Fields.parsed(path, data, range(1, 2))
    pattern = fields.text("pattern")
    named = fields.inner("subscription")
    subscription = {name: named.number(name, 1, MAX_STREAMS) for name in named.names()}
    if pattern not in (STATIC, WHITE_LIST, BLACK_LIST):
        raise fields.wrong("pattern")
    if pattern != STATIC and len(subscription) != 1:
        raise fields.wrong("subscription")
    return ConsumerRegistration(subscription, pattern, fields.number_in_text("timestamp"))


def encode_owner(thread: str) -> bytes:
    """Encode the thread that reads a partition."""
    return thread.encode()


def encode_offset(offset: int) -> bytes:
    """Encode the offset of the next record that a group reads."""
    return str(offset).encode()


def decode_offset(path: str, data: bytes) -> int:
    """Inverse of `encode_offset`; raises ProtocolError."""
    return decimal(path, data)
