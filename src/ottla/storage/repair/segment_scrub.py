"""Damage detection in a complete segment: contradictions within it, and with its surroundings.

The CRC of a batch does not cover its base offset and leader epoch: those are compared with the surrounding batches, the
start and end of the segment, and the leader epochs of the log. Indexes are compared with the batches by the rules of
Apache Kafka's kafka-dump-log; that of aborted transactions, which has no checksum, with the markers.

Invariants:
- A damaged range is never too small: if two batches contradict each other both belong to it, and if the start of the
  next batch is lost the range extends to the end of the segment.
- Memory is bounded: one chunk of the segment, `MAX_DAMAGES` ranges, one entry of each index; of aborted transactions
  their index, and each transactional producer.

Not detected: gaps between offsets, which compaction creates; too high an offset of the last batch if the end of the
segment is unknown; damage inside of compressed batches. Scheduling is in `log_scrubber` and the command
`ottla log scrub`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol

from ottla.common.errors import KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.record.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_MASK,
    LAST_OFFSET_DELTA,
    MAGIC,
    MAGIC_V2,
    MAX_TIMESTAMP,
    NO_PRODUCER_ID,
    PARTITION_LEADER_EPOCH,
    PRODUCER_ID,
    RECORDS_COUNT,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from ottla.record.control import read_end_transaction_marker
from ottla.storage.files.damage import Damage
from ottla.storage.files.log_config import MAX_INT
from ottla.storage.files.names import LEADER_EPOCH_CHECKPOINT
from ottla.storage.segment.batch_frames import HEADER_CUT, BatchFrames, framing_defect
from ottla.storage.segment.outlines import Readable
from ottla.storage.segment.transactions import CompletedTransaction

MAX_DAMAGES = 16
"""Ranges of one segment; with more of them the last extends to the end of the segment."""

_LEAST_BYTES = 1024
"""Minimum cost of a batch: for a small one the header costs more than its bytes."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """Known facts about a segment before it is read."""

    base_offset: int
    end_offset: int
    """Base offset of the next segment."""
    size_bytes: int
    epochs: Sequence[tuple[int, int]] = ()
    """(leader epoch, start offset) of the log, rising."""
    epochs_are_complete: bool = True
    """Whether no batch has a later epoch; false for entries from a file that may be outdated."""


def unknown_end(base_offset: int) -> int:
    """Maximum end offset of a segment without a next one."""
    return base_offset + MAX_INT + 1


class BatchObserver(Protocol):
    """Observer of every batch of a segment."""

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Process the next batch; sizes and positions in bytes."""
        ...

    def finish(self) -> None:
        """Process the end: no more batches follow, and each of them is whole."""
        ...


class IndexCheck:
    """Check of the entries in a segment's indexes against its batches, which are added one by one.

    An offset entry names a batch by its last offset and position, a time entry has the largest timestamp of the batch
    that ends at its offset, and both rise.
    """

    __slots__ = ("_offset", "_offsets", "_previous_offset", "_previous_timestamp", "_report", "_time", "_times")

    def __init__(
        self, offsets: Iterable[tuple[int, int]], times: Iterable[tuple[int, int]], report: Callable[[str], object]
    ) -> None:
        """`offsets` are (last offset, position), `times` (timestamp, last offset); `report` is called with problems."""
        self._offsets = iter(offsets)
        self._times = iter(times)
        self._offset = next(self._offsets, None)
        self._time = next(self._times, None)
        self._previous_offset = -1
        self._previous_timestamp = -1
        self._report = report

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """See `BatchObserver`."""
        while self._offset is not None and self._offset[1] <= position:
            self._judge_offset(self._offset, last_offset if self._offset[1] == position else None)
        while self._time is not None and self._time[1] <= last_offset:
            self._judge_time(self._time, max_timestamp if self._time[1] == last_offset else None)

    def finish(self) -> None:
        """See `BatchObserver`."""
        while self._offset is not None:
            self._judge_offset(self._offset, None)
        while self._time is not None:
            self._judge_time(self._time, None)

    def _judge_offset(self, entry: tuple[int, int], found: int | None) -> None:
        offset, position = entry
        if offset != found:
            self._report(f"index entry {offset} -> {position}: the batch there ends at {found}")
        if offset <= self._previous_offset:
            self._report(f"index entry {offset} -> {position}: not after offset {self._previous_offset}")
        self._previous_offset = offset
        self._offset = next(self._offsets, None)

    def _judge_time(self, entry: tuple[int, int], found: int | None) -> None:
        timestamp, offset = entry
        if timestamp != found:
            self._report(f"time index entry {timestamp} -> {offset}: the batch that ends there has {found}")
        if timestamp <= self._previous_timestamp:
            self._report(f"time index entry {timestamp} -> {offset}: not after timestamp {self._previous_timestamp}")
        self._previous_timestamp = timestamp
        self._time = next(self._times, None)


