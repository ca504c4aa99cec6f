"""Replacement segments with another replica's batches, for damaged ones.

Each damaged segment is replaced by one with the same base offset, so that references to it (producer snapshots, the
rest of the log) stay valid. The files are `.cleaned` ones, durable when `complete` returns; the cleaner's swap
(`log.log_cleaning`) makes them a part of the log. All of this blocks and belongs in the pool, one call at a time; it
shares no open file with the log.

Invariants:
- Written batches have a valid CRC, rising offsets, and are within their segments.
- Without `gaps_allowed` no offset between the first and the last is missing.

The source of the batches is `replica.segment_repair`. Messages of formats v0 and v1 are not supported.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.disk import Disk
from ottla.record.batch import (
    BASE_OFFSET,
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    MAGIC_V2,
    PARTITION_LEADER_EPOCH,
)
from ottla.record.errors import CorruptBatch
from ottla.record.validate import check_replicated_batch
from ottla.storage.compaction.cleaning import CleanedGroup
from ottla.storage.compaction.rewriting import Output
from ottla.storage.compaction.sources import Source
from ottla.storage.files.descriptors import Descriptors, Folder
from ottla.storage.files.log_config import MAX_INT
from ottla.storage.segment.transactions import CompletedTransaction

_OPEN_FILES = 16


class Replacement:
    """Writer of the replacement segments of one repair."""

    __slots__ = (
        "_aborted",
        "_folder",
        "_gaps_allowed",
        "_index_interval_bytes",
        "_number",
        "_output",
        "_outputs",
        "_sources",
        "_started",
        "_written_bytes",
        "epochs",
        "next_offset",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        sources: Sequence[Source],
        aborted: Sequence[CompletedTransaction],
        *,
        index_interval_bytes: int,
        gaps_allowed: bool,
    ) -> None:
        """`sources` are adjacent segments of the log, at least one; `aborted` are the entries of their transaction
        indexes.
        """
        self._folder = Folder(Descriptors(disk, _OPEN_FILES), directory)
        self._sources = sources
        self._aborted = {transaction.last_offset: transaction for transaction in aborted}
        self._index_interval_bytes = index_interval_bytes
        self._gaps_allowed = gaps_allowed
        self._number = -1
        self._output: Output | None = None
        self._outputs: list[int] = []
        self._started = False
        self._written_bytes = 0
        self.next_offset = sources[0].base_offset
        """Offset behind the last written batch."""
        self.epochs: list[tuple[int, int]] = []
        """(leader epoch, offset of its first batch) of the written batches, rising."""

    @property
    def end_offset(self) -> int:
        """Offset behind the range of the segments."""
        return self._sources[-1].next_base_offset

    def write(self, data: bytes) -> None:
        """Write the whole batches of `data` below the end. Raises KafkaError CORRUPT_MESSAGE, and OSError.

        The first may begin before the requested offset: the other log may start within it.
        """
        position, end = 0, len(data)
        with memoryview(data) as view:
            while end - position > MAGIC_POSITION:
                size = int.from_bytes(data[position + 8 : position + 12], "big", signed=True) + LOG_OVERHEAD
                if size > end - position:
                    return
                header = check_replicated_batch(data, view, position, end)
                if header[BASE_OFFSET] >= self.end_offset:
                    self.next_offset = self.end_offset
                    return
                if header[MAGIC] != MAGIC_V2:
                    raise KafkaError(
                        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "messages of formats v0 and v1 cannot be repaired"
                    )
                last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
                self._place(header[BASE_OFFSET], last_offset).write(view[position : position + size])
                self._note(header[BASE_OFFSET], last_offset, header[PARTITION_LEADER_EPOCH])
                self._written_bytes += header[BATCH_LENGTH] + LOG_OVERHEAD
                position += size

    def _place(self, base_offset: int, last_offset: int) -> Output:
        """Return the segment of a batch, created for its first batch."""
        gap = base_offset > self.next_offset and self._started and not self._gaps_allowed
        if base_offset < self.next_offset or gap:
            raise CorruptBatch(f"a batch at offset {base_offset} came where {self.next_offset} is due")
        output = self._output
        while output is None or base_offset >= self._sources[self._number].next_base_offset:
            output = self._begin_next()
        if last_offset >= self._sources[self._number].next_base_offset:
            raise CorruptBatch(f"a batch of offsets {base_offset} to {last_offset} reaches into the next segment")
        return output

    def _note(self, base_offset: int, last_offset: int, leader_epoch: int) -> None:
        self._started = True
        self.next_offset = last_offset + 1
        if leader_epoch >= 0 and (not self.epochs or leader_epoch > self.epochs[-1][0]):
            self.epochs.append((leader_epoch, base_offset))

    def _begin_next(self) -> Output:
        self._end_output()
        self._number += 1
        base_offset = self._sources[self._number].base_offset
        output = self._output = Output(self._folder, base_offset, self._index_interval_bytes, MAX_INT, self._aborted)
        return output

    def _end_output(self) -> None:
        output, self._output = self._output, None
        if output is not None:
            output.complete()
            self._outputs += [segment.base_offset for segment in output.segments]

    def complete(self) -> CleanedGroup:
        """Make all segments durable, including empty ones. Raises OSError."""
        while self._number + 1 < len(self._sources):
            self._begin_next()
        self._end_output()
        return CleanedGroup(self._sources, self._outputs, self._written_bytes, clean_offset=0)
