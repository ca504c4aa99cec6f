"""Recovery of a log after an unclean stop: scan its segments batch by batch, truncate at the first invalid byte.

A missing tail and a garbage tail both end there. Later segments are dropped. Each truncation is logged with file and
position.

Invariants:
- A process that ends leaves at most a part of one batch, at the end of the last segment. If a truncation drops more,
  records are lost that other replicas may count on, and the opener of the log is notified before.
- A message of format v0 or v1 is not damage.
- A batch with a correct CRC and an offset known from its neighbours is not truncated for a wrong offset field; nor is
  one with a CRC that is correct after a one-bit correction of its length.

Reading batch by batch is in `batch_frames`, fields without a CRC in `header_repair`, the start of the scan in `loader`,
and aborted transactions in `aborted_transactions`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.common.platform.disk import File
from ottla.record.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CONTROL_MASK,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    MAX_TIMESTAMP,
    NO_PRODUCER_ID,
    PARTITION_LEADER_EPOCH,
    PRODUCER_ID,
    BatchHeader,
)
from ottla.record.legacy.stored import header_of_any
from ottla.storage.files.descriptors import Folder
from ottla.storage.files.log_config import MAX_INT
from ottla.storage.recovery.header_repair import UnchecksummedFields
from ottla.storage.segment.batch_frames import HEADER_CUT, BatchFrames, framing_defect
from ottla.storage.segment.outlines import Readable
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)
_CHUNK_BYTES = 1024 * 1024


class OnLoss(Protocol):
    """Called when a log lost records; see `LogEvents.records_lost`."""

    def __call__(self, *, proved: bool) -> None: ...


@dataclass(slots=True)
class Walk:
    """Result of a scan of a segment: end of the valid batches, and the reason."""

    end: int = 0
    next_offset: int = 0
    defect: str = ""
    is_torn: bool = False
    """Whether the defect is an incomplete batch, as a process that ends in the middle of a write leaves it."""
    has_transactions: bool = False
    """Whether some transactions may be aborted, in the segment or in its index."""
    has_producers: bool = False
    """Whether a batch has a producer id."""


class RecoveryScan(NamedTuple):
    """Result of a scan of segments up to the end of the log, which may have been truncated."""

    end_offset: int
    """The log end offset."""
    has_producers: bool
    """Whether a batch of these segments has a producer id."""
    with_transactions: list[Segment]
    """Segments with aborted transactions that have to be found again."""
    gap_end: int
    """Base offset of the last segment with a permitted gap before it; 0 without one."""


def recover_segments(
    folder: Folder,
    segments: list[Segment],
    first: int,
    uncovered: UnchecksummedFields,
    *,
    gaps_end: int,
    on_loss: OnLoss,
) -> RecoveryScan:
    """Scan the segments from number `first` on, rebuilding indexes and epochs; truncate and drop invalid data.

    Offsets may be missing before segments that begin up to `gaps_end`, since the log was compacted; elsewhere a gap
    means that the segment before has lost its end. `on_loss` is called before a truncation of more than the torn end of
    a write. Raises OSError, OperatorError.
    """
    with_transactions = []
    gap_end = 0
    has_producers = False
    end_offset = segments[first].base_offset
    for number in range(first, len(segments)):
        segment = segments[number]
        walk = recover_segment(segments, number, uncovered)
        end_offset = walk.next_offset
        has_producers = has_producers or walk.has_producers
        if walk.has_transactions:
            with_transactions.append(segment)
        gap = "" if walk.defect else _gap_after(segments, number, walk.next_offset)
        if gap and segments[number + 1].base_offset <= gaps_end:
            gap_end = segments[number + 1].base_offset
        elif gap:
            walk.defect = gap
        if not walk.defect:
            continue
        logger.warning(
            "%s: truncated at position %d, %d bytes dropped, the log ends at offset %d: %s",
            segment.data.path,
            walk.end,
            segment.data.size_bytes - walk.end,
            walk.next_offset,
            walk.defect,
        )
        file = segment.data.descriptor.file()
        # A torn write can only be at the end of the last segment: valid batches behind the place prove a loss.
        proved = segment is not segments[-1] or batch_behind(file, segment.data.size_bytes, walk)
        if proved or not walk.is_torn:
            on_loss(proved=proved)
        # Later segments first, durably: a crash in between must not leave them behind a gap.
        drop_segments(folder, segments, number + 1)
        file.truncate(walk.end)
        file.fsync()
        segment.data.size_bytes = walk.end
        break
    return RecoveryScan(end_offset, has_producers, with_transactions, gap_end)


def _gap_after(segments: list[Segment], number: int, next_offset: int) -> str:
    """Return whether a whole tail is missing: the file is shorter than it was when the next segment began."""
    if number + 1 >= len(segments):
        return ""
    following = segments[number + 1].base_offset
    return "" if next_offset >= following else f"offsets {next_offset} to {following - 1} are missing"


def drop_segments(folder: Folder, segments: list[Segment], first: int) -> None:
    """Remove segments at the end, durably, before the log is truncated or grows there. Raises OSError."""
    if first >= len(segments):
        return
    disk = folder.disk
    for segment in segments[first:]:
        logger.warning("%s: dropped, since the log ends before it", segment.data.path)
        paths = segment.mark_deleted()
        segment.close()
        for path in paths:
            disk.unlink(path)
    disk.fsync_dir(folder.path)
    del segments[first:]


def recover_segment(segments: list[Segment], number: int, uncovered: UnchecksummedFields) -> Walk:
    """Check every batch of a segment, rebuild its indexes, and collect epochs. Raises OSError, OperatorError."""
    segment, epochs = segments[number], uncovered.epochs
    uncovered.begin(segment, segments[number + 1] if number + 1 < len(segments) else None)
    walk = Walk(next_offset=segment.base_offset, has_transactions=segment.aborted.index is not None)
    if not segment.data.size_bytes and segment.indexes.are_blank():
        return walk  # as most segments where there are tens of thousands
    segment.indexes.begin_rebuild()
    file = segment.data.readable()
    for position, header in ValidBatches(file, segment.base_offset, segment.data.size_bytes, walk, uncovered):
        last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        segment.indexes.note_batch(position, header[BATCH_LENGTH] + LOG_OVERHEAD, last_offset, header[MAX_TIMESTAMP])
        if header[PARTITION_LEADER_EPOCH] > epochs.latest_epoch:
            epochs.assign(header[PARTITION_LEADER_EPOCH], header[BASE_OFFSET])
        if header[PRODUCER_ID] != NO_PRODUCER_ID:
            walk.has_producers = True
            if header[ATTRIBUTES] & CONTROL_MASK:
                walk.has_transactions = True
    uncovered.finish()
    segment.indexes.finish_rebuild(is_active=number + 1 == len(segments))
    return walk


def batch_behind(file: File, size_bytes: int, walk: Walk) -> bool:
    """Return whether a valid batch follows the one at which the scan `walk` stopped. Raises OSError.

    The search covers the claimed end of the bad batch and, since its length may be wrong, every later position with the
    next expected offset.
    """
    head = file.read(HEADER_SIZE, walk.end)
    if len(head) < HEADER_SIZE:
        return False
    length = int.from_bytes(head[LENGTH_POSITION : LENGTH_POSITION + 4], signed=True)
    if length > 0 and _is_valid_batch(file, size_bytes, walk, walk.end + length + LOG_OVERHEAD):
        return True
    header = header_of_any(head, 0)
    if header is None:
        return False
    wanted = ((header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1) % (1 << 64)).to_bytes(8)
    start = walk.end + 1
    while start < size_bytes:
        chunk = file.read(min(_CHUNK_BYTES, size_bytes - start), start)
        at = chunk.find(wanted)
        while at >= 0:
            if _is_valid_batch(file, size_bytes, walk, start + at):
                return True
            at = chunk.find(wanted, at + 1)
        if len(chunk) < len(wanted):
            break
        start += len(chunk) - len(wanted) + 1
    return False


def _is_valid_batch(file: File, size_bytes: int, walk: Walk, position: int) -> bool:
    if position >= size_bytes:
        return False
    there = Walk(end=position, next_offset=walk.next_offset)
    return next(iter(ValidBatches(file, walk.next_offset, size_bytes, there)), None) is not None


class ValidBatches:
    """Iterator over (position, header) of a segment's batches, up to the first invalid one.

    Only reads, unless `uncovered` is given to correct fields without a CRC.
    """

    __slots__ = ("_base_offset", "_frames", "_uncovered", "_walk")

    def __init__(
        self,
        file: Readable,
        base_offset: int,
        size_bytes: int,
        walk: Walk,
        uncovered: UnchecksummedFields | None = None,
    ) -> None:
        """`walk` has the start position; at the end also where and why the scan stopped."""
        self._uncovered = uncovered
        self._frames = BatchFrames(file, walk.end, size_bytes)
        self._base_offset = base_offset
        self._walk = walk

    def __iter__(self) -> ValidBatches:
        return self

    def __next__(self) -> tuple[int, BatchHeader]:
        walk, frames = self._walk, self._frames
        position = frames.position
        if not frames.left:
            raise StopIteration
        header = frames.header()
        if header is None:
            return self._stop_short(HEADER_CUT)
        uncovered, is_torn = self._uncovered, False
        defect = framing_defect(header)
        if not defect and frames.cut:
            defect = self._defect(header)
            is_torn = not defect
            defect = defect or frames.cut
        defect = defect or frames.crc_defect(header)
        if defect and uncovered is not None:
            repaired = uncovered.with_right_length(frames, header)
            if repaired is not None:
                header, defect, is_torn = repaired, "", False
        if is_torn:
            return self._stop_short(defect)
        if (
            uncovered is not None
            and (header[BASE_OFFSET] != walk.next_offset or header[PARTITION_LEADER_EPOCH] != uncovered.leader_epoch)
            and not defect
        ):
            header, defect = uncovered.judged(frames, header, walk.next_offset)
        defect = defect or self._defect(header)
        if defect:
            return self._stop(defect)
        frames.skip()
        walk.end = frames.position
        walk.next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        return position, header

    def _stop_short(self, defect: str) -> tuple[int, BatchHeader]:
        self._walk.is_torn = True
        return self._stop(defect)

    def _stop(self, defect: str) -> tuple[int, BatchHeader]:
        self._walk.defect = defect
        raise StopIteration

    def _defect(self, header: BatchHeader) -> str:
        if header[BASE_OFFSET] < self._walk.next_offset:
            return f"offset {header[BASE_OFFSET]} follows after {self._walk.next_offset - 1}"
        if (
            header[LAST_OFFSET_DELTA] < 0
            or header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] - self._base_offset > MAX_INT
        ):
            return f"a last offset delta of {header[LAST_OFFSET_DELTA]} is impossible"
        return ""
