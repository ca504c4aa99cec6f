"""Opening a partition's directory: trusting it after a clean stop, checking it after any other.

After an unclean stop every segment from that of the recovery point on is walked batch by batch, CRC included, and cut
at the first byte that is no valid batch: a missing tail and a nonsense tail both
end there. What follows in later segments is dropped. Each cut is logged with file and position.

Invariants:
- Segments that end before the recovery point were synced and are not walked, unless the file of leader epochs is lost;
  the one that holds it is walked from its beginning. Producers without a usable snapshot are read from the log.
- Memory is bounded: a walk holds one chunk, and a batch larger than that is checked in pieces.
- No damage makes the broker unable to start: damaged indexes, snapshots and epoch files are made anew.
- A message of format v0 or v1 is no damage: it is refused by name and never cut.

Left out: `.swap` and `.cleaned` files of a cleaner (the latter are removed), reading message formats v0 and v1.
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass, field

from ottla.common.clock import Clock, Rng
from ottla.common.disk import File
from ottla.common.errors import OperatorError
from ottla.record.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    MIN_BATCH_LENGTH,
    BatchHeader,
)
from ottla.record.checksum import crc32c
from ottla.storage import names
from ottla.storage.checkpoints import CheckpointCorruption, read_epochs, read_partition_metadata
from ottla.storage.descriptors import Folder
from ottla.storage.directories import shown
from ottla.storage.epochs import LeaderEpochCache
from ottla.storage.log import Log, LogEvents
from ottla.storage.log_config import MAX_INT, LogConfig
from ottla.storage.producer_files import load_producers
from ottla.storage.segment import Segment

logger = logging.getLogger(__name__)
_CHUNK_BYTES = 1024 * 1024
_OLD_MAGICS = (0, 1)
_MIN_OLD_MESSAGE = 14
"""CRC, magic, attributes, length of key and value: the size that a message of format v0 has at least."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What the log manager knows about a log before it is opened."""

    config: LogConfig
    clean: bool
    log_start_offset: int = 0
    recovery_point: int = 0
    producer_expiration_ms: int = 86_400_000


@dataclass(slots=True)
class _Walk:
    """What a walk over a segment found: where the valid batches end, and why not later."""

    end: int = 0
    next_offset: int = 0
    defect: str = ""


@dataclass(slots=True)
class _Loading:
    """A log on its way to being one."""

    folder: Folder
    options: LoadOptions
    clock: Clock
    segments: list[Segment] = field(default_factory=list)
    epochs: LeaderEpochCache = field(default_factory=lambda: LeaderEpochCache([]))
    epochs_damaged: bool = False
    snapshots: list[int] = field(default_factory=list)


def load_log(
    folder: Folder, topic: str, partition: int, options: LoadOptions, *, clock: Clock, rng: Rng, events: LogEvents
) -> Log:
    """Open the directory of a partition, which exists; an empty one becomes an empty log.

    Raises OSError, and OperatorError where messages have a format before v2 and for what is no partition's directory.
    """
    loading = _Loading(folder, options, clock)
    listing = folder.disk.listdir(folder.path)
    if topic != names.METADATA_TOPIC:
        _refuse_foreign(folder, listing)
    _take_inventory(loading, listing)
    _refuse_old_formats(loading)
    topic_id = None
    try:
        topic_id = read_partition_metadata(folder.disk, folder.join(names.PARTITION_METADATA))
    except CheckpointCorruption as error:
        logger.warning("%s; the topic id is taken from the metadata log", error)
    _load_epochs(loading)
    end_offset = _clean_end(loading) if options.clean and not loading.epochs_damaged else None
    trusted = end_offset is not None
    if end_offset is None:
        _recover(loading)
        end_offset, _ = loading.segments[-1].find_end()
    start_offset = max(options.log_start_offset, loading.segments[0].base_offset)
    if end_offset < start_offset:
        logger.warning(
            "%s ends at %d, before its start offset %d; it begins empty there", folder.path, end_offset, start_offset
        )
        _drop_segments(loading, 0)
        loading.segments.append(_new_segment(loading, start_offset))
        end_offset = start_offset
    loading.epochs.truncate_from_end(end_offset)
    loading.epochs.truncate_from_start(start_offset)
    loading.segments[-1].load_timestamps()
    recovery_point = end_offset if trusted else min(options.recovery_point, end_offset)
    producers = load_producers(
        folder,
        loading.segments,
        loading.snapshots,
        range(start_offset, end_offset),
        trusted=trusted,
        recovery_point=recovery_point,
        now_ms=clock.time_ms(),
        expiration_ms=options.producer_expiration_ms,
    )
    return Log(
        topic=topic,
        partition=partition,
        topic_id=topic_id,
        folder=folder,
        config=options.config,
        clock=clock,
        rng=rng,
        events=events,
        segments=loading.segments,
        log_start_offset=start_offset,
        log_end_offset=end_offset,
        recovery_point=recovery_point,
        epochs=loading.epochs,
        producers=producers,
        producer_expiration_ms=options.producer_expiration_ms,
        # A process that was killed synced nothing at its end, and a clean stop leaves alone what holds no record.
        names_are_durable=trusted and loading.segments[-1].size_bytes > 0,
    )


