"""A partition's producer state in files: writing snapshots, and getting it back from the newest usable one.

Invariant: what a snapshot and the batch headers after it result in is what appending the same batches had made, except
for producers that expired meanwhile.

Left out: when snapshots are written (`flush.py`: on roll and close), the bytes of one (`producer_state.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.record.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_HEADER,
    BATCH_LENGTH,
    CONTROL_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_PRODUCER_ID,
    PRODUCER_ID,
    BatchHeader,
)
from ottla.storage.checkpoints import write_unsynced
from ottla.storage.descriptors import Folder
from ottla.storage.names import SNAPSHOT_SUFFIX, offset_name
from ottla.storage.producer_state import ProducerState, SnapshotCorruption
from ottla.storage.segment import Segment

logger = logging.getLogger(__name__)


def load_producers(
    folder: Folder,
    segments: Sequence[Segment],
    snapshots: list[int],
    offsets: range,
    *,
    trusted: bool,
    recovery_point: int,
    now_ms: int,
    expiration_ms: int,
) -> ProducerState:
    """The state at the end of `offsets` (log start to log end). Raises OSError.

    Without any snapshot nothing was known at the last roll, which writes one otherwise, so only segments that are not
    durable count then; after a clean stop (`trusted`), which writes one too, nothing at all.
    """
    producers = ProducerState(offsets.start)
    producers.snapshot_offsets = _sort_out(folder, segments, snapshots, offsets)
    if not _load_newest(producers, folder, now_ms, expiration_ms):
        if trusted and not snapshots:
            producers.map_end_offset = offsets.stop
            return producers
        if not snapshots:
            number = max(sum(1 for segment in segments if segment.base_offset <= recovery_point) - 1, 0)
            producers.map_end_offset = max(offsets.start, segments[number].base_offset)
    replay_producers(producers, segments, offsets.stop)
    return producers


def _sort_out(folder: Folder, segments: Sequence[Segment], snapshots: list[int], offsets: range) -> list[int]:
    """Keep the snapshots where a segment begins and the newest; the others are of no use any more."""
    usable = [offset for offset in sorted(snapshots) if offsets.start <= offset <= offsets.stop]
    bases = {segment.base_offset for segment in segments}
    kept = [offset for offset in usable if offset in bases or offset == usable[-1]]
    for offset in snapshots:
        if offset not in kept:
            folder.disk.unlink(folder.join(offset_name(offset, SNAPSHOT_SUFFIX)))
    return kept


def _load_newest(producers: ProducerState, folder: Folder, now_ms: int, expiration_ms: int) -> bool:
    offsets = producers.snapshot_offsets
    while offsets:
        path = folder.join(offset_name(offsets[-1], SNAPSHOT_SUFFIX))
        try:
            producers.load(folder.disk.read_bytes(path), offsets[-1], now_ms, expiration_ms)
        except SnapshotCorruption as error:
            logger.warning("%s: %s; an older one and the log serve instead", path, error)
            folder.disk.unlink(path)
            offsets.pop()
        else:
            return True
    return False


def reload_producers(
    producers: ProducerState,
    folder: Folder,
    segments: Sequence[Segment],
    offsets: range,
    now_ms: int,
    expiration_ms: int,
) -> None:
    """The log was cut to `offsets`: go back to a snapshot from before the cut, and on from there. Raises OSError."""
    if len(producers) or producers.snapshot_offsets:
        producers.clear(offsets.start)
        producers.snapshot_offsets = _sort_out(folder, segments, producers.snapshot_offsets, offsets)
        _load_newest(producers, folder, now_ms, expiration_ms)
        replay_producers(producers, segments, offsets.stop)
    producers.map_end_offset = offsets.stop


def replay_producers(producers: ProducerState, segments: Sequence[Segment], end_offset: int) -> None:
    """Take up the batches from the state's end to `end_offset`. Raises OSError."""
    from_offset = producers.map_end_offset
    for number, segment in enumerate(segments):
        is_before = number + 1 < len(segments) and segments[number + 1].base_offset <= from_offset
        outline = None if is_before or from_offset >= end_offset else segment.find_offset(from_offset)
        if outline is None:
            continue
        file = segment.log_descriptor.file()
        position, _, _, _ = outline
        while position + HEADER_SIZE <= segment.size_bytes:
            header: BatchHeader = BATCH_HEADER.unpack(file.read(HEADER_SIZE, position))
            size = header[BATCH_LENGTH] + LOG_OVERHEAD
            if header[PRODUCER_ID] != NO_PRODUCER_ID and from_offset <= header[BASE_OFFSET] < end_offset:
                if header[ATTRIBUTES] & CONTROL_MASK:
                    producers.end_transaction(header, header[BASE_OFFSET], file.read(size, position))
                else:
                    producers.update(header, header[BASE_OFFSET])
            position += size
    producers.map_end_offset = end_offset


def write_producers(producers: ProducerState, folder: Folder, offset: int) -> str | None:
    """Write the state as of `offset`, the log end, without waiting for the disk; the new file's path.

    None when there is nothing to write: no producer, now or ever, or a snapshot that reaches this far. Raises OSError.
    """
    snapshots = producers.snapshot_offsets
    if (not len(producers) and not snapshots) or (snapshots and snapshots[-1] >= offset):
        return None
    path = folder.join(offset_name(offset, SNAPSHOT_SUFFIX))
    write_unsynced(folder.disk, path, producers.encode())
    snapshots.append(offset)
    return path


def remove_producers(producers: ProducerState, folder: Folder, offsets: set[int] | None = None) -> None:
    """Remove the snapshots at `offsets`, which began segments that go, but for the newest; all when None.

    Raises OSError.
    """
    snapshots = producers.snapshot_offsets
    gone = [offset for offset in snapshots if offsets is None or (offset in offsets and offset != snapshots[-1])]
    for offset in gone:
        folder.disk.unlink(folder.join(offset_name(offset, SNAPSHOT_SUFFIX)))
    producers.snapshot_offsets = [offset for offset in snapshots if offset not in gone]
