"""Producer snapshots of a partition: writing them, and loading the newest usable one.

Invariant: a snapshot and the batch headers after it give the same state as appending the same batches, except for
producers that expired meanwhile.

Snapshots are written on roll and close (`flush.py`); their format is in `producer_state.py`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence

from ottla.record.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CONTROL_MASK,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LOG_OVERHEAD,
    MAX_TIMESTAMP,
    NO_PRODUCER_ID,
    PRODUCER_ID,
)
from ottla.record.legacy.stored import header_of_any
from ottla.storage.files.checkpoints import write_unsynced
from ottla.storage.files.descriptors import Folder
from ottla.storage.files.log_config import MAX_LONG
from ottla.storage.files.names import SNAPSHOT_SUFFIX, offset_name
from ottla.storage.log.log_segments import LogOffsets
from ottla.storage.log.producer_state import ProducerState, SnapshotCorruption
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.transactions import CompletedTransaction

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
    none_from: int = MAX_LONG,
) -> ProducerState:
    """Return the state at the end of `offsets` (log start to log end). No batch from offset `none_from` on is known to
    have a producer id. Raises OSError.

    Without any snapshot the producer state was empty at the last durable roll, which otherwise writes one, so only
    later segments are read. After a clean stop (`trusted`), which writes one too, the state is empty.
    """
    producers = ProducerState(offsets.start)
    producers.snapshot_offsets = _sort_out(folder, segments, snapshots, offsets)
    if not _load_newest(producers, folder, now_ms, expiration_ms):
        if trusted and not snapshots:
            producers.map_end_offset = offsets.stop
            return producers
        if snapshots:
            _replay_durable(producers, folder, segments, recovery_point)
        else:
            producers.map_end_offset = max(offsets.start, _durable_base(segments, recovery_point))
    if producers.map_end_offset < none_from:
        replay_producers(producers, segments, offsets.stop)
    producers.map_end_offset = offsets.stop
    return producers


def _durable_base(segments: Sequence[Segment], recovery_point: int) -> int:
    """Return the base offset of the last segment with a durable beginning, and so with the snapshot of its roll."""
    bases = [segment.base_offset for segment in segments if segment.base_offset < recovery_point]
    return bases[-1] if bases else segments[0].base_offset


def _replay_durable(producers: ProducerState, folder: Folder, segments: Sequence[Segment], recovery_point: int) -> None:
    """Rebuild the state from the durable log after all snapshots were lost, and write one: without it the next start
    would take the state for empty. Raises OSError.
    """
    base = _durable_base(segments, recovery_point)
    if base <= producers.map_end_offset:
        return
    replay_producers(producers, segments, base)
    if len(producers):
        folder.disk.write_atomic(folder.join(offset_name(base, SNAPSHOT_SUFFIX)), producers.encode())
        producers.snapshot_offsets.append(base)


def _sort_out(folder: Folder, segments: Sequence[Segment], snapshots: list[int], offsets: range) -> list[int]:
    """Retain the snapshots at segment starts and the newest; remove the others.

    Snapshots above a truncation are removed durably before other batches reach their offsets. Raises OSError.
    """
    if not snapshots:
        return []
    usable = [offset for offset in sorted(snapshots) if offsets.start <= offset <= offsets.stop]
    bases = {segment.base_offset for segment in segments}
    kept = [offset for offset in usable if offset in bases or offset == usable[-1]]
    for offset in snapshots:
        if offset not in kept:
            folder.disk.unlink(folder.join(offset_name(offset, SNAPSHOT_SUFFIX)))
    if any(offset > offsets.stop for offset in snapshots):
        folder.disk.fsync_dir(folder.path)
    return kept


def load_snapshot(
    producers: ProducerState, folder: Folder, offset: int, now_ms: int = 0, expiration_ms: int = MAX_LONG
) -> bool:
    """Load the snapshot at `offset`; returns False if it is lost or damaged. Raises OSError."""
    path = folder.join(offset_name(offset, SNAPSHOT_SUFFIX))
    try:
        producers.load(folder.disk.read_bytes(path), offset, now_ms, expiration_ms)
    except FileNotFoundError:
        return False
    except SnapshotCorruption as error:
        logger.warning("%s: %s; using an older one and the log instead", path, error)
        return False
    return True


def _load_newest(producers: ProducerState, folder: Folder, now_ms: int, expiration_ms: int) -> bool:
    offsets = producers.snapshot_offsets
    while offsets:
        if load_snapshot(producers, folder, offsets[-1], now_ms, expiration_ms):
            return True
        with contextlib.suppress(FileNotFoundError):
            folder.disk.unlink(folder.join(offset_name(offsets[-1], SNAPSHOT_SUFFIX)))
        offsets.pop()
    return False


def reload_producers(
    producers: ProducerState,
    folder: Folder,
    segments: Sequence[Segment],
    offsets: LogOffsets,
    now_ms: int,
    expiration_ms: int,
) -> None:
    """Revert to a snapshot before a truncation to `offsets`, and replay from there. Raises OSError."""
    left = range(offsets.log_start_offset, offsets.log_end_offset)
    if len(producers) or producers.snapshot_offsets:
        producers.clear(left.start)
        producers.snapshot_offsets = _sort_out(folder, segments, producers.snapshot_offsets, left)
        if not _load_newest(producers, folder, now_ms, expiration_ms):
            _replay_durable(producers, folder, segments, offsets.recovery_point)
        replay_producers(producers, segments, left.stop)
    producers.map_end_offset = left.stop


def replay_producers(
    producers: ProducerState,
    segments: Sequence[Segment],
    end_offset: int | None,
    aborted: Callable[[CompletedTransaction], object] | None = None,
) -> None:
    """Apply the batches from the state's end to `end_offset`, or to the end of the log.

    `aborted` is called with each transaction that a marker among them aborted. Raises OSError.
    """
    from_offset = producers.map_end_offset
    end = MAX_LONG if end_offset is None else end_offset
    for number, segment in enumerate(segments):
        is_before = number + 1 < len(segments) and segments[number + 1].base_offset <= from_offset
        outline = None if is_before or from_offset >= end else segment.search.find_offset(from_offset)
        if outline is None or segment.base_offset >= end:
            continue
        file = segment.data.descriptor.file()
        position, _, _, _ = outline
        while position < segment.data.size_bytes:
            header = header_of_any(file.read(HEADER_SIZE, position), 0)
            if header is None:
                break
            size = header[BATCH_LENGTH] + LOG_OVERHEAD
            base_offset = header[BASE_OFFSET]
            # A log may start within a batch; all of that batch counts, as for a consumer.
            holds_more = base_offset + header[LAST_OFFSET_DELTA] >= from_offset
            if header[PRODUCER_ID] != NO_PRODUCER_ID and holds_more and base_offset < end:
                if not header[ATTRIBUTES] & CONTROL_MASK:
                    producers.update(header, base_offset, header[MAX_TIMESTAMP])
                else:
                    completed = producers.end_transaction(header, base_offset, file.read(size, position))
                    if completed is not None and aborted is not None:
                        aborted(completed)
            position += size
    producers.map_end_offset = end


def snapshot_is_due(producers: ProducerState, offset: int) -> bool:
    """Return whether a clean start needs a snapshot at `offset`, the log end: none exists, and producers do."""
    snapshots = producers.snapshot_offsets
    return snapshots[-1] < offset if snapshots else len(producers) > 0


def write_producers(producers: ProducerState, folder: Folder, offset: int) -> str | None:
    """Write the state as of `offset`, the log end, without a sync; returns the new file's path.

    None if no snapshot is due. Raises OSError.
    """
    snapshots = producers.snapshot_offsets
    if not snapshot_is_due(producers, offset):
        return None
    path = folder.join(offset_name(offset, SNAPSHOT_SUFFIX))
    write_unsynced(folder.disk, path, producers.encode())
    snapshots.append(offset)
    return path


def remove_producers(producers: ProducerState, folder: Folder, offsets: set[int] | None = None) -> None:
    """Remove the snapshots at `offsets` of deleted segments, except the newest; all if None.

    Raises OSError.
    """
    snapshots = producers.snapshot_offsets
    gone = [offset for offset in snapshots if offsets is None or (offset in offsets and offset != snapshots[-1])]
    for offset in gone:
        folder.disk.unlink(folder.join(offset_name(offset, SNAPSHOT_SUFFIX)))
    producers.snapshot_offsets = [offset for offset in snapshots if offset not in gone]