def _refuse_foreign(folder: Folder, listing: list[str]) -> None:
    """Raise OperatorError for a directory that only has the name of a partition's; nothing in it was touched."""
    if names.META_PROPERTIES in listing:
        raise OperatorError(
            f"{folder.path} is the data directory of a node and no partition: set log.dirs (--data-dir) to it, and "
            f"node.id to what its {names.META_PROPERTIES} says, or move it elsewhere"
        )
    if listing and not any(
        name.endswith(names.PARTITION_SUFFIXES) or name in names.PARTITION_FILES for name in listing
    ):
        raise OperatorError(
            f"{folder.path} has the name of a partition's directory and holds no file of one ({shown(listing)}): move "
            "it out of log.dirs"
        )


def _take_inventory(loading: _Loading, listing: list[str]) -> None:
    """Find segments and snapshots; remove what a crash left behind."""
    folder, disk = loading.folder, loading.folder.disk
    present = set(listing)
    bases = []
    for name in listing:
        if name.endswith((names.DELETED_SUFFIX, names.CLEANED_SUFFIX, names.TEMPORARY_SUFFIX)):
            disk.unlink(folder.join(name))
            continue
        base = names.parse_offset(name, names.LOG_SUFFIX)
        if base is not None:
            bases.append(base)
        snapshot = names.parse_offset(name, names.SNAPSHOT_SUFFIX)
        if snapshot is not None:
            loading.snapshots.append(snapshot)
        for suffix in (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TRANSACTION_INDEX_SUFFIX):
            base = names.parse_offset(name, suffix)
            if base is not None and names.offset_name(base, names.LOG_SUFFIX) not in present:
                disk.unlink(folder.join(name))
    now = loading.clock.time_ms()
    interval = loading.options.config.index_interval_bytes
    for base in bases:
        path = folder.join(names.offset_name(base, names.LOG_SUFFIX))
        loading.segments.append(Segment(folder, base, disk.size(path), now, interval))
    if not loading.segments:
        loading.segments.append(_new_segment(loading, loading.options.log_start_offset))


def _refuse_old_formats(loading: _Loading) -> None:
    """Raise OperatorError when the log begins with format v0 or v1; what was written later can only be newer."""
    for segment in loading.segments:
        if segment.size_bytes:
            _refuse_old_message(segment.log_descriptor.file(), 0, segment.size_bytes)
            return


