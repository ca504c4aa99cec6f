"""Offset checkpoints of one data directory: their content, and writing them on the loop or in the pool.

Invariants:
- Content older than that of the file is not written: contents are numbered on the loop when they are created.
- The possible content of the file for a partition is known at any time, so that a new log inherits nothing from a
  deleted one with the same name: a start would drop the records of a log that ends before its start offset.

The schedule of the files is in `log_directory`; `cleaner-offset-checkpoint` is in `cleaner_checkpoint`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.disk import Disk
from ottla.storage.files.checkpoints import format_offsets, read_offsets
from ottla.storage.files.log_config import MAX_LONG
from ottla.storage.files.names import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT

OFFSET_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
NOT_NAMED = -1


class OffsetContent(NamedTuple):
    """Content of the file `name`, and its sequence number."""

    name: str
    offsets: dict[TopicPartition, int]
    number: int


class OffsetFiles:
    """Offset checkpoints of one data directory. Owned by the loop; `write` may run in the pool, too."""

    __slots__ = ("_contents", "_disk", "_foreign", "_latest", "_locks", "_number", "_path", "_written_numbers")

    def __init__(self, disk: Disk, path: str) -> None:
        """`path` is that of the data directory."""
        self._disk = disk
        self._path = path
        self._contents: dict[str, dict[TopicPartition, int]] = {}
        """By file; none for a file that is being written, failed or is damaged."""
        self._foreign: set[str] = set()
        """Files of an earlier process, possibly without a checksum."""
        self._latest: dict[str, dict[TopicPartition, int]] = {}
        """Newest content of each file, written or not."""
        self._number = 0
        self._written_numbers = dict.fromkeys(OFFSET_CHECKPOINTS, 0)
        self._locks = {name: threading.Lock() for name in OFFSET_CHECKPOINTS}

    def read(self, name: str) -> dict[TopicPartition, int]:
        """Read the offsets in a file, empty without it; at a start. Raises CheckpointCorruption, OSError."""
        offsets = read_offsets(self._disk, f"{self._path}/{name}")
        self._contents[name] = offsets
        self._foreign.add(name)
        return offsets

    def content(self, name: str, offsets: dict[TopicPartition, int]) -> OffsetContent:
        """Return `offsets` as the newest content of a file, to be written."""
        self._number += 1
        self._latest[name] = offsets
        return OffsetContent(name, offsets, self._number)

    def in_file(self, name: str) -> Mapping[TopicPartition, int] | None:
        """Return the content that this process wrote last, another object after each write; None if it is unknown."""
        return None if name in self._foreign else self._contents.get(name)

    def is_written(self, content: OffsetContent) -> bool:
        """Return whether this process last wrote these offsets."""
        return content.name not in self._foreign and self._contents.get(content.name) == content.offsets

    def written(self, name: str, partition: TopicPartition) -> int:
        """Return the offset of a partition in a file; NOT_NAMED if it has none or it is unknown."""
        return self._contents.get(name, {}).get(partition, NOT_NAMED)

    def highest(self, name: str, partition: TopicPartition) -> int:
        """Return the highest offset that a file may have for a partition, now or once all contents are written.

        NOT_NAMED if it has no entry.
        """
        known = self._contents.get(name)
        if known is None:
            return MAX_LONG
        return max(known.get(partition, NOT_NAMED), self._latest.get(name, known).get(partition, NOT_NAMED))

    def write(self, content: OffsetContent) -> bool:
        """Write a content durably; blocks. Returns False if the file has a newer one. Raises OSError."""
        name, offsets, number = content
        with self._locks[name]:
            if number <= self._written_numbers[name]:
                return False
            if not self.is_written(content):
                self._contents.pop(name, None)
                self._disk.write_atomic(f"{self._path}/{name}", format_offsets(offsets))
                self._contents[name] = offsets
                self._foreign.discard(name)
            self._written_numbers[name] = number
            return True
