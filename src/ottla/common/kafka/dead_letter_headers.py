"""Headers of dead letters of share groups (KIP-1191)."""

from __future__ import annotations

PREFIX = "__dlq.errors."
"""Begins the names of the headers that describe the failed record; `timestamp` is Ottla's own."""
TOPIC = PREFIX + "topic"
PARTITION = PREFIX + "partition"
OFFSET = PREFIX + "offset"
GROUP = PREFIX + "group"
DELIVERY_COUNT = PREFIX + "delivery.count"
MESSAGE = PREFIX + "message"
TIMESTAMP = PREFIX + "timestamp"