def _refuse_old_message(file: File, position: int, end: int) -> None:
    """Raise OperatorError when a whole message of format v0 or v1 begins at `position`.

    Offset, size and magic lie where those of a batch do; the CRC (CRC-32, from the magic on) tells it from nonsense.
    """
    head = file.read(MAGIC_POSITION + 1, position)
    if len(head) <= MAGIC_POSITION:
        return
    magic = head[MAGIC_POSITION]
    size = int.from_bytes(head[LENGTH_POSITION:LOG_OVERHEAD], "big", signed=True)
    if magic not in _OLD_MAGICS or not _MIN_OLD_MESSAGE <= size <= end - position - LOG_OVERHEAD:
        return
    crc = 0
    cursor, stop = position + MAGIC_POSITION, position + LOG_OVERHEAD + size
    while cursor < stop:
        piece = file.read(min(_CHUNK_BYTES, stop - cursor), cursor)
        if not piece:
            return
        crc = zlib.crc32(piece, crc)
        cursor += len(piece)
    if crc == int.from_bytes(head[LOG_OVERHEAD:MAGIC_POSITION], "big"):
        raise OperatorError(
            f"{file.path} holds messages in the old format v{magic} (at position {position}), which Ottla can't read "
            "and leaves as they are: copy the topic with Apache Kafka into one of today's format, or move its "
            "directory out of log.dirs"
        )


def _new_segment(loading: _Loading, base_offset: int) -> Segment:
    interval = loading.options.config.index_interval_bytes
    return Segment.create(loading.folder, base_offset, loading.clock.time_ms(), interval)


def _load_epochs(loading: _Loading) -> None:
    path = loading.folder.join(names.LEADER_EPOCH_CHECKPOINT)
    try:
        loading.epochs = LeaderEpochCache(read_epochs(loading.folder.disk, path))
    except CheckpointCorruption as error:
        logger.warning("%s; the leader epochs are read from the log", error)
        loading.epochs_damaged = True
    if not loading.options.clean and loading.epochs.latest_epoch < 0:
        # Flushing writes the file before anything counts as durable, so there was no flush, or the file is lost.
        loading.epochs_damaged = True


def _clean_end(loading: _Loading) -> int | None:
    """The log end offset after a clean stop; None when the active segment doesn't end with a batch after all."""
    segment = loading.segments[-1]
    end_offset, end = segment.find_end()
    if end == segment.size_bytes:
        return end_offset
    logger.warning("%s: no whole batch at position %d in spite of a clean stop", segment.path, end)
    return None


def _recover(loading: _Loading) -> None:
    """Walk from the segment of the recovery point to the end, rebuilding indexes and epochs."""
    first = 0
    if not loading.epochs_damaged:
        recovery_point = loading.options.recovery_point
        first = max(sum(1 for segment in loading.segments if segment.base_offset <= recovery_point) - 1, 0)
        if first and loading.segments[first].base_offset == recovery_point:
            # Its data was synced while it was active, so it is not cut; its indexes maybe were not.
            _recover_segment(loading, loading.segments[first - 1])
    for number in range(first, len(loading.segments)):
        segment = loading.segments[number]
        walk = _recover_segment(loading, segment)
        if not walk.defect:
            walk.defect = _gap_after(loading, number, walk.next_offset)
        if not walk.defect:
            continue
        logger.warning(
            "%s: cut at position %d, %d bytes dropped, the log ends at offset %d: %s",
            segment.path,
            walk.end,
            segment.size_bytes - walk.end,
            walk.next_offset,
            walk.defect,
        )
        _drop_segments(loading, number + 1)
        file = segment.log_descriptor.file()
        file.truncate(walk.end)
        file.fsync()
        segment.size_bytes = walk.end
        break


def _gap_after(loading: _Loading, number: int, next_offset: int) -> str:
    """Whether a whole tail is missing: the file is shorter than what was written before the next segment began.

    Compaction leaves such gaps on purpose.
    """
    if loading.options.config.compacted or number + 1 >= len(loading.segments):
        return ""
    following = loading.segments[number + 1].base_offset
    return "" if next_offset >= following else f"offsets {next_offset} to {following - 1} are missing"


def _drop_segments(loading: _Loading, first: int) -> None:
    """Remove segments at the end, durably, before the log is cut or grows where they were."""
    if first >= len(loading.segments):
        return
    disk = loading.folder.disk
    for segment in loading.segments[first:]:
        logger.warning("%s: dropped, since the log ends before it", segment.path)
        paths = segment.mark_deleted()
        segment.close()
        for path in paths:
            disk.unlink(path)
    disk.fsync_dir(loading.folder.path)
    del loading.segments[first:]


