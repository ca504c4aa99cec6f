"""A group of segments written anew, with what stays of their batches.

The files have the suffix `.cleaned` until the log takes them in (`swap`), and are durable before. Offsets and positions
of a segment are numbers of 31 bits: where what stays does not fit into one segment, another begins at its batch.

What of a group may stay as it is stays: nothing is written before the first batch that differs, and segments before it
take part only where they hold no more bytes than what comes behind them (`_begin`). So do those of a group of which
everything stays. Thus what nothing is dropped of is moved only together with as many bytes, which bounds how often: by
the logarithm of what one segment may hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.common.disk import Buffer
from ottla.record.batch import BatchView
from ottla.storage.cleaner.retention import BatchFilter
from ottla.storage.cleaner.sources import Source, batches
from ottla.storage.cleaner.transactions import CleanedTransactions
from ottla.storage.descriptors import Folder
from ottla.storage.log_config import MAX_INT
from ottla.storage.names import CLEANED_SUFFIX
from ottla.storage.segment import Segment
from ottla.storage.transactions import CompletedTransaction

_WRITE_BYTES = 1024 * 1024


class Output:
    """The segments that a group becomes, in their order."""

    __slots__ = ("_aborted", "_folder", "_index_interval_bytes", "_largest_bytes", "_notes", "_waiting", "segments")

    def __init__(
        self,
        folder: Folder,
        base_offset: int,
        index_interval_bytes: int,
        largest_bytes: int,
        aborted: dict[int, CompletedTransaction],
    ) -> None:
        """Make the first, at the base offset of the group. Raises OSError.

        `aborted` has transactions that are to be noted with their marker, by the offset of that.
        """
        self._folder = folder
        self._aborted = aborted
        self._index_interval_bytes = index_interval_bytes
        self._largest_bytes = largest_bytes
        self._waiting = bytearray()
        self._notes: list[tuple[int, int, int, int]] = []
        self.segments = [self._create(base_offset)]

    def _create(self, base_offset: int) -> Segment:
        return Segment.create(self._folder, base_offset, 0, self._index_interval_bytes, CLEANED_SUFFIX)

    def write(self, data: Buffer) -> None:
        """Append a batch. Raises OSError."""
        batch = BatchView(data)
        segment = self.segments[-1]
        position = segment.size_bytes + len(self._waiting)
        size = len(data)
        if position and (position + size > self._largest_bytes or batch.last_offset - segment.base_offset > MAX_INT):
            self.complete()
            segment = self._create(batch.base_offset)
            self.segments.append(segment)
            position = 0
        self._waiting += data
        self._notes.append((position, size, batch.last_offset, batch.max_timestamp))
        aborted = self._aborted.pop(batch.last_offset, None)
        if aborted is not None:
            segment.note_aborted(aborted)
        if len(self._waiting) >= _WRITE_BYTES:
            self._write_waiting()

    def _write_waiting(self) -> None:
        segment = self.segments[-1]
        if self._waiting:
            segment.append(self._waiting, len(self._waiting))
        for note in self._notes:
            segment.note_batch(*note)
        self._waiting = bytearray()
        self._notes.clear()

    def complete(self) -> None:
        """Make the last segment durable and let go of its files. Raises OSError."""
        self._write_waiting()
        segment = self.segments[-1]
        segment.become_inactive()
        segment.log_descriptor.file().fsync()
        for index in segment.indexes_to_sync():
            index.file().fsync()
        segment.close()


def rewrite(
    group: Sequence[Source],
    folder: Folder,
    batch_filter: BatchFilter,
    transactions: CleanedTransactions,
    *,
    chunk_bytes: int,
    index_interval_bytes: int,
    has_read: Callable[[int], object],
    largest_bytes: int = MAX_INT,
) -> tuple[Sequence[Source], list[Segment]]:
    """The end of `group` that is written anew, and the durable segments, suffixed, that take its place.

    None and none where all of it stays as it is. `has_read` is told of bytes that were read. Raises OSError,
    IndexCorruption, and KafkaError where a batch is damaged or of an old format; files that were begun are left there.
    """
    kept: dict[int, CompletedTransaction] = {}
    transactions.kept = lambda transaction: kept.update({transaction.last_offset: transaction})
    output: Output | None = None
    begin = _begin(group, len(group) - 1)

    def begun_at(number: int) -> Output:
        return Output(folder, group[number].base_offset, index_interval_bytes, largest_bytes, kept)

    def copy(sources: Sequence[Source], output: Output, end_offset: int) -> None:
        for source in sources:
            _copy_until(end_offset, folder, source, output, chunk_bytes=chunk_bytes, has_read=has_read)

    for number, source in enumerate(group):
        for batch in batches(folder, source, chunk_bytes, has_read):
            left = batch_filter.apply(batch)
            if output is None:
                if isinstance(left, memoryview):
                    continue
                begin = _begin(group, number)
                output = begun_at(begin)
                copy(group[begin : number + 1], output, batch.base_offset)
            if left is not None:
                output.write(left)
    if output is None:
        if begin == len(group) - 1:
            return [], []
        output = begun_at(begin)
        copy(group[begin:], output, group[-1].next_base_offset)
    output.complete()
    return group[begin:], output.segments


def _begin(group: Sequence[Source], last: int) -> int:
    """The first of the segments up to number `last` that is no larger than those behind it; `last` without one."""
    behind = sum(source.size_bytes for source in group)
    for number, source in enumerate(group[:last]):
        behind -= source.size_bytes
        if source.size_bytes <= behind:
            return number
    return last


def _copy_until(
    offset: int, folder: Folder, source: Source, output: Output, *, chunk_bytes: int, has_read: Callable[[int], object]
) -> None:
    """Take over the batches before `offset`, of which everything stays."""
    for batch in batches(folder, source, chunk_bytes, has_read):
        if batch.base_offset >= offset:
            return
        output.write(memoryview(batch.buffer)[batch.position : batch.end])
