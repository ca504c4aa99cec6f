"""Offset checkpoints of one data directory: recovery points, log start offsets and high watermarks of its logs.

Invariants:
- A recovery point on disk is never higher than the durable end, and is rewritten before a truncated log grows again.
- If the recovery points on disk are marked (`NO_GAPS_ABOVE`), an offset missing above them between segments is a loss:
  rolls are at the log end, and cleaned segments are below. Apache Kafka writes that file without the mark.

The files are in `storage.files.offset_files`; `cleaner-offset-checkpoint` is in `storage.files.cleaner_checkpoint`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.disk import Disk
from ottla.storage.directory.directory_health import DirectoryHealth
from ottla.storage.directory.held_logs import HeldLogs
from ottla.storage.directory.incarnation_notes import IncarnationNotes
from ottla.storage.files import names
from ottla.storage.files.checkpoints import NO_GAPS_ABOVE, CheckpointCorruption, aborted_counts, aborted_entry
from ottla.storage.files.cleaner_checkpoint import CleanerCheckpoint
from ottla.storage.files.offset_files import NOT_NAMED, OFFSET_CHECKPOINTS, OffsetContent, OffsetFiles
from ottla.storage.log.log_segments import NO_HIGH_WATERMARK, OffsetChanges

logger = logging.getLogger(__name__)


class StoredOffsets(NamedTuple):
    """Checkpoints of the last run, by partition."""

    recovery_points: Mapping[TopicPartition, int]
    start_offsets: Mapping[TopicPartition, int]
    aborted: Mapping[TopicPartition, Mapping[int, int]]
    """Number of entries in each index of aborted transactions, by base offset."""


class WrittenState:
    """State of all logs that some files contain.

    It consists of lists of numbers and names. Comparing them takes a tenth of the time of comparing the contents of the
    files: a broker with many partitions does that every few seconds while anything changes.
    """

    __slots__ = ("_contents", "_files", "_names", "_state")

    def __init__(self, file_names: Sequence[str], files: OffsetFiles) -> None:
        self._names = file_names
        self._files = files
        self._state: object = None
        self._contents: list[object] = []

    @property
    def is_current(self) -> bool:
        """Whether the files were not written since the last state that they contained."""
        contents = [self._files.in_file(name) for name in self._names]
        same = all(one is other for one, other in zip(contents, self._contents, strict=False))
        return bool(self._contents) and same

    def has(self, state: object) -> bool:
        """Return whether the files were written with this state, and not since."""
        return self.is_current and state == self._state

    def note(self, state: object) -> None:
        """The files contain this state."""
        self._state = state
        self._contents = [self._files.in_file(name) for name in self._names]


class DirectoryCheckpoints:
    """Checkpoints of one directory. Owned by the loop; writes may run in the pool."""

    __slots__ = (
        "_files",
        "_has_new_logs",
        "_health",
        "_held",
        "_high_watermarks",
        "_notes",
        "_path",
        "_written_offsets",
        "_written_points",
        "changes",
        "cleaner",
    )

    def __init__(self, disk: Disk, path: str, held: HeldLogs, health: DirectoryHealth, notes: IncarnationNotes) -> None:
        """`path` is that of the data directory."""
        self._path = path
        self._held = held
        self._health = health
        self._notes = notes
        self._files = OffsetFiles(disk, path)
        self.cleaner = CleanerCheckpoint(disk, f"{path}/{names.CLEANER_OFFSET_CHECKPOINT}")
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._has_new_logs = False
        self.changes = OffsetChanges()
        """Of all logs of this directory."""
        self._written_offsets = WrittenState(
            (names.LOG_START_OFFSET_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT), self._files
        )
        self._written_points = WrittenState((names.RECOVERY_POINT_CHECKPOINT,), self._files)

    # -- start ---------------------------------------------------------------------------------------------------------

    def read(self) -> StoredOffsets:
        """Read all files; a damaged one counts as empty, and the last stop as unclean. Raises OSError."""
        recovery_points = self._read(names.RECOVERY_POINT_CHECKPOINT)
        self.cleaner.read()
        start_offsets = self._read(names.LOG_START_OFFSET_CHECKPOINT)
        self._high_watermarks = self._read(names.HIGH_WATERMARK_CHECKPOINT)
        return StoredOffsets(recovery_points, start_offsets, aborted_counts(recovery_points))

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return self._files.read(name)
        except CheckpointCorruption as error:
            logger.warning("%s; rebuilding it", error)
            self._notes.had_clean_shutdown = False
            self._notes.disown()
            return {}

    def loaded(self, before: StoredOffsets) -> None:
        """All logs are open: drop entries of others, and write recovery points that were lowered."""
        held = self._held.both()
        self.cleaner.keep_only(held.keys())
        if any(log.recovery_point < before.recovery_points.get(key, 0) for key, log in held.items()):
            try:
                self.write_recovery_points()  # the next start has no information about lost records
            except OSError as error:
                self._health.note_error(error, "writing checkpoints")

    def initial_high_watermark(self, partition: TopicPartition) -> int | None:
        """High watermark of `replication-offset-checkpoint` at the start, the initial one of the replica."""
        return self._high_watermarks.get(partition)

    def begin_high_watermark(self, partition: TopicPartition) -> int:
        """Return the same for a log that is opened at the start, with 0 for one without an entry."""
        return self._high_watermarks.setdefault(partition, 0)

    # -- changes of the logs -------------------------------------------------------------------------------------------

    def log_created(self) -> None:
        """The recovery points lack an entry."""
        self._has_new_logs = True

    def forget(self, partition: TopicPartition) -> None:
        """Drop a log that was removed; its entries on disk stay until the next write."""
        self._high_watermarks.pop(partition, None)
        self.cleaner.forget(partition)
        self.changes.pending = True

    def forget_all(self) -> None:
        """Drop all logs, without writing."""
        self._high_watermarks.clear()

    def forget_durably(self, key: TopicPartition) -> None:
        """Remove the checkpoint entries of a deleted log before a new one gets its name. Raises OSError.

        A start would drop the records of a log that ends before its start offset, and not check records below its
        recovery point.
        """
        if any(self._files.highest(file, key) != NOT_NAMED for file in OFFSET_CHECKPOINTS):
            for content in (self._recovery_points(), *self._offsets()):
                self._files.write(content)
        cleaned = self.cleaner.due()
        if cleaned is not None:
            self.cleaner.write(cleaned)

    def log_truncated(self, partition: TopicPartition, offset: int) -> None:
        """A log is truncated at `offset`: rewrite higher entries. Raises OSError."""
        self.cleaner.cut(partition, offset)
        self.write_recovery_points()
        for name, current in (
            (names.LOG_START_OFFSET_CHECKPOINT, self._start_offsets),
            (names.HIGH_WATERMARK_CHECKPOINT, self._current_high_watermarks),
        ):
            if self._files.highest(name, partition) > offset:
                offsets = current()
                offsets.pop(partition, None)
                self._files.write(self._files.content(name, offsets))

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, *, stopping: bool = False) -> None:
        """Write changed recovery points, log start offsets and high watermarks. Blocks on the disk.

        `stopping`: see `write_recovery_points`. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        try:
            self.write_recovery_points(stopping=stopping)
            self.write_files(self.offsets_due())
        except OSError as error:
            self._health.note_error(error, "writing checkpoints")
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"writing checkpoints in {self._path} failed: {error.strerror}"
            ) from error

    def offsets_due(self) -> list[OffsetContent]:
        """Return the changed files of log start offsets and high watermarks.

        `write_files` may write them off the loop, since a value that is a few seconds old is harmless; then `written`
        must follow.
        """
        if not self._health.is_served or (not self.changes.pending and self._written_offsets.is_current):
            return []
        logs = self._held.in_order()
        high_watermarks = [log.offsets.high_watermark for log in logs]
        starts = [log.offsets.log_start_offset for log in logs]
        state = (self._keys(), high_watermarks, starts, [log.segments.base_offsets for log in logs])
        if self._written_offsets.has(state):
            self.changes.pending = False
            return []
        due = [each for each in self._offsets() if not self._files.is_written(each)]
        if not due and NO_HIGH_WATERMARK not in high_watermarks:
            self._written_offsets.note(state)
            self.changes.pending = False
        return due

    def _keys(self) -> list[TopicPartition]:
        return [*self._held.logs, *self._held.futures]

    def _offsets(self) -> list[OffsetContent]:
        content = self._files.content
        return [
            content(names.LOG_START_OFFSET_CHECKPOINT, self._start_offsets()),
            content(names.HIGH_WATERMARK_CHECKPOINT, self._current_high_watermarks()),
        ]

    def _current_high_watermarks(self) -> dict[TopicPartition, int]:
        held = self._held.both()
        ends = {key: log.offsets.high_watermark for key, log in held.items()}
        for key in [key for key, end in ends.items() if end == NO_HIGH_WATERMARK]:
            ends[key] = held[key].log_end_offset
            if key in self._held.logs:  # its replica is not open yet
                ends[key] = min(ends[key], self._high_watermarks.get(key, ends[key]))
        return ends

    def _start_offsets(self) -> dict[TopicPartition, int]:
        return {
            key: log.log_start_offset
            for key, log in self._held.both().items()
            if log.log_start_offset and log.log_start_offset > log.segments[0].base_offset
        }

    def write_files(self, files: Sequence[OffsetContent]) -> None:
        """Write the files of `offsets_due`; blocks. Raises OSError."""
        for content in files:
            self._files.write(content)

    def written(self, _: object, error: BaseException | None) -> None:
        """Handle the outcome of `write_files` or `write_off_loop`, on the loop: failures are logged and retried
        later.
        """
        if isinstance(error, OSError):
            self._health.note_error(error, "writing checkpoints")

    def write_recovery_points(self, *, stopping: bool = False) -> None:
        """Write their checkpoint if it changed; blocks. Raises OSError.

        `stopping`: no more appends follow, and the number of entries in each index of aborted transactions is included.
        """
        due = self._recovery_points()
        if stopping:
            for key, log in self._held.both().items():
                due.offsets.update({aborted_entry(key, base): count for base, count in log.aborted.counts()})
        self._files.write(due)

    def recovery_points_due(self) -> OffsetContent | None:
        """Return the recovery points to write, or None without a change. `write_off_loop` may write them off the
        loop.
        """
        if not self._health.is_served:
            return None
        logs = self._held.in_order()
        state = (self._keys(), [log.offsets.recovery_point for log in logs], [log.offsets.gap_end for log in logs])
        if self._written_points.has(state):
            return None
        due = self._recovery_points()
        if not self._files.is_written(due):
            return due
        self._written_points.note(state)
        return None

    def points_of_new_logs_due(self) -> OffsetContent | None:
        """Return the same, or None if the file already has an entry for each log."""
        if not self._has_new_logs:
            return None
        self._has_new_logs = False
        return self.recovery_points_due()

    def write_off_loop(self, due: OffsetContent) -> bool:
        """Write the result of `recovery_points_due`, in the pool; blocks. Raises OSError.

        Returns False, and writes nothing, if newer points are on disk already, maybe those of a truncation: these
        points could exceed the log.
        """
        return self._files.write(due)

    def before_gaps(self, key: TopicPartition, end_offset: int) -> Callable[[], object] | None:
        """Return the work that must precede gaps between segments of the log that begin up to `end_offset`, after which
        no start takes them for a loss. It runs in the pool and raises OSError. None if nothing is needed.
        """
        log = self._held.logs.get(key)
        if log is None or self._files.written(names.RECOVERY_POINT_CHECKPOINT, key) >= end_offset:
            return None
        if log.recovery_point < end_offset:
            log.offsets.gap_end = max(log.offsets.gap_end, end_offset)
        due = self._recovery_points()
        return lambda: self.write_off_loop(due)

    def _recovery_points(self) -> OffsetContent:
        held = self._held.both().items()
        points = {key: log.recovery_point for key, log in held}
        if all(log.offsets.gap_end <= log.recovery_point for _, log in held):
            points[NO_GAPS_ABOVE] = 0
        return self._files.content(names.RECOVERY_POINT_CHECKPOINT, points)
