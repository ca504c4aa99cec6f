"""Opening of a partition's directory: trusted after a clean stop, checked after any other.

After an unclean stop every segment from that of the recovery point on is scanned batch by batch, CRC included, and
truncated at the first invalid byte (`recovery`).

Invariants:
- Segments that end before the recovery point were synced and are not scanned, unless the file of leader epochs is lost;
  the one that contains it is scanned from its beginning. Producers without a usable snapshot are read from the log.
- No damage prevents the broker from starting: damaged indexes, snapshots and epoch files are rebuilt.
- A loss of records is reported to the opener before anything is truncated.
- After a clean stop, a log that does not end where the stop left it is checked as after any other, and an index of
  aborted transactions with another number of entries than the stop recorded is rebuilt.
- An interrupted cleaner swap is completed or reverted before anything else (`log.swap`).

Message formats v0 and v1 are read elsewhere.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import DataDirectoryError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.clock import Clock, Rng
from ottla.record.batch import LEADER_EPOCH_POSITION, MAGIC_V2
from ottla.storage.files import names
from ottla.storage.files.checkpoints import CheckpointCorruption, read_epochs, read_partition_metadata
from ottla.storage.files.damage import Damage
from ottla.storage.files.descriptors import Folder
from ottla.storage.files.directories import shown
from ottla.storage.files.epochs import LeaderEpochCache
from ottla.storage.files.log_config import MAX_LONG, LogConfig
from ottla.storage.log.aborted_transactions import rebuild_aborted
from ottla.storage.log.epoch_repair import add_missing_entries
from ottla.storage.log.log import Log, StoredLog
from ottla.storage.log.log_segments import LogOffsets, LogSegments
from ottla.storage.log.producer_files import load_producers
from ottla.storage.log.swap import finish_swaps
from ottla.storage.segment.outlines import SCAN_BYTES, Outline, outlines_of
from ottla.storage.segment.results import LogEvents
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.recovery.recovery import OnLoss

logger = logging.getLogger(__name__)

_EPOCH_AND_MAGIC = struct.Struct(f">{LEADER_EPOCH_POSITION}xib")


class LoadOptions(NamedTuple):
    """State known to the log manager before a log is opened."""

    config: LogConfig
    clean: bool
    log_start_offset: int = 0
    recovery_point: int = 0
    high_watermark: int = 0
    """The last known high watermark; the log contained all records below it."""
    producer_expiration_ms: int = 86_400_000
    was_cleaned: bool = False
    """Whether offsets may be missing between segments, also in a topic that is no longer compacted."""
    gaps_end: int | None = MAX_LONG
    """End of the range with permitted gaps, in a log that was compacted; None if it was never flushed."""
    is_copy: bool = False
    """Another directory has the log: records missing here are copied again, and are not a loss."""
    aborted_counts: Mapping[int, int] = MappingProxyType({})
    """Number of aborted transactions in the indexes of segments, by base offset, at the clean stop, if known."""


@dataclass(slots=True)
class _LoadState:
    """State of a log while it is loaded."""

    partition: TopicPartition
    folder: Folder
    options: LoadOptions
    clock: Clock
    on_loss: OnLoss
    segments: list[Segment] = field(default_factory=list)
    epochs: LeaderEpochCache = field(default_factory=lambda: LeaderEpochCache([]))
    epochs_damaged: bool = False
    gap_end: int = 0
    snapshots: list[int] = field(default_factory=list)
    unrepaired_damage: list[Damage] = field(default_factory=list)
    aborted_lost: dict[Segment, None] = field(default_factory=dict)
    """Segments with aborted transactions that have to be found again."""
    batches: list[Outline] = field(default_factory=list)
    """All of a small active segment, after a clean stop."""
    last_batch: bytes = b""
    """Beginning of the last batch's header, after a clean stop."""
    producers_end: int = MAX_LONG
    """Offset from which on no batch has a producer id."""
    epochs_are_complete: bool = False
    """Whether a scan of all batches found the leader epochs."""