class AbortedCheck:
    """Check of a segment's index of aborted transactions against its batches and markers, added one by one.

    The transactions open at the start of the segment come from a producer snapshot, if any. If the cleaner may have
    dropped batches, an entry may name a transaction from before them. A missing entry is detected if a batch with
    records of the transaction was read, in this segment or in one right before it (`seen_before`), or if a snapshot
    has the transaction and nothing was dropped.
    """

    __slots__ = (
        "_base_offset",
        "_entries",
        "_file",
        "_is_exact",
        "_last_marker",
        "_open",
        "_start_offset",
        "_starts_known",
        "problem",
        "seen",
    )

    def __init__(
        self,
        file: Readable,
        base_offset: int,
        entries: Iterable[CompletedTransaction],
        open_before: Mapping[int, int] | None,
        *,
        was_cleaned: bool,
        log_start_offset: int,
        seen_before: Mapping[int, int] | None = None,
    ) -> None:
        """`open_before`: producer id -> first offset of open transactions, None if unknown."""
        self._start_offset = log_start_offset
        self._file = file
        self._base_offset = base_offset
        self._entries = {entry.last_offset: entry for entry in entries}
        self._open = dict(open_before or {})
        self._starts_known = open_before is not None
        self._is_exact = not was_cleaned
        self._last_marker: dict[int, int] = {}
        self.seen: dict[int, int] = dict(seen_before or {})
        """Producer id -> first offset of the open transactions with visible records."""
        self.problem = ""
        """First problem; complete after `finish`."""

    def note(self, position: int, size: int, header: BatchHeader) -> None:
        """Process the next batch, which is whole. Raises OSError."""
        if header[MAGIC] != MAGIC_V2 or header[PRODUCER_ID] == NO_PRODUCER_ID:
            return
        if not header[ATTRIBUTES] & CONTROL_MASK:
            if header[ATTRIBUTES] & TRANSACTIONAL_MASK:
                self._open.setdefault(header[PRODUCER_ID], header[BASE_OFFSET])
                last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
                # The last batch of a producer is retained without records, and a cleaner needs no entry for deleted
                # ones.
                if header[RECORDS_COUNT] and last_offset >= self._start_offset:
                    self.seen.setdefault(header[PRODUCER_ID], header[BASE_OFFSET])
            return
        try:
            marker = read_end_transaction_marker(self._file.read(size, position))
        except KafkaError:  # it ends nothing on any replica
            return
        if marker is not None:
            self._end(header[PRODUCER_ID], header[BASE_OFFSET], committed=marker.committed)

    def _end(self, producer_id: int, offset: int, *, committed: bool) -> None:
        first_offset = self._open.pop(producer_id, None)
        seen_offset = self.seen.pop(producer_id, None)
        before, self._last_marker[producer_id] = self._last_marker.get(producer_id, -1), offset
        entry = self._entries.pop(offset, None)
        if entry is None:  # rightly missing if records were deleted or cleaned
            if committed or offset < self._start_offset:
                return
            if seen_offset is not None:
                self._report(f"none for the marker at {offset}, which aborts from {seen_offset} on")
            elif self._starts_known and first_offset is not None and first_offset >= self._start_offset:
                self._report(f"none for the marker at {offset}, which aborts from {first_offset} on", exactly=True)
            return
        if committed or entry.producer_id != producer_id:
            self._report(f"{entry}, and no marker of that producer there aborts")
        elif first_offset is None:
            if before >= 0 or self._starts_known:
                self._report(f"{entry}, and nothing of that producer was open", exactly=True)
        elif not before < entry.first_offset <= first_offset:
            self._report(f"{entry}, and the transaction began at {first_offset}")
        elif entry.first_offset != first_offset and (self._starts_known or entry.first_offset >= self._base_offset):
            self._report(f"{entry}, and the transaction began at {first_offset}", exactly=True)
        else:
            self._check_stable(entry, offset)

    def _check_stable(self, entry: CompletedTransaction, offset: int) -> None:
        stable = min(self._open.values(), default=offset + 1)
        is_right = entry.last_stable_offset == stable if self._starts_known else entry.last_stable_offset <= stable
        if not is_right:
            self._report(f"{entry}, and offsets were stable up to {stable}", exactly=True)

    def _report(self, problem: str, *, exactly: bool = False) -> None:
        """`exactly`: it is a problem only if no batch was dropped."""
        if self._is_exact or not exactly:
            self.problem = self.problem or problem

    def finish(self) -> None:
        """Finish: no more batches follow."""
        for entry in self._entries.values():
            self._report(f"{entry} has no marker in the segment")


