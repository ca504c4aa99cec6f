"""One reading of a segment with its indexes, in pieces that run in the pool; the loop evaluates the findings.

The active segment is read up to its size at the creation of the reading, without the two indexes that grow with it.

Files are opened for the reading alone, by their names: a concurrent rename, removal or truncation is not blocked, and
`counts` returns on the loop whether the reading is still valid.

The rule is in `segment_scrub`, the order of segments in `log_scrubber`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.disk import File
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.damage import Damage
from ottla.storage.files.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from ottla.storage.log.log import Log
from ottla.storage.log.producer_state import SnapshotCorruption, decode_snapshot, open_transactions
from ottla.storage.repair.segment_scrub import AbortedCheck, IndexCheck, SegmentFacts, SegmentScrub
from ottla.storage.segment.index import OFFSET_ENTRY, TIME_ENTRY, offset_entries, time_entries
from ottla.storage.segment.transaction_index import ENTRY, names_abort
from ottla.storage.segment.transactions import CompletedTransaction

_BLOCK_ENTRIES = 4096


class SegmentReading:
    """Reading of one segment: `read` runs in the pool, and nothing else of it meanwhile; the rest runs on the loop."""

    __slots__ = (
        "_aborted",
        "_aborted_are_written",
        "_aborted_bytes",
        "_cut_count",
        "_disk",
        "_facts",
        "_files",
        "_has_aborted",
        "_path",
        "_scrub",
        "_seen_before",
        "_start_offset",
        "_was_cleaned",
        "_with_indexes",
        "aborted_problem",
        "index_problem",
        "is_active",
        "log",
        "segment",
    )

    def __init__(
        self,
        log: Log,
        number: int,
        *,
        was_cleaned: bool,
        seen_before: Mapping[int, int] | None = None,
    ) -> None:
        """Create the reading of segment `number` of `log`.

        `was_cleaned`: batches may be missing, since the log was compacted. `seen_before` are the transactions that the
        reading of the segment before left open (`seen_behind`).
        """
        self.log = log
        segments = log.segments
        segment = self.segment = segments[number]
        is_active = self.is_active = number + 1 == len(segments)
        end_offset = log.log_end_offset if is_active else segments[number + 1].base_offset
        self._disk = log.folder.disk
        self._path = segment.data.path.removesuffix(LOG_SUFFIX)
        self._facts = SegmentFacts(segment.base_offset, end_offset, segment.data.size_bytes, log.epochs.entries())
        self._cut_count = segment.data.truncation_count
        self._with_indexes = not is_active and segment.indexes.is_written
        self._aborted_are_written = segment.aborted.is_written
        index = segment.aborted.index
        self._has_aborted = index is not None
        self._aborted_bytes = index.entry_count * ENTRY.size if is_active and index is not None else None
        """Part of that index that belongs to the reading; None for all of it."""
        self._was_cleaned = was_cleaned
        self._seen_before = seen_before
        self._start_offset = log.log_start_offset
        self._aborted: AbortedCheck | None = None
        self.aborted_problem = ""
        """First problem of the index of aborted transactions, or of its absence."""
        self._files: list[File] = []
        self._scrub: SegmentScrub | None = None
        self.index_problem = ""
        """First problem of an index; one of the segment itself takes precedence."""

    @property
    def partition(self) -> TopicPartition:
        return self.log.topic, self.log.partition

    @property
    def is_done(self) -> bool:
        """Whether it was read to its end, or as far as possible."""
        return self._scrub is not None and self._scrub.is_done

    @property
    def damages(self) -> list[Damage]:
        """Damage found in the segment, by offset; valid once the reading is done."""
        return [] if self._scrub is None else self._scrub.damages(self.partition)

    @property
    def seen_behind(self) -> Mapping[int, int]:
        """Producer id -> first offset of transactions that are open behind the segment and have records in it, or were
        open at its start; valid once the reading is done. Empty if it is damaged.
        """
        aborted = self._aborted
        return {} if aborted is None or self.damages else aborted.seen

    def counts(self, logs: LogManager) -> bool:
        """Return whether the segment is unchanged since it was read, and remains part of its log."""
        log, segment = self.log, self.segment
        return (
            logs.get_log(*self.partition) is log
            and not log.failed
            and log.cleaning is None
            and segment in (log.segments.in_order if self.is_active else log.segments.in_order[:-1])
            and segment.data.truncation_count == self._cut_count
        )

    def read(self, max_bytes: int) -> int:
        """Read about `max_bytes` more; returns how many were read. Blocks. Raises OSError."""
        scrub = self._scrub
        if scrub is None:
            base_offset = self._facts.base_offset
            offsets = offset_entries(self._blocks(INDEX_SUFFIX, OFFSET_ENTRY.size), base_offset)
            times = time_entries(self._blocks(TIME_INDEX_SUFFIX, TIME_ENTRY.size), base_offset)
            check = IndexCheck(offsets, times, self._note)
            file = self._open(LOG_SUFFIX)
            if self._aborted_are_written:
                entries = self._entries() if self._has_aborted else []
                if not self.aborted_problem:
                    known, base_offset = self._open_before(), self._facts.base_offset
                    self._aborted = AbortedCheck(
                        file,
                        base_offset,
                        entries,
                        known,
                        was_cleaned=self._was_cleaned,
                        log_start_offset=self._start_offset,
                        seen_before=self._seen_before,
                    )
            scrub = self._scrub = SegmentScrub(file, self._facts, check, aborted=self._aborted)
        before = scrub.position
        scrub.run(max_bytes)
        if scrub.is_done and self._aborted is not None:
            self.aborted_problem = self._aborted.problem
        return scrub.position - before

    def lose(self, reason: str) -> None:
        """Mark the unread rest as unreadable."""
        if self._scrub is None:  # not even the beginning is readable
            self._scrub = SegmentScrub(_UnreadableFile(), self._facts, IndexCheck((), (), self._note))
        self._scrub.lose(reason)

    def close(self) -> None:
        """Close the files; findings stay. Idempotent."""
        while self._files:
            self._files.pop().close()

    def _open(self, suffix: str) -> File:
        file = self._disk.open(self._path + suffix, read_only=True)
        self._files.append(file)
        return file

    def _note(self, problem: str) -> None:
        self.index_problem = self.index_problem or problem

    def _blocks(self, suffix: str, entry_size: int) -> Iterator[bytes]:
        """Iterate over the readable part of an index, in blocks of entries."""
        if not self._with_indexes:
            return
        try:
            file = self._open(suffix)
            size = file.size()
        except OSError as error:
            self._note(f"{suffix} can't be read ({error.strerror or error})")
            return
        if size % entry_size:
            self._note(f"{size} bytes of {suffix} are not a multiple of the entry size")
        block_bytes = _BLOCK_ENTRIES * entry_size
        for position in range(0, size, block_bytes):
            yield file.read(block_bytes, position)

    def _entries(self) -> list[CompletedTransaction]:
        """Iterate over the valid, rising entries of the index of aborted transactions."""
        previous = -1
        try:
            data = self._disk.read_bytes(self._path + TRANSACTION_INDEX_SUFFIX)
        except OSError as error:
            self.aborted_problem = f"it can't be read ({error.strerror or error})"
            return []
        data = data[: self._aborted_bytes]
        if len(data) % ENTRY.size:
            self.aborted_problem = f"{len(data)} bytes are not a multiple of the entry size"
            return []
        entries = []
        for entry in ENTRY.iter_unpack(data):
            last_offset = entry[3]
            if not names_abort(entry, self._facts.base_offset) or last_offset <= previous:
                self.aborted_problem = f"{entry} is not an aborted transaction of this segment"
                return []
            previous = last_offset
            entries.append(CompletedTransaction(*entry[1:]))
        return entries

    def _open_before(self) -> dict[int, int] | None:
        """Return the transactions open at the segment's start; None if no snapshot has them, or too many do."""
        if self._was_cleaned:
            return None
        if not self._facts.base_offset:
            return {}
        try:
            producers = decode_snapshot(self._disk.read_bytes(self._path + SNAPSHOT_SUFFIX))
        except (OSError, SnapshotCorruption):
            return None
        return open_transactions(producers)


class _UnreadableFile:
    """An unreadable file."""

    def read(self, length: int, position: int) -> bytes:
        """See `Readable`."""
        return b""