def load_log(
    folder: Folder, partition: TopicPartition, options: LoadOptions, *, clock: Clock, rng: Rng, events: LogEvents
) -> Log:
    """Open the existing directory of a partition; an empty one becomes an empty log.

    Raises OSError, and OperatorError for message formats before v2 and for a directory that is not a partition's.
    """
    on_loss = _nothing_lost if options.is_copy else partial(events.records_lost, partition)
    loading = _LoadState(partition, folder, options, clock, on_loss)
    found = _tidy_listing(folder, partition).offsets
    _take_inventory(loading, found)
    _load_epochs(loading, has_file=names.LEADER_EPOCH_CHECKPOINT in found)
    end_offset = _clean_end(loading) if options.clean and not loading.epochs_damaged else None
    trusted = end_offset is not None
    if end_offset is None:
        end_offset = _recover(loading, _gaps_end(options, found))
    if end_offset < max(options.recovery_point, options.high_watermark):
        logger.warning("%s ends at offset %d, below its known end: records were lost", folder.path, end_offset)
        loading.on_loss(proved=False)
    rebuild_aborted(folder, loading.segments, loading.aborted_lost, loading.snapshots)
    start_offset = max(options.log_start_offset, loading.segments[0].base_offset)
    if end_offset < start_offset:
        logger.warning(
            "%s ends at %d, before its start offset %d; it restarts empty there", folder.path, end_offset, start_offset
        )
        _restart_empty(loading, start_offset)
        end_offset = start_offset
    loading.epochs.truncate_from_end(end_offset)
    loading.epochs.truncate_from_start(start_offset)
    if trusted:  # a scan has loaded them
        _open_indexes(loading)
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
        none_from=loading.producers_end,
    )
    segments = LogSegments(loading.segments)
    epochs_added = _lacks_epochs(loading, trusted=trusted) and add_missing_entries(
        folder.join(names.LEADER_EPOCH_CHECKPOINT), segments, loading.epochs, range(start_offset, end_offset)
    )
    stored = StoredLog(
        partition,
        _read_topic_id(folder),
        folder,
        segments,
        LogOffsets(start_offset, end_offset, recovery_point),
        loading.epochs,
        producers,
        # A killed process synced nothing at its end, and a clean stop does not touch a log without records.
        names_are_durable=trusted and loading.segments[-1].data.size_bytes > 0,
        unrepaired_damage=loading.unrepaired_damage,
    )
    stored.offsets.gap_end = loading.gap_end
    log = Log(stored, options.config, options.producer_expiration_ms, clock=clock, rng=rng, events=events)
    if epochs_added:
        log.write_epochs_soon()
    return log


def _read_topic_id(folder: Folder) -> Uuid | None:
    try:
        return read_partition_metadata(folder.disk, folder.join(names.PARTITION_METADATA))
    except CheckpointCorruption as error:
        logger.warning("%s; the topic id is taken from the metadata log", error)
        return None


def _lacks_epochs(loading: _LoadState, *, trusted: bool) -> bool:
    """Return whether the leader epoch file may lack an entry: after a clean stop only the last batch is checked."""
    if not trusted:
        return not loading.epochs_are_complete
    if len(loading.last_batch) < _EPOCH_AND_MAGIC.size:
        return False
    leader_epoch, magic = _EPOCH_AND_MAGIC.unpack(loading.last_batch)
    return bool(magic == MAGIC_V2 and leader_epoch > loading.epochs.latest_epoch)


def _gaps_end(options: LoadOptions, found: Mapping[str, Sequence[int]]) -> int:
    """Return the offset up to which offsets may be missing before a segment."""
    if not options.config.compacted and not options.was_cleaned:
        return 0
    if options.gaps_end is not None:
        return options.gaps_end
    # A flush writes the leader epochs before any record counts as durable, and only durable records are cleaned.
    return MAX_LONG if names.LEADER_EPOCH_CHECKPOINT in found else 0


def _nothing_lost(*, proved: bool) -> None:
    """Ignore losses of a copy."""


