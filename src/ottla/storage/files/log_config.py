"""Settings of one log, under Kafka's topic config names.

This is the storage layer's own view of a topic's configuration, so that it depends on no config table. The code that
resolves overrides and defaults passes the effective strings to `LogConfig.from_properties`.

Validation with messages for users is in `ottla.common`, before a value gets here; a value that doesn't parse raises
ValueError with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1


class LogConfig(NamedTuple):
    """Effective topic settings used by storage and replication; defaults are Apache Kafka 4.x's."""

    segment_bytes: int = 1024**3
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024**2
    index_interval_bytes: int = 4096
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    max_message_bytes: int = 1024 * 1024 + 12
    max_decompressed_message_bytes: int = MAX_INT - 8
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_after_max_ms: int = 3600 * 1000
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    delete_retention_ms: int = 24 * 3600 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG
    file_delete_delay_ms: int = 60 * 1000
    preallocate: bool = False
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    remote_storage_enable: bool = False
    ottla_search_index: str = "none"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LogConfig:
        """Build from Kafka's topic config names (`segment.bytes`); unknown names are ignored.

        Raises ValueError naming the setting when a value doesn't parse.
        """
        return cls().with_properties(properties)

    def with_properties(self, properties: Mapping[str, str]) -> LogConfig:
        """Return this configuration with some settings replaced; see `from_properties`."""
        changes: dict[str, object] = {}
        for name, default in self._field_defaults.items():
            key = name.replace("_", ".")
            text = properties.get(key)
            if text is None:
                continue
            try:
                changes[name] = _PARSERS[type(default)](text)
            except ValueError as error:
                raise ValueError(f"{key}={text!r}: {error}") from error
        return self._replace(**changes) if changes else self  # type: ignore[arg-type]

    @property
    def compacted(self) -> bool:
        """Return whether the log is compacted, so that every record needs a key."""
        return "compact" in self.cleanup_policy

    @property
    def indexes_keys(self) -> bool:
        """Return whether closed segments get key filters."""
        return self.ottla_search_index == "key"

    @property
    def max_segment_ms(self) -> int:
        """Maximum time that a segment is active: a compacted one only has to become inactive (KIP-354)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms

    @property
    def deleted_by_age_or_size(self) -> bool:
        return "delete" in self.cleanup_policy


def _parse_bool(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("neither true nor false")
    return lowered == "true"


def _parse_list(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


_PARSERS: dict[type, Callable[[str], object]] = {
    int: int,
    float: float,
    str: str.strip,
    bool: _parse_bool,
    frozenset: _parse_list,
}
