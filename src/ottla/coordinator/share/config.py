"""Typed settings of the share coordinator; names and defaults are those of Apache Kafka 4.4."""

from __future__ import annotations

from typing import NamedTuple


class ShareCoordinatorConfig(NamedTuple):
    """`share.coordinator.*` settings; times in milliseconds, sizes in bytes."""

    updates_per_snapshot: int = 500
    """`share.coordinator.snapshot.update.records.per.snapshot`."""
    cold_snapshot_interval_ms: int = 300_000
    """`share.coordinator.cold.partition.snapshot.interval.ms`."""
    prune_interval_ms: int = 300_000
    """`share.coordinator.state.topic.prune.interval.ms`."""
    max_bytes: int = 256 * 1024 * 1024
    """`share.coordinator.max.bytes`: memory limit for the state of all share partitions of a broker (`memory`)."""
