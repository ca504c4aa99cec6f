"""One cleaning pass over a partition: read the latest offset of each key, then rewrite each group of segments.

A pass reads the dirty part of the log into the offset map, as far as the map has room, and then rewrites the log from
its beginning up to there. It only reads the log's files and writes `.cleaned` ones, so it runs in another process than
the broker, or step by step in a simulator. The owner of the log swaps each group in before the next one starts, so that
at most one group temporarily needs twice its space.

The selection of logs and cleanable ranges, and the swap, are elsewhere.
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
    """Range to clean and the settings to clean it by."""

    sources: Sequence[Source]
    """All segments below `end_offset`, from the first of the log on; it is the base offset of the next."""
    later_base_offsets: Sequence[int]
    """Base offsets of later segments, where transactions that began before may end."""
    log_start_offset: int
    """Offsets below, in the first segment, were deleted: the state of the log does not contain them."""
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
    """Segments that `outputs`, base offsets of durable `.cleaned` files, replace. Empty if all segments stay."""

    sources: Sequence[Source]
    outputs: Sequence[int]
    output_bytes: int
    clean_offset: int
    """Offset up to which the log is clean after the swap. The pass knows all keys behind its first dirty offset, so
    records below both offsets supersede nothing there.
    """


class Cleaning:
    """One cleaning pass, from its beginning to its end."""

    __slots__ = ("_aborted", "_folder", "_has_read", "_map", "_round")

    def __init__(self, cleaned: Round, folder: Folder, has_read: Callable[[int], object]) -> None:
        """Read the dirty part. `has_read` is called with the size of each chunk, and may wait.

        Raises OSError, MemoryError, IndexCorruption, and KafkaError for a damaged batch.
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
        """Offset up to which the log is clean after all swaps; start of the next pass."""
        return self._map.latest_offset + 1

    @property
    def map_utilization(self) -> float:
        """Used fraction of the offset map, 0 to 1."""
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
                    pass  # deleted records supersede nothing
                elif batch.is_control:
                    transactions.ends_nothing(batch)
                elif not transactions.is_aborted(batch) and batch.last_offset >= first:
                    base_offset, body, rows = batch_records(batch, cleaned.max_body_bytes)
                    if base_offset < next_offset:  # within a wrapper, which headers do not show
                        raise CorruptBatch(f"offset {base_offset} follows after {next_offset - 1}", batch.position)
                    if not offset_map.note(body, rows, base_offset, first):
                        return  # the map is full: this pass ends here, and the next one continues
                next_offset = batch.next_offset
                offset_map.reached(batch.last_offset)
            offset_map.reached(source.next_base_offset - 1)

    def groups(self) -> Iterator[CleanedGroup]:
        """Rewrite the groups, one with each step. Raises as the constructor does, and then leaves `.cleaned` files."""
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
            yield CleanedGroup(replaced, outputs, sum(segment.data.size_bytes for segment in segments), clean_offset)

    def _old_tombstones_horizon_ms(self) -> int:
        """Return the latest modification time of segments with expired tombstones of formats v0 and v1.

        Their batches have no delete horizon: it is `delete.retention.ms` before the last segment that is already clean.
        """
        cleaned = self._round
        clean = [source for source in cleaned.sources if source.base_offset < cleaned.first_dirty_offset]
        return clean[-1].mtime_ms - cleaned.delete_retention_ms if clean else 0

    def close(self) -> None:
        """Free the memory of the map."""
        self._map.close()