def _recover_segment(loading: _Loading, segment: Segment) -> _Walk:
    """Check every batch of a segment and build its indexes anew."""
    segment.begin_rebuild()
    file = segment.log_descriptor.file()
    epochs = loading.epochs
    walk = _Walk(next_offset=segment.base_offset)
    for position, header in _ValidBatches(file, segment, walk):
        last_offset = header[0] + header[6]
        segment.note_batch(position, header[1] + LOG_OVERHEAD, last_offset, header[8])
        if header[2] > epochs.latest_epoch:
            epochs.assign(header[2], header[0])
    segment.finish_rebuild()
    return walk


class _ValidBatches:
    """Iterator over (position, header) of a segment's batches, up to the first that is not valid."""

    __slots__ = ("_chunk", "_chunk_position", "_file", "_segment", "_size", "_walk")

    def __init__(self, file: File, segment: Segment, walk: _Walk) -> None:
        self._file = file
        self._segment = segment
        self._size = segment.size_bytes
        self._walk = walk
        self._chunk = b""
        self._chunk_position = 0

    def __iter__(self) -> _ValidBatches:
        return self

    def __next__(self) -> tuple[int, BatchHeader]:
        walk = self._walk
        position = walk.end
        left = self._size - position
        if left == 0:
            raise StopIteration
        if left < HEADER_SIZE:
            _refuse_old_message(self._file, position, self._size)  # which may be shorter than the header of a batch
            return self._stop("the header of a batch is cut short")
        at = position - self._chunk_position
        if at + HEADER_SIZE > len(self._chunk):
            at = self._refill(position)
        header: BatchHeader = BATCH_HEADER.unpack_from(self._chunk, at)
        size = header[1] + LOG_OVERHEAD
        if at + size > len(self._chunk) and 0 < size <= _CHUNK_BYTES:
            at = self._refill(position)
        if header[3] in _OLD_MAGICS:
            _refuse_old_message(self._file, position, self._size)
        defect = self._defect(header, size, left) or self._crc_defect(header, position, at, size)
        if defect:
            return self._stop(defect)
        walk.end = position + size
        walk.next_offset = header[0] + header[6] + 1
        return position, header

    def _refill(self, position: int) -> int:
        self._chunk = self._file.read(min(_CHUNK_BYTES, self._size - position), position)
        self._chunk_position = position
        if len(self._chunk) < HEADER_SIZE:
            raise OSError(f"{self._file.path} is shorter than its size")
        return 0

    def _stop(self, defect: str) -> tuple[int, BatchHeader]:
        self._walk.defect = defect
        raise StopIteration

    def _defect(self, header: BatchHeader, size: int, left: int) -> str:
        if header[3] != MAGIC_V2:
            return f"magic {header[3]} is not 2"
        if header[1] < MIN_BATCH_LENGTH:
            return f"a batch length of {header[1]} is impossible"
        if size > left:
            return f"a batch of {size} bytes is cut short after {left}"
        if header[0] < self._walk.next_offset:
            return f"offset {header[0]} follows after {self._walk.next_offset - 1}"
        if header[6] < 0 or header[0] + header[6] - self._segment.base_offset > MAX_INT:
            return f"a last offset delta of {header[6]} is impossible"
        return ""

    def _crc_defect(self, header: BatchHeader, position: int, at: int, size: int) -> str:
        if at + size <= len(self._chunk):
            crc = crc32c(memoryview(self._chunk)[at + ATTRIBUTES_POSITION : at + size])
        else:
            crc = 0
            cursor, end = position + ATTRIBUTES_POSITION, position + size
            while cursor < end:
                piece = self._file.read(min(_CHUNK_BYTES, end - cursor), cursor)
                if not piece:
                    return "the file ends inside a batch"
                crc = crc32c(piece, crc)
                cursor += len(piece)
        return "" if crc == header[4] else f"the CRC of the batch at offset {header[0]} does not match"
