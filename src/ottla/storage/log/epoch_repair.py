"""Repair of `leader-epoch-checkpoint`: entries that the file lacks, and entries that start too late or too early.

Followers truncate by these entries, so a missing entry at the leader makes them truncate records that both have. Leader
epochs never decrease within a log: all batches of an entry have its epoch if the last one has, and a binary search
finds where an epoch begins. So a log of any size is checked with a few reads for each entry.

A single batch that contradicts an entry may have a damaged epoch, which no CRC covers. An entry is added for two
batches, or for one with an epoch that a second replica has at the same offset. An entry starts too early if two batches
from its start on have earlier epochs, or one that begins before its start: entries start where a batch does.

Starts drop entries without batches (`loader`); damage is in `segment_scrub` and `header_repair`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.record.batch import (
    BASE_OFFSET,
    BATCH_HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    MAGIC,
    MAGIC_V2,
    PARTITION_LEADER_EPOCH,
)
from ottla.storage.files.epochs import UNDEFINED_EPOCH, LeaderEpochCache
from ottla.storage.log.log_segments import LogSegments

logger = logging.getLogger(__name__)

EpochEntry = tuple[int, int]
"""(leader epoch, start offset)."""


class BatchEpoch(NamedTuple):
    """Leader epoch of a batch, and its offsets."""

    leader_epoch: int
    base_offset: int
    last_offset: int


def epoch_at(segments: LogSegments, offset: int) -> BatchEpoch | None:
    """Return the batch with `offset`, or the next one; None without one, or for an old format.

    Raises OSError and KafkaError if the segment is unreadable.
    """
    for segment in segments.holding(offset):
        outline = segment.search.find_offset(offset)
        if outline is None:
            continue
        data = segment.data.descriptor.file().read(HEADER_SIZE, outline[0])
        if len(data) < HEADER_SIZE:
            return None
        header = BATCH_HEADER.unpack(data)
        if header[MAGIC] != MAGIC_V2:
            return None
        base_offset = header[BASE_OFFSET]
        return BatchEpoch(header[PARTITION_LEADER_EPOCH], base_offset, base_offset + header[LAST_OFFSET_DELTA])
    return None


def add_missing_entries(
    path: str,
    segments: LogSegments,
    epochs: LeaderEpochCache,
    offsets: range,
    confirmed_epoch: int = UNDEFINED_EPOCH,
) -> bool:
    """Correct `epochs` by `early_entries` and `missing_entries`, and log that; `path` is that of the file.

    Returns whether any entry changed.

    Raises as `epoch_at`.
    """
    early = early_entries(segments, epochs.entries(), offsets)
    for leader_epoch, first_offset in early:
        epochs.start_later(leader_epoch, first_offset)
    if early:
        shown = ", ".join(
            f"leader epoch {epoch} {'has no batch' if offset is None else f'starts at offset {offset}'}"
            for epoch, offset in early
        )
        logger.error("%s had entries before the batches of their epochs; they were corrected: %s", path, shown)
    missing = missing_entries(segments, epochs.entries(), offsets, confirmed_epoch)
    for leader_epoch, start_offset in missing:
        epochs.insert(leader_epoch, start_offset)
    if missing:
        shown = ", ".join(f"leader epoch {epoch} from offset {offset}" for epoch, offset in sorted(missing))
        logger.error("%s lacked entries for batches of its log; they were added: %s", path, shown)
    return bool(missing or early)


def early_entries(segments: LogSegments, entries: Sequence[EpochEntry], offsets: range) -> list[tuple[int, int | None]]:
    """Return the epochs of entries that start too early, and where they start; None without a batch before the next
    entry. The last entry may start at the log end.

    Raises as `epoch_at`.
    """
    early: list[tuple[int, int | None]] = []
    if len(entries) < 2:
        return early  # starts with the log, and most logs have one: they cost no read
    ends = [start for _, start in entries[1:]] + [offsets.stop]
    for number, ((leader_epoch, start), end) in enumerate(zip(entries, ends, strict=True)):
        first = epoch_at(segments, start) if start < end else None
        if first is None or first.base_offset >= end or first.leader_epoch >= leader_epoch:
            continue
        begin = _epoch_start(segments, leader_epoch, start, end)
        last = epoch_at(segments, begin - 1)
        if last is None or not first.leader_epoch <= last.leader_epoch < leader_epoch:
            continue  # damage
        starts_within = first.base_offset < start != offsets.start
        if last.base_offset == first.base_offset and not starts_within:
            continue  # a single batch, which may have a damaged epoch
        if begin < end:
            found = epoch_at(segments, begin)
            if found is not None and found.leader_epoch == leader_epoch:
                early.append((leader_epoch, begin))
        else:
            early.append((leader_epoch, end if number == len(entries) - 1 else None))
    return early


def _epoch_start(segments: LogSegments, leader_epoch: int, start: int, end: int) -> int:
    """Return the first offset in [start, end) of a batch with this epoch or a later one; `end` without one."""
    low, high = start, end
    while low < high:
        middle = (low + high) // 2
        found = epoch_at(segments, middle)
        if found is None or found.base_offset >= end:
            high = middle
        elif found.leader_epoch >= leader_epoch:
            high = max(low, min(found.base_offset, middle))
        else:
            low = found.last_offset + 1
    return min(low, end)


def missing_entries(
    segments: LogSegments, entries: Sequence[EpochEntry], offsets: range, confirmed_epoch: int = UNDEFINED_EPOCH
) -> list[EpochEntry]:
    """Return the entries to add to `entries`, which rise, for the batches of a log with `offsets`.

    `confirmed_epoch` is an epoch that another replica has.

    Raises as `epoch_at`.
    """
    if offsets.start == offsets.stop:
        return []
    begins, ends = [(UNDEFINED_EPOCH, offsets.start), *entries], [*entries, (None, offsets.stop)]
    missing: list[EpochEntry] = []
    for (leader_epoch, start), (following, end) in zip(begins, ends, strict=True):
        found = list(_later_epochs(segments, leader_epoch, start, end, following))
        batches = sum(1 if first.base_offset == last.base_offset else 2 for first, last in found)
        if (
            batches > 1
            or leader_epoch == UNDEFINED_EPOCH
            or any(first.leader_epoch == confirmed_epoch for first, _ in found)
        ):
            missing += [(first.leader_epoch, first.base_offset) for first, _ in found]
    return missing


def _later_epochs(
    segments: LogSegments, leader_epoch: int, start: int, end: int, following: int | None
) -> Iterator[tuple[BatchEpoch, BatchEpoch]]:
    """Iterate over first and last batch of each epoch in [start, end) later than the entry's, the latest first.

    The first one may have the epoch `following`, that of the entry at `end`, which then starts too late.
    """
    while end > start:
        last = epoch_at(segments, end - 1)
        if last is None or last.base_offset >= end or last.leader_epoch <= leader_epoch:
            return
        if following is not None and last.leader_epoch > following:
            return  # damage
        first = _first_of(segments, last, start)
        if first is None or first.leader_epoch != last.leader_epoch:
            return  # decreasing epochs are damage
        yield first, last
        end, following = first.base_offset, first.leader_epoch


def _first_of(segments: LogSegments, last: BatchEpoch, start: int) -> BatchEpoch | None:
    """Return the first batch from `start` on with the epoch of `last`, or a later one."""
    low, high = start, last.base_offset
    while low < high:
        middle = (low + high) // 2
        found = epoch_at(segments, middle)
        if found is None:
            return None
        if found.leader_epoch >= last.leader_epoch:
            high = min(found.base_offset, middle)
        else:
            low = found.last_offset + 1
    return epoch_at(segments, low)
