"""Logs and copies of one data directory, by partition."""

from __future__ import annotations

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.storage.log.log import Log


class HeldLogs:
    """Tables of one directory. Only `log_directory` and `future_logs` change them."""

    __slots__ = ("futures", "logs")

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        """In order of opening."""
        self.futures: dict[TopicPartition, Log] = {}
        """Copies that move here from other directories of the node (`future_logs`); `logs` has none of their
        partitions.
        """

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
