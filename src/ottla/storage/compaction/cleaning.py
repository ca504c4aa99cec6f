"""One round of cleaning of a partition: read which keys are newest, then write each group of segments anew.

A round reads what became dirty since the last one into the offset map, as far as that has room, and then goes over the
log from its beginning to there. It only reads the log's files and writes `.cleaned` ones, so it runs in another process
than the broker, or step by step in a simulator; the owner of the log takes a group in before the next is begun, so that
at most one group needs room twice.

Left out: what may be cleaned and which log is next, and taking the segments in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.record.errors import CorruptBatch
from ottla.storage.compaction.offset_map import OffsetMap
from ottla.storage.compaction.retention import BatchFilter, LastRecord, Rules, batch_records
from ottla.storage.compaction.rewriting import rewrite
from ottla.storage.compaction.sources import Source, aborted_transactions, batches, group
from ottla.storage.compaction.transactions import CleanedTransactions
from ottla.storage.files.descriptors import Folder
from ottla.storage.segment.transactions import CompletedTransaction


class Round(NamedTuple):
    """What is to be cleaned, and by which settings."""

    sources: Sequence[Source]
    """All segments below `end_offset`, from the first of the log on; it is the base offset of the next."""
    later_base_offsets: Sequence[int]
    """Of the segments behind them, where transactions may end that began before."""
    log_start_offset: int
    """What lies below, in the first segment, was deleted: no state of the log knows of it."""
    first_dirty_offset: int
    end_offset: int
    last_records: Mapping[int, LastRecord]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int
    max_body_bytes: int
    secret: bytes
    """`record.keys.SECRET_BYTES` random bytes."""


class CleanedGroup(NamedTuple):
    """Segments whose place `outputs`, base offsets of durable `.cleaned` files, take. Without any all stay."""

    sources: Sequence[Source]
    outputs: Sequence[int]
    output_bytes: int
    clean_offset: int
    """How far the log is clean when they are taken in: the round knows all keys behind its first dirty offset, so what
    lies before both holds nothing that anything there takes the place of."""


class Cleaning:
    """One round, from its beginning to its end."""

    __slots__ = ("_aborted", "_folder", "_has_read", "_map", "_round")

    def __init__(self, cleaned: Round, folder: Folder, has_read: Callable[[int], object]) -> None:
        """Read the dirty part. `has_read` is told of each chunk that was read, and may wait there.

        Raises OSError, MemoryError, IndexCorruption, and KafkaError where a batch is damaged.
        """
        self._round = cleaned
        self._folder = folder
        self._has_read = has_read
        bases = [source.base_offset for source in cleaned.sources]
        self._aborted = aborted_transactions(folder, (*bases, *cleaned.later_base_offsets))
        self._map = OffsetMap(cleaned.dedupe_buffer_bytes, cleaned.load_factor, cleaned.secret)
        self._read_keys(self._aborted)

    @property
    def end_offset(self) -> int:
        """Where the log is clean up to when all groups are taken in; where the next round begins."""
        return self._map.latest_offset + 1

    @property
    def map_utilization(self) -> float:
        """How full the offset map is, 0 to 1."""
        return self._map.utilization

    def _read_keys(self, aborted: Sequence[CompletedTransaction]) -> None:
        cleaned, offset_map = self._round, self._map
        first = cleaned.first_dirty_offset
        offset_map.reached(first - 1)
        transactions = CleanedTransactions(aborted)
        next_offset = 0
        for source in cleaned.sources:
            if source.next_base_offset <= first:
                continue
            for _, batch in batches(self._folder, source, cleaned.io_buffer_bytes, self._has_read):
                if batch.last_offset < cleaned.log_start_offset:
                    pass
                elif batch.is_control:
                    transactions.ends_nothing(batch)
                elif not transactions.is_aborted(batch) and batch.last_offset >= first:
                    base_offset, body, rows = batch_records(batch, cleaned.max_body_bytes)
                    if base_offset < next_offset:  # within a wrapper, where headers don't tell
                        raise CorruptBatch(f"offset {base_offset} follows after {next_offset - 1}", batch.position)
                    if not offset_map.note(body, rows, base_offset, first):
                        return
                next_offset = batch.next_offset
                offset_map.reached(batch.last_offset)
            offset_map.reached(source.next_base_offset - 1)

    def groups(self) -> Iterator[CleanedGroup]:
        """Write the groups anew, one with each step. Raises as the constructor does, with `.cleaned` files left."""
        cleaned = self._round
        rules = Rules(
            cleaned.now_ms,
            cleaned.delete_retention_ms,
            self._old_tombstones_horizon_ms(),
            cleaned.log_start_offset,
            cleaned.end_offset,
            cleaned.last_records,
            cleaned.max_body_bytes,
        )
        transactions = CleanedTransactions(self._aborted)
        batch_filter = BatchFilter(self._map, transactions, rules)
        reached = [source for source in cleaned.sources if source.base_offset < self.end_offset]
        for sources in group(reached, cleaned.segment_bytes, cleaned.segment_index_bytes):
            replaced, segments = rewrite(
                sources,
                self._folder,
                batch_filter,
                transactions,
                chunk_bytes=cleaned.io_buffer_bytes,
                index_interval_bytes=cleaned.index_interval_bytes,
                has_read=self._has_read,
            )
            outputs = [segment.base_offset for segment in segments]
            clean_offset = max(cleaned.first_dirty_offset, min(sources[-1].next_base_offset, self.end_offset))
            yield CleanedGroup(replaced, outputs, sum(segment.size_bytes for segment in segments), clean_offset)

    def _old_tombstones_horizon_ms(self) -> int:
        """When a segment must have been written last for the tombstones of formats v0 and v1 to go, since their batches
        have no horizon: `delete.retention.ms` before the last segment that was cleaned already."""
        cleaned = self._round
        clean = [source for source in cleaned.sources if source.base_offset < cleaned.first_dirty_offset]
        return clean[-1].mtime_ms - cleaned.delete_retention_ms if clean else 0

    def close(self) -> None:
        """Give the memory of the map back."""
        self._map.close()