def _tidy_listing(folder: Folder, partition: TopicPartition) -> names.PartitionListing:
    """Return the file names of a partition, after completing interrupted swaps and deletions. Raises OperatorError."""
    listing = folder.disk.listdir(folder.path)
    found = names.read_listing(listing)
    if partition[0] != names.METADATA_TOPIC:
        _refuse_foreign(folder, listing, is_partition=found.is_partition)
    if found.has_swaps:
        finish_swaps(folder)
        found = names.read_listing(folder.disk.listdir(folder.path))
    for name in found.left_over:
        folder.disk.unlink(folder.join(name))
    return found


def _open_indexes(loading: _LoadState) -> None:
    """Repair or refuse damaged indexes now, rather than at an append; empty ones, as most are, are not opened."""
    active = loading.segments[-1]
    if loading.batches:
        active.search.take_up(loading.batches)
    elif active.data.size_bytes or not active.indexes.are_blank():
        active.search.load_timestamps()


def _refuse_foreign(folder: Folder, listing: list[str], *, is_partition: bool) -> None:
    """Raise OperatorError for a data directory with the name of a partition's; nothing in it was changed."""
    if names.META_PROPERTIES in listing:
        raise DataDirectoryError(
            f"{folder.path} is the data directory of a node, not a partition: set log.dirs (--data-dir) to it and "
            f"node.id to that of its {names.META_PROPERTIES}, or move it elsewhere"
        )
    if not is_partition:
        raise DataDirectoryError(
            f"{folder.path} has the name of a partition's directory but contains no file of one ({shown(listing)}): "
            "move it out of log.dirs"
        )


def _take_inventory(loading: _LoadState, found: Mapping[str, Sequence[int]]) -> None:
    """Find segments and snapshots, from the offsets in file names by suffix; remove indexes that a crash left."""
    folder, disk = loading.folder, loading.folder.disk
    bases = found.get(names.LOG_SUFFIX, ())
    loading.snapshots += found.get(names.SNAPSHOT_SUFFIX, ())
    for suffix in (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TRANSACTION_INDEX_SUFFIX):
        offsets = found.get(suffix, ())
        for base in () if offsets == bases else sorted(set(offsets).difference(bases)):
            disk.unlink(folder.join(names.offset_name(base, suffix)))
    with_aborted = set(found.get(names.TRANSACTION_INDEX_SUFFIX, ()))
    now = loading.clock.time_ms()
    interval = loading.options.config.index_interval_bytes
    for base in bases:
        path = folder.join(names.offset_name(base, names.LOG_SUFFIX))
        segment = Segment(folder, base, disk.size(path), now, interval)
        loading.segments.append(segment)
        is_whole = base not in with_aborted or segment.aborted.take_up()
        if not is_whole or (loading.options.clean and _lacks_aborted(loading.options, segment)):
            loading.aborted_lost[segment] = None
    if not loading.segments:
        loading.segments.append(_new_segment(loading, loading.options.log_start_offset))


def _lacks_aborted(options: LoadOptions, segment: Segment) -> bool:
    """Return whether the index of aborted transactions lacks entries that the clean stop recorded."""
    index = segment.aborted.index
    held, noted = 0 if index is None else index.entry_count, options.aborted_counts.get(segment.base_offset)
    if noted is None or held == noted:
        return False
    logger.warning(
        "the transaction index of %s has %d entries, but had %d at the clean stop; rebuilding it",
        segment.data.path,
        held,
        noted,
    )
    return True


def _new_segment(loading: _LoadState, base_offset: int) -> Segment:
    interval = loading.options.config.index_interval_bytes
    return Segment.create(loading.folder, base_offset, loading.clock.time_ms(), interval)


def _load_epochs(loading: _LoadState, *, has_file: bool) -> None:
    path = loading.folder.join(names.LEADER_EPOCH_CHECKPOINT)
    try:
        if has_file:
            loading.epochs = LeaderEpochCache(read_epochs(loading.folder.disk, path))
    except CheckpointCorruption as error:
        logger.warning("%s; the leader epochs are read from the log", error)
        loading.epochs_damaged = True
    if not loading.options.clean and loading.epochs.latest_epoch < 0:
        # Flushing writes the file before any record counts as durable, so nothing was flushed, or the file is lost.
        loading.epochs_damaged = True


