"""Rewriting of a group of segments with the surviving part of their batches.

The files have the suffix `.cleaned` until the log swaps them in (`swap`), and are durable before. Offsets and positions
of a segment are 31-bit numbers: a batch that does not fit into a segment starts another one.

As much of a group as possible stays unchanged. The rewritten part begins at the earlier of two segments: the first from
which something is dropped, and the first with no more bytes than all segments behind it (`_begin`). So small segments
of a group without dropped records are merged too; without such a segment that group stays unchanged. Unchanged data is
rewritten only together with as many other bytes, which bounds the number of rewrites by the logarithm of the segment
size.

A rewritten segment gets the modification time of its youngest source: retention, lags and the tombstones of old formats
use it for records without a timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.common.platform.disk import Buffer
from ottla.record.batch import BatchView
from ottla.record.legacy.stored import MessageView, view_of_any
from ottla.storage.compaction.retention import BatchFilter
from ottla.storage.compaction.sources import Source, batches, source_path
from ottla.storage.compaction.transactions import CleanedTransactions
from ottla.storage.files.descriptors import Folder
from ottla.storage.files.log_config import MAX_INT
from ottla.storage.files.names import CLEANED_SUFFIX
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.transactions import CompletedTransaction

_WRITE_BYTES = 1024 * 1024
_LARGE_RUN_BYTES = 256 * 1024
"""Size from which a separate system call costs less than copying the bytes through memory."""
_LARGEST_RUN_BYTES = 16 * 1024 * 1024
"""Bytes after which a run ends, which bounds the index data of its batches in memory."""


class _Run:
    """Adjacent unchanged batches of a source."""

    __slots__ = ("end", "is_large", "path", "start")

    def __init__(self, path: str, start: int) -> None:
        self.path = path
        self.start = start
        self.end = start
        self.is_large = False
        """Whether the bytes are copied by reference, without a buffer."""

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


class Output:
    """Output segments of a group, in order."""

    __slots__ = (
        "_aborted",
        "_folder",
        "_index_interval_bytes",
        "_largest_bytes",
        "_notes",
        "_run",
        "_waiting",
        "segments",
    )

    def __init__(
        self,
        folder: Folder,
        base_offset: int,
        index_interval_bytes: int,
        largest_bytes: int,
        aborted: dict[int, CompletedTransaction],
    ) -> None:
        """Create the first output, at the base offset of the group. Raises OSError.

        `aborted` has transactions to add with their marker, by the offset of the marker.
        """
        self._folder = folder
        self._aborted = aborted
        self._index_interval_bytes = index_interval_bytes
        self._largest_bytes = largest_bytes
        self._waiting = bytearray()
        self._notes: list[tuple[int, int, int, int]] = []
        self._run: _Run | None = None
        self.segments = [self._create(base_offset)]

    def _create(self, base_offset: int) -> Segment:
        return Segment.create(self._folder, base_offset, 0, self._index_interval_bytes, CLEANED_SUFFIX)

    def write(self, data: Buffer) -> None:
        """Append a batch. Raises OSError."""
        self._end_run()
        self._place(view_of_any(data))
        self._waiting += data

    def copy(self, path: str, position: int, batch: BatchView) -> None:
        """Append a batch of another file unchanged. Raises OSError."""
        self._place(batch)
        run = self._run
        if run is None or run.path != path or run.end != position:
            self._end_run()
            run = self._run = _Run(path, position)
        run.end += batch.size_bytes
        if run.is_large:
            if run.size_bytes >= _LARGEST_RUN_BYTES:
                self._end_run()
            return
        self._waiting += memoryview(batch.buffer)[batch.position : batch.end]
        if run.size_bytes >= _LARGE_RUN_BYTES:
            run.is_large = True
            del self._waiting[-run.size_bytes :]
            self._append_waiting()

    def _place(self, batch: BatchView) -> None:
        """Record the position of the next batch; starts another segment if the current one is full."""
        run = self._run
        segment = self.segments[-1]
        size = batch.size_bytes
        position = segment.data.size_bytes + len(self._waiting) + (run.size_bytes if run and run.is_large else 0)
        if position and (position + size > self._largest_bytes or batch.last_offset - segment.base_offset > MAX_INT):
            self.complete()
            segment = self._create(batch.first_offset() if isinstance(batch, MessageView) else batch.base_offset)
            self.segments.append(segment)
            position = 0
        self._notes.append((position, size, batch.last_offset, batch.max_timestamp))
        aborted = self._aborted.pop(batch.last_offset, None)
        if aborted is not None:
            segment.aborted.note(aborted)

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None and run.is_large:
            file = self._folder.disk.open(run.path, read_only=True)
            try:
                self.segments[-1].data.append_from(file, run.start, run.size_bytes)
            finally:
                file.close()
            self._write_waiting()
        elif len(self._waiting) >= _WRITE_BYTES:
            self._write_waiting()

    def _append_waiting(self) -> None:
        if self._waiting:
            self.segments[-1].data.append(self._waiting, len(self._waiting))
            self._waiting = bytearray()

    def _write_waiting(self) -> None:
        self._append_waiting()
        for note in self._notes:
            self.segments[-1].indexes.note_batch(*note)
        self._notes.clear()

    def complete(self) -> None:
        """Make the last segment durable and close its files. Raises OSError."""
        self._end_run()
        self._write_waiting()
        segment = self.segments[-1]
        segment.become_inactive()
        segment.data.descriptor.file().fsync()
        for index in segment.indexes.to_sync():
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
    """Return the rewritten tail of `group`, and the durable suffixed segments that replace it.

    Both are empty if all of it stays unchanged. `has_read` is called with the number of bytes read. Raises OSError,
    IndexCorruption, and KafkaError for a damaged batch; incomplete files are left behind.
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
        for position, batch in batches(folder, source, chunk_bytes, has_read):
            left = batch_filter.apply(batch, source.mtime_ms)
            if output is None:
                if isinstance(left, memoryview):
                    continue
                begin = _begin(group, number)
                output = begun_at(begin)
                copy(group[begin : number + 1], output, batch.base_offset)
            if isinstance(left, memoryview):
                output.copy(source_path(folder, source), position, batch)
            elif left is not None:
                output.write(left)
    if output is None:
        if begin == len(group) - 1:
            return [], []
        output = begun_at(begin)
        copy(group[begin:], output, group[-1].next_base_offset)
    output.complete()
    written_ms = max(source.mtime_ms for source in group[begin:])
    for segment in output.segments:
        folder.disk.set_mtime_ms(segment.data.path, written_ms)
    return group[begin:], output.segments


def _begin(group: Sequence[Source], last: int) -> int:
    """Return the first segment, up to number `last`, that is at most as large as those behind it; else `last`."""
    behind = sum(source.size_bytes for source in group)
    for number, source in enumerate(group[:last]):
        behind -= source.size_bytes
        if source.size_bytes <= behind:
            return number
    return last


def _copy_until(
    offset: int, folder: Folder, source: Source, output: Output, *, chunk_bytes: int, has_read: Callable[[int], object]
) -> None:
    """Copy the unchanged batches before `offset`."""
    path = source_path(folder, source)
    for position, batch in batches(folder, source, chunk_bytes, has_read):
        if batch.base_offset >= offset:
            return
        output.copy(path, position, batch)