class SegmentScrub:
    """Damage detection in one segment, read once from its beginning to its end, in pieces of any size."""

    __slots__ = (
        "_aborted",
        "_due",
        "_epoch",
        "_facts",
        "_frames",
        "_observer",
        "_opened",
        "_previous_due",
        "_ranges",
        "_report",
        "is_done",
    )

    def __init__(
        self,
        file: Readable,
        facts: SegmentFacts,
        observer: BatchObserver,
        report: Callable[[int, str], object] = lambda position, problem: None,
        aborted: AbortedCheck | None = None,
    ) -> None:
        """`report` is called with each problem: the position in the segment, and one sentence."""
        self._aborted = aborted
        self._frames = BatchFrames(file, 0, facts.size_bytes)
        self._facts = facts
        self._observer = observer
        self._report = report
        self._due = self._previous_due = facts.base_offset
        self._epoch = -1
        self._opened: tuple[int, str] | None = None
        self._ranges: list[tuple[int, int, str]] = []
        self.is_done = False

    @property
    def position(self) -> int:
        """Number of bytes read."""
        return self._frames.position

    def damages(self, partition: TopicPartition) -> list[Damage]:
        """Damage found in a segment of `partition`, by offset; complete once `is_done`."""
        return [Damage(partition, self._facts.base_offset, *found) for found in self._ranges]

    def run(self, max_bytes: int) -> None:
        """Check about `max_bytes` more. Raises OSError, after which `lose` may end it."""
        frames = self._frames
        while max_bytes > 0 and not self.is_done:
            if not frames.left:
                return self._end()
            header = frames.header()
            defect = HEADER_CUT if header is None else framing_defect(header) or frames.cut
            if header is None or defect:
                return self.lose(defect)
            self._check(header)
            last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
            self._observer.note(frames.position, frames.size, last_offset, header[MAX_TIMESTAMP])
            if self._aborted is not None and not self._ranges and self._opened is None:
                self._aborted.note(frames.position, frames.size, header)
            max_bytes -= max(frames.size, _LEAST_BYTES)
            frames.skip()
        return None

    def lose(self, reason: str) -> None:
        """Mark everything from here on as unreadable."""
        self._report(self._frames.position, f"{reason}; what follows was not read")
        self._open(self._due, reason)
        self._end()

    def _end(self) -> None:
        if not self._ranges and self._opened is None:
            self._observer.finish()
            if self._aborted is not None:
                self._aborted.finish()
        self._close(self._facts.end_offset)
        self.is_done = True

    def _check(self, header: BatchHeader) -> None:
        """Compare the batch with its CRC and the batches before, and record the state for the next one."""
        facts = self._facts
        first, reasons = self._due, []
        base_offset, last_offset = header[BASE_OFFSET], header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        crc_defect = self._frames.crc_defect(header)
        is_whole = not crc_defect
        if crc_defect:
            reasons.append(crc_defect)
        if base_offset < self._due:
            first = self._previous_due  # the batch before may be the wrong one
            reasons.append(f"offset {base_offset} where {self._due} or more is due")
        elif not base_offset <= last_offset < facts.end_offset:
            reasons.append(f"offset {last_offset} in a segment that ends before {facts.end_offset}")
            is_whole = False
        if header[MAGIC] == MAGIC_V2 and (wrong := self._epoch_defect(header)):  # messages have none
            first = self._previous_due
            reasons.append(wrong)
        for reason in reasons:
            self._report(self._frames.position, reason)
        if reasons:
            self._open(first, reasons[0])
        elif self._opened is not None:
            self._close(base_offset)
        if is_whole:  # also if it contradicts the one before: it is the reference from here on
            self._previous_due, self._due = self._due, last_offset + 1
            self._epoch = header[PARTITION_LEADER_EPOCH]

    def _epoch_defect(self, header: BatchHeader) -> str:
        own, base_offset, epochs = header[PARTITION_LEADER_EPOCH], header[BASE_OFFSET], self._facts.epochs
        if own < self._epoch:
            return f"leader epoch {own} at offset {base_offset} comes after {self._epoch}"
        at = bisect_right(epochs, base_offset, key=itemgetter(1))
        if at == 0:
            return ""
        known, _ = epochs[at - 1]
        if own < known or (own > known and (at < len(epochs) or self._facts.epochs_are_complete)):
            return f"leader epoch {own} at offset {base_offset}, {known} by {LEADER_EPOCH_CHECKPOINT}"
        return ""

    def _open(self, first_offset: int, reason: str) -> None:
        """Start a damaged range, if none is open."""
        if self._opened is not None:
            return
        if self._ranges:
            earlier_first, earlier_last, earlier_reason = self._ranges[-1]
            if first_offset <= earlier_last or len(self._ranges) == MAX_DAMAGES:
                self._ranges.pop()  # the range continues
                first_offset, reason = earlier_first, earlier_reason
        self._opened = first_offset, reason

    def _close(self, end_offset: int) -> None:
        """End the open range before `end_offset`, where valid data continues."""
        if self._opened is None:
            return
        first_offset, reason = self._opened
        self._opened = None
        first_offset = min(first_offset, self._facts.end_offset - 1)  # garbage may follow after the last offset
        self._ranges.append((first_offset, max(end_offset - 1, first_offset), reason))