def _clean_end(loading: _LoadState) -> int | None:
    """Return the log end offset after a clean stop; None if the active segment doesn't end with that batch."""
    segment = loading.segments[-1]
    end_offset, end, last_batch = _end_of(loading, segment)
    if end == segment.data.size_bytes:
        loading.last_batch = last_batch
        noted = loading.options.recovery_point
        if end_offset == noted or not end or not noted:
            return end_offset
        logger.warning(
            "%s ends at %d, but ended at %d at the clean stop; scanning it", segment.data.path, end_offset, noted
        )
        return None
    logger.warning("%s: no whole batch at position %d after a clean stop", segment.data.path, end)
    loading.on_loss(proved=False)
    return None


def _end_of(loading: _LoadState, segment: Segment) -> tuple[int, int, bytes]:
    """Return offset and position after the last whole batch, and the beginning of its header.

    A small segment, as most are where there are tens of thousands, is read at once and not opened.
    """
    data = segment.data
    if not data.size_bytes:
        return segment.base_offset, 0, b""
    if data.size_bytes > SCAN_BYTES:
        end_offset, end, position = segment.search.find_end()
        return end_offset, end, data.descriptor.file().read(_EPOCH_AND_MAGIC.size, position) if end else b""
    content = data.descriptor.peek(data.size_bytes)
    batches = loading.batches = list(outlines_of(content))
    if not batches:
        return segment.base_offset, 0, b""
    position, size, last_offset, _ = batches[-1]
    return last_offset + 1, position + size, content[position : position + _EPOCH_AND_MAGIC.size]


def _restart_empty(loading: _LoadState, start_offset: int) -> None:
    from ottla.storage.recovery.recovery import drop_segments  # imported here: rare

    loading.batches = []
    drop_segments(loading.folder, loading.segments, 0)
    loading.segments.append(_new_segment(loading, start_offset))


def _recover(loading: _LoadState, gaps_end: int) -> int:
    """Scan from the segment of the recovery point to the end, rebuilding indexes and epochs; returns the end offset."""
    from ottla.storage.recovery.header_repair import UnchecksummedFields  # imported here: not after a clean stop
    from ottla.storage.recovery.recovery import recover_segment, recover_segments

    options, first = loading.options, 0
    loading.batches = []
    file_entries = loading.epochs.entries()
    # The file may have later epochs without any record, or with records that were truncated.
    loading.epochs.truncate_from_end(options.recovery_point)
    uncovered = UnchecksummedFields(
        loading.partition,
        loading.epochs,
        epochs_known_to=0 if loading.epochs_damaged else options.recovery_point,
        known_end=max(options.recovery_point, options.high_watermark),
        was_compacted=options.config.compacted or options.was_cleaned,
        file_entries=file_entries,
    )
    if not loading.epochs_damaged:
        recovery_point = loading.options.recovery_point
        first = max(sum(1 for segment in loading.segments if segment.base_offset <= recovery_point) - 1, 0)
        if first and loading.segments[first].base_offset == recovery_point:
            # Its data was synced while it was active, so it is not truncated; its indexes may lack entries.
            before = loading.segments[first - 1]
            if recover_segment(loading.segments, first - 1, uncovered).has_transactions:
                loading.aborted_lost[before] = None
    had_epochs = loading.epochs.latest_epoch >= 0
    scan = recover_segments(
        loading.folder, loading.segments, first, uncovered, gaps_end=gaps_end, on_loss=loading.on_loss
    )
    loading.gap_end = scan.gap_end
    if not scan.has_producers:
        loading.producers_end = loading.segments[first].base_offset
    loading.unrepaired_damage = uncovered.unrepaired_damage
    loading.epochs_are_complete = not had_epochs and first == 0 and not loading.unrepaired_damage
    if loading.unrepaired_damage:
        loading.on_loss(proved=False)
    damaged = (*loading.aborted_lost, *scan.with_transactions)
    loading.aborted_lost = {segment: None for segment in damaged if segment in loading.segments}
    return scan.end_offset
