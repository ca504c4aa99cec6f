"""Aborted transactions of a log: those that a read_committed reader needs, and rebuilding of their indexes.

A lost or damaged `.txnindex` is rebuilt from the log, which contains every marker. The transactions that the markers
end are known from a producer snapshot at or before the segment and the batches after it.

The file of one segment is in `transaction_index`, filtering by readers in `record.transactions`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from ottla.common.logs import RATE_LIMITED
from ottla.storage.files.descriptors import Folder
from ottla.storage.files.off_loop import Known
from ottla.storage.log.log_segments import LogOffsets, LogSegments
from ottla.storage.log.producer_files import load_snapshot, replay_producers
from ottla.storage.log.producer_state import ProducerState
from ottla.storage.segment.health import LogHealth
from ottla.storage.segment.index import IndexCorruption
from ottla.storage.segment.results import ReadResult
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)

ListedTransactions = Sequence[tuple[int, int]]
"""(producer id, first offset) of each, as in a Fetch response."""


class AbortedTransactions:
    """Aborted transactions of one log."""

    __slots__ = ("_folder", "_health", "_offsets", "_producers", "_segments")

    def __init__(
        self,
        segments: LogSegments,
        offsets: LogOffsets,
        producers: ProducerState,
        folder: Folder,
        health: LogHealth,
    ) -> None:
        self._segments = segments
        self._offsets = offsets
        self._producers = producers
        self._folder = folder
        self._health = health

    def counts(self) -> Iterator[tuple[int, int]]:
        """Return (base offset, number of entries) of the segments with an index."""
        for segment in self._segments.in_order:
            if segment.aborted.index is not None:
                yield segment.base_offset, segment.aborted.index.entry_count

    def within(self, offset: int, found: ReadResult, max_offset: int, known: Known | None = None) -> ListedTransactions:
        """Return those that overlap a read from `offset` on, below `max_offset`, and maybe a few behind it.

        Raises KafkaError KAFKA_STORAGE_ERROR, and, with `known`, `WouldBlock` instead of blocking.
        """
        if found.records is None or not self._segments.with_aborted:
            return ()
        descriptors = self._folder.descriptors
        descriptors.known = known
        try:
            return self._collect(offset, found, found.position + found.records.length, max_offset)
        except OSError as error:
            raise self._health.read_error(error) from error
        finally:
            descriptors.known = None

    def _collect(self, offset: int, found: ReadResult, end_position: int, max_offset: int) -> ListedTransactions:
        segments = self._segments
        number = segments.number_of(found.segment_base_offset)
        upper = segments[number].search.offset_behind(end_position)
        if upper is None:
            bases = segments.base_offsets
            upper = bases[number + 1] if number + 1 < len(bases) else self._offsets.log_end_offset
        upper = min(upper, max_offset)
        listed: list[tuple[int, int]] = []
        for segment in segments.in_order[number:]:
            index = segment.aborted.index
            if index is None:
                continue
            count = len(listed)
            try:
                complete = index.collect(offset, upper, listed)
            except (IndexCorruption, FileNotFoundError) as error:
                logger.warning("%s; rebuilding the index", error, extra=RATE_LIMITED)
                del listed[count:]
                self.rebuild((segment,))
                index = segment.aborted.index
                complete = index is not None and index.collect(offset, upper, listed)
            if complete:
                break
        return listed

    def rebuild(self, segments: Sequence[Segment]) -> None:
        """Rebuild the indexes of these segments. Rare, and done in one step: it blocks even if the caller must not.

        Raises OSError.
        """
        descriptors = self._folder.descriptors
        known, descriptors.known = descriptors.known, None
        try:
            in_order = self._segments.in_order
            rebuild_aborted(self._folder, in_order, segments, self._producers.snapshot_offsets)
            self._segments.with_aborted |= any(segment.aborted.index is not None for segment in segments)
        finally:
            descriptors.known = known


def rebuild_aborted(
    folder: Folder, segments: Sequence[Segment], damaged: Iterable[Segment], snapshots: Iterable[int]
) -> None:
    """Rebuild the transaction indexes of `damaged`, a part of `segments`, which are all of a log in order.

    `snapshots` are the offsets of the producer snapshots that may exist. Raises OSError.
    """
    wanted = sorted(damaged, key=lambda segment: segment.base_offset)
    if not wanted:
        return
    for segment in wanted:
        segment.aborted.clear()
    first = wanted[0].base_offset
    state = ProducerState(segments[0].base_offset)
    for offset in sorted(snapshots, reverse=True):
        if offset <= first and load_snapshot(state, folder, offset):
            break
    for segment in wanted:
        number = segments.index(segment)
        end = segments[number + 1].base_offset if number + 1 < len(segments) else None
        replay_producers(state, segments, segment.base_offset)
        replay_producers(state, segments, end, aborted=segment.aborted.note)
        segment.aborted.sync()  # no later flush of a complete segment would sync it
    folder.disk.fsync_dir(folder.path)
