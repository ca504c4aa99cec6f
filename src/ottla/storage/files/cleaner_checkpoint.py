"""Cleaned offset of each log: Apache Kafka's `cleaner-offset-checkpoint`, one in each data directory.

An entry also permits missing offsets between the segments of its log, for every current `cleanup.policy`: a start
must not take such a gap for a lost tail. So a log gets a durable entry before its first cleaned segment is swapped in
(`due`, `write`), and has it as long as the log exists.

Invalid offsets are handled in `cleanable`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.disk import Disk
from ottla.storage.files.checkpoints import CheckpointCorruption, format_offsets, read_offsets

logger = logging.getLogger(__name__)


class CleanedOffsets(NamedTuple):
    """Content of the file, and its sequence number."""

    number: int
    offsets: dict[TopicPartition, int]


class CleanerCheckpoint:
    """Cleaner checkpoint of one directory. Owned by the loop; only `write` runs in the pool."""

    __slots__ = ("_disk", "_lock", "_number", "_offsets", "_path", "_written_number")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._offsets: dict[TopicPartition, int] = {}
        self._number = 0
        self._written_number = 0
        self._lock = threading.Lock()

    def read(self) -> None:
        """Load the file; a damaged one counts as empty, and all logs are cleaned from their start. Raises OSError."""
        try:
            self._offsets = read_offsets(self._disk, self._path)
        except CheckpointCorruption as error:
            logger.warning("%s; logs are cleaned from their start", error)

    def get(self, partition: TopicPartition) -> int | None:
        """Return the end of the last pass over the log; None if it was never cleaned."""
        return self._offsets.get(partition)

    def put(self, partition: TopicPartition, offset: int) -> None:
        """Record that the log is clean up to `offset`."""
        if self._offsets.get(partition) != offset:
            self._offsets[partition] = offset
            self._number += 1

    def cut(self, partition: TopicPartition, offset: int) -> None:
        """Record a truncation at `offset`: later records are dirty."""
        if self._offsets.get(partition, offset) > offset:
            self.put(partition, offset)

    def forget(self, partition: TopicPartition) -> None:
        """Remove the entry of a deleted log."""
        if self._offsets.pop(partition, None) is not None:
            self._number += 1

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Remove the entries of all other logs."""
        for partition in [partition for partition in self._offsets if partition not in partitions]:
            self.forget(partition)

    def due(self) -> CleanedOffsets | None:
        """Return the content to write, or None without a change."""
        return CleanedOffsets(self._number, dict(self._offsets)) if self._number != self._written_number else None

    def write(self, due: CleanedOffsets) -> None:
        """Write the content durably; blocks. Content older than the file is ignored. Raises OSError."""
        with self._lock:
            if due.number > self._written_number:
                self._disk.write_atomic(self._path, format_offsets(due.offsets))
                self._written_number = due.number


class CleanerCheckpoints:
    """Cleaner checkpoints of all directories of a node, as one."""

    __slots__ = ("_each", "_of")

    def __init__(self, each: Sequence[CleanerCheckpoint], of: Callable[[TopicPartition], CleanerCheckpoint]) -> None:
        """`of(partition)` returns that of the directory with the partition's log."""
        self._each = tuple(each)
        self._of = of

    def get(self, partition: TopicPartition) -> int | None:
        """See `CleanerCheckpoint`."""
        return self._of(partition).get(partition)

    def put(self, partition: TopicPartition, offset: int) -> None:
        """See `CleanerCheckpoint`."""
        self._of(partition).put(partition, offset)

    def due(self) -> list[tuple[CleanerCheckpoint, CleanedOffsets]] | None:
        """Return the contents to write, or None without a change."""
        due = [(each, content) for each in self._each if (content := each.due()) is not None]
        return due or None

    def write(self, due: Sequence[tuple[CleanerCheckpoint, CleanedOffsets]]) -> None:
        """Write the contents durably; blocks. Raises OSError."""
        for each, content in due:
            each.write(content)
