"""Truncation of a log's end, when a follower's log has diverged from the leader's.

Invariants:
- A truncation is durable when it returns, and no checkpoint ever exceeds the log: recovery points and leader epochs are
  rewritten first, so that a start after a crash in between scans the remaining log.
- After a disk error in the middle of a truncation the log accepts no more appends.
- Responses that still carry dropped bytes fail (`SegmentRegion`).

The offset is determined in `replica`.
"""

from __future__ import annotations

from ottla.common.errors import KafkaError
from ottla.common.platform.clock import Clock
from ottla.storage.files.descriptors import Folder
from ottla.storage.files.epochs import LeaderEpochCache
from ottla.storage.log.aborted_transactions import rebuild_aborted
from ottla.storage.log.deletion import delete_segments
from ottla.storage.log.flush import LogFlush
from ottla.storage.log.log_segments import LogOffsets, LogSegments
from ottla.storage.log.producer_files import reload_producers, remove_producers
from ottla.storage.log.producer_state import ProducerState
from ottla.storage.segment.health import LogHealth
from ottla.storage.segment.index import IndexCorruption
from ottla.storage.segment.segment import Segment


class Truncation:
    """One truncation of a log, created when it is due."""

    __slots__ = ("_clock", "_epochs", "_flush", "_folder", "_health", "_offsets", "_producers", "_segments")

    def __init__(
        self,
        segments: LogSegments,
        offsets: LogOffsets,
        epochs: LeaderEpochCache,
        producers: ProducerState,
        folder: Folder,
        flush: LogFlush,
        health: LogHealth,
        clock: Clock,
    ) -> None:
        self._segments = segments
        self._offsets = offsets
        self._epochs = epochs
        self._producers = producers
        self._folder = folder
        self._flush = flush
        self._health = health
        self._clock = clock

    def cut_to(self, offset: int, producer_expiration_ms: int) -> None:
        """Drop everything from `offset` on, which is in a segment. Raises KafkaError KAFKA_STORAGE_ERROR.

        A batch that contains `offset` is dropped as a whole, and the log then ends behind the one before it: offsets
        between the two were compacted away, or one of them has a wrong offset and a further truncation follows. A full
        disk refuses before any change.
        """
        segment, *later = self._segments.holding(offset)
        try:
            outline = segment.search.find_offset(offset)
            if outline is not None:
                offset = max(segment.search.end_before(outline[0], offset), min(offset, self._offsets.log_start_offset))
            self._announce_end(offset, [entry for entry in self._epochs.entries() if entry[1] < offset])
        except OSError as error:
            raise self._health.storage_error(error, "a truncation") from error
        try:
            if later:
                # First the later segments, durably: a power failure in between must not leave a gap before them.
                delete_segments(
                    later,
                    0,
                    segments=self._segments,
                    producers=self._producers,
                    folder=self._folder,
                    flush=self._flush,
                    events=self._health.events,
                )
                self._folder.disk.fsync_dir(self._folder.path)
            segment.truncate_to_position(segment.data.size_bytes if outline is None else outline[0], offset)
            self._truncate_aborted(segment, offset)
            self._segments.recent.clear()
            self._offsets.cut(offset)
            self._end_moved_back(offset)
            reload_producers(
                self._producers,
                self._folder,
                self._segments.in_order,
                self._offsets,
                self._clock.time_ms(),
                producer_expiration_ms,
            )
        except OSError as error:
            raise self._half_truncated(error) from error

    def _truncate_aborted(self, segment: Segment, offset: int) -> None:
        index = segment.aborted.index
        if index is None:
            return
        try:
            index.truncate_to_offset(offset)
        except (IndexCorruption, FileNotFoundError):
            snapshots = [number for number in self._producers.snapshot_offsets if number <= offset]
            rebuild_aborted(self._folder, self._segments.in_order, (segment,), snapshots)

    def restart_at(self, offset: int, index_interval_bytes: int) -> None:
        """Drop everything; the empty log starts at `offset`. Raises as the method above."""
        try:
            self._announce_end(offset, [])
        except OSError as error:
            raise self._health.storage_error(error, "a truncation") from error
        try:
            old = self._segments.in_order
            # First the names: the new segment may have the name of an old one.
            paths = [path for segment in old for path in segment.mark_deleted()]
            self._folder.disk.fsync_dir(self._folder.path)
            new = Segment.create(self._folder, offset, self._clock.time_ms(), index_interval_bytes)
            self._segments.replace(old, (new,))
            for segment in old:
                segment.close()
            self._epochs.clear()
            self._offsets.restart_at(offset)
            self._end_moved_back(offset)
            remove_producers(self._producers, self._folder)
            self._folder.disk.fsync_dir(self._folder.path)
            self._producers.clear(offset)
            self._health.events.unlink_later(paths, 0)
        except OSError as error:
            raise self._half_truncated(error) from error

    def _announce_end(self, offset: int, epochs: list[tuple[int, int]]) -> None:
        """Lower the checkpoints first: none may exceed the future log end. Raises OSError with nothing changed.

        After a crash in between, a start scans the log above the recovery point, and finds the epochs there.
        """
        self._offsets.recovery_point = min(self._offsets.recovery_point, offset)
        self._health.events.log_truncated(self._health.partition, offset)
        self._flush.write_epochs(epochs)

    def _end_moved_back(self, offset: int) -> None:
        self._flush.log_was_cut(offset)
        self._epochs.truncate_from_end(offset)

    def _half_truncated(self, error: OSError) -> KafkaError:
        self._health.fail()
        return self._health.storage_error(error, "a truncation")
