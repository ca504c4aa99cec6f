"""Logs and copies of one data directory, by partition."""

from __future__ import annotations

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.storage.files.log_config import LogConfig
from ottla.storage.log.log import Log


class HeldLogs:
    """Tables of one directory. Only `log_directory` and `future_logs` change them."""

    __slots__ = ("_compacted", "_with_key_filters", "futures", "logs")

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        """In order of opening."""
        self.futures: dict[TopicPartition, Log] = {}
        """Copies that move here from other directories of the node (`future_logs`); `logs` has none of their
        partitions.
        """
        self._compacted: dict[TopicPartition, None] = {}
        """Logs and copies with the policy `compact`: a step of the cleaner must not scan all logs for the few."""
        self._with_key_filters: dict[TopicPartition, None] = {}
        """The same with `ottla.search.index`."""

    def use_config(self, partition: TopicPartition, config: LogConfig) -> None:
        """Apply the settings of a log."""
        if config.compacted:
            self._compacted[partition] = None
        else:
            self._compacted.pop(partition, None)
        if config.indexes_keys:
            self._with_key_filters[partition] = None
        else:
            self._with_key_filters.pop(partition, None)

    def forget(self, partition: TopicPartition) -> None:
        """Drop the settings of a log that was removed."""
        self._compacted.pop(partition, None)
        self._with_key_filters.pop(partition, None)

    def compacted(self) -> list[Log]:
        """Return the compacted logs, without copies."""
        return [log for key in self._compacted if (log := self.logs.get(key)) is not None]

    def with_key_filters(self) -> list[Log]:
        """Return the logs whose segments get key filters, without copies."""
        return [log for key in self._with_key_filters if (log := self.logs.get(key)) is not None]

    def both(self) -> dict[TopicPartition, Log]:
        """Return all partitions with files here."""
        return self.futures | self.logs

    def get(self, key: TopicPartition) -> Log | None:
        """Return the log or the copy of a partition, or None."""
        return self.logs.get(key) or self.futures.get(key)

    def in_order(self) -> list[Log]:
        """Return all logs, then all copies."""
        return [*self.logs.values(), *self.futures.values()]

    def clear(self) -> None:
        """Remove all from use."""
        self.logs.clear()
        self.futures.clear()
        self._compacted.clear()
        self._with_key_filters.clear()
