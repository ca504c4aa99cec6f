"""Swap of cleaned segments for their sources, in steps with a crash possible between any two.

1. `stage`: `.cleaned` is renamed `.swap`, from the last segment to the first and its data last of all. While any
   `.cleaned` exists, a start discards all cleaned segments, and the log is unchanged.
2. The names become durable. From here on a start completes the swap.
3. `take_in`: the old segments leave the log and get the suffix `.deleted`, the new ones are read under their suffix.
4. The names become durable, so that no old segment coexists with the new one that has its batches too.
5. `settle`: the suffix `.swap` is removed, from the first segment to the last and its data first of all.

A start (`finish_swaps`) removes old segments in the range of the staged ones and continues with step 5. An old segment
behind the last surviving batch stays then, and is cleaned another time. Names and meaning are Apache Kafka's.

Between the steps the owner of the log may do other work; a truncation or removal of the log must undo a stage first
(`unstage`), durably.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.common.errors import InvariantError
from ottla.storage.files.descriptors import Folder
from ottla.storage.files.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
    parse_offset,
)
from ottla.storage.log.log_segments import LogSegments
from ottla.storage.log.producer_files import remove_producers
from ottla.storage.log.producer_state import ProducerState
from ottla.storage.segment.outlines import OutlineScan
from ottla.storage.segment.results import LogEvents
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)

_INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def discard_cleaned(folder: Folder) -> None:
    """Remove the files of a pass that ended early: they would make the next start revert a swap. Raises OSError."""
    for name in folder.disk.listdir(folder.path):
        if name.endswith(CLEANED_SUFFIX):
            folder.disk.unlink(folder.join(name))


def stage(folder: Folder, base_offsets: Sequence[int]) -> None:
    """Do step 1 for the segments at these offsets, which rise; the caller does step 2. Raises OSError."""
    disk = folder.disk
    # The data file of the first segment is renamed last: until then a start sees `.cleaned` files and discards all.
    for base_offset in reversed(base_offsets):
        for suffix in (*_INDEXES, LOG_SUFFIX):
            path = folder.join(offset_name(base_offset, suffix))
            if suffix == TRANSACTION_INDEX_SUFFIX and not disk.exists(path + CLEANED_SUFFIX):
                continue
            disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)


def unstage(folder: Folder, base_offsets: Sequence[int]) -> None:
    """Undo step 1, durable or not; after the return no start completes the swap. Raises OSError."""
    disk = folder.disk
    first = folder.join(offset_name(base_offsets[0], LOG_SUFFIX))
    is_complete = disk.exists(first + SWAP_SUFFIX)
    if is_complete:
        # A start that finds only some of the staged segments would complete the swap with those. While a `.cleaned`
        # exists it discards all of them.
        disk.rename(first + SWAP_SUFFIX, first + CLEANED_SUFFIX)
        disk.fsync_dir(folder.path)
    for base_offset in base_offsets:
        for suffix in (LOG_SUFFIX, *_INDEXES):
            disk.unlink(folder.join(offset_name(base_offset, suffix + SWAP_SUFFIX)))
    disk.fsync_dir(folder.path)
    if is_complete:
        disk.unlink(first + CLEANED_SUFFIX)


def take_in(
    old: Sequence[Segment],
    base_offsets: Sequence[int],
    *,
    segments: LogSegments,
    producers: ProducerState,
    folder: Folder,
    events: LogEvents,
    index_interval_bytes: int,
    delete_delay_ms: int,
) -> list[Segment]:
    """Step 3: replace `old`, none of which is active, by the staged segments; the caller does step 4.

    Regions of the old ones stay valid. Raises OSError.
    """
    if segments.active in old or not base_offsets or base_offsets[0] != old[0].base_offset:
        raise InvariantError(f"{folder.path}: segments from {base_offsets[:1]} on can't take the place of others")
    new = [_staged(folder, base_offset, index_interval_bytes) for base_offset in base_offsets]
    segments.replace(old, new)
    segments.with_aborted |= any(segment.aborted.index is not None for segment in new)
    paths = [path for segment in old for path in segment.mark_deleted()]
    for segment in old:
        segment.close()
    remove_producers(producers, folder, {segment.base_offset for segment in old} - set(base_offsets))
    events.unlink_later(paths, delete_delay_ms)
    return new


def _staged(folder: Folder, base_offset: int, index_interval_bytes: int) -> Segment:
    size = folder.disk.size(folder.join(offset_name(base_offset, LOG_SUFFIX + SWAP_SUFFIX)))
    segment = Segment(folder, base_offset, size, 0, index_interval_bytes, SWAP_SUFFIX)
    if folder.disk.exists(folder.join(offset_name(base_offset, TRANSACTION_INDEX_SUFFIX + SWAP_SUFFIX))):
        segment.aborted.take_up()
    return segment


def settle(new: Sequence[Segment]) -> None:
    """Do step 5 with segments from `take_in`. Raises OSError."""
    for segment in new:
        segment.take_suffix("")


def finish_swaps(folder: Folder) -> None:
    """Complete or revert an interrupted swap. Raises OSError."""
    disk = folder.disk
    listing = disk.listdir(folder.path)
    begun = [_offset_in(name, CLEANED_SUFFIX) for name in listing if name.endswith(CLEANED_SUFFIX)]
    swaps = {name: _offset_in(name, SWAP_SUFFIX) for name in listing if name.endswith(SWAP_SUFFIX)}
    if begun:
        first = min(begun)
        for name in [name for name, offset in swaps.items() if offset >= first]:
            disk.unlink(folder.join(name))
            del swaps[name]
        disk.fsync_dir(folder.path)  # before the files that record it are removed
        discard_cleaned(folder)
    if not swaps:
        return
    staged = sorted(offset for name, offset in swaps.items() if name.endswith(LOG_SUFFIX + SWAP_SUFFIX))
    logger.info("%s: cleaned segments at %s are swapped in", folder.path, staged)
    if staged:
        end = _next_offset(folder, staged[-1])
        for name in listing:
            base_offset = parse_offset(name, LOG_SUFFIX)
            if base_offset is not None and (staged[0] <= base_offset < end or base_offset in staged):
                for suffix in SEGMENT_SUFFIXES:
                    disk.unlink(folder.join(offset_name(base_offset, suffix)))
        disk.fsync_dir(folder.path)
    for base_offset in sorted(set(swaps.values())):
        for suffix in SEGMENT_SUFFIXES:
            name = offset_name(base_offset, suffix)
            if name + SWAP_SUFFIX in swaps:
                disk.rename(folder.join(name + SWAP_SUFFIX), folder.join(name))
    disk.fsync_dir(folder.path)


def _offset_in(name: str, suffix: str) -> int:
    """Return the offset in the name of a file with this suffix; the lowest for any other, so that it counts as
    staged.
    """
    for kind in SEGMENT_SUFFIXES:
        offset = parse_offset(name, kind + suffix)
        if offset is not None:
            return offset
    return 0


def _next_offset(folder: Folder, base_offset: int) -> int:
    """Return the end of a staged segment's last batch."""
    path = folder.join(offset_name(base_offset, LOG_SUFFIX + SWAP_SUFFIX))
    file = folder.disk.open(path, read_only=True)
    try:
        next_offset = base_offset
        for _, _, last_offset, _ in OutlineScan(file, 0, file.size()):
            next_offset = last_offset + 1
        return next_offset
    finally:
        file.close()
