"""Source segments of a cleaning pass: their batches in bounded memory, and their grouping.

The files belong to a running log, below its active segment; they are only read here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ottla.common.platform.disk import File
from ottla.record.batch import HEADER_SIZE, LENGTH_POSITION, LOG_OVERHEAD, BatchView
from ottla.record.errors import CorruptBatch
from ottla.record.legacy.stored import iter_views
from ottla.storage.files.descriptors import Folder
from ottla.storage.files.log_config import MAX_INT
from ottla.storage.files.names import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, offset_name
from ottla.storage.segment.index import IndexCorruption
from ottla.storage.segment.transaction_index import ENTRY
from ottla.storage.segment.transactions import CompletedTransaction


class Source(NamedTuple):
    """A complete segment of the log."""

    base_offset: int
    next_base_offset: int
    """Base offset of the next segment."""
    size_bytes: int
    largest_index_bytes: int
    """Size of its two indexes."""
    mtime_ms: int
    """Last write, the time of records without a timestamp; the rewritten segment inherits it."""


def group(sources: Sequence[Source], segment_bytes: int, segment_index_bytes: int) -> list[list[Source]]:
    """Group neighbours that together fit into one segment; each group becomes one segment, or a few."""
    groups: list[list[Source]] = []
    size = index_size = 0
    for source in sources:
        size += source.size_bytes
        index_size += source.largest_index_bytes
        if (
            groups
            and size <= segment_bytes
            and index_size <= segment_index_bytes
            and (not source.size_bytes or source.next_base_offset - 1 - groups[-1][0].base_offset <= MAX_INT)
        ):
            groups[-1].append(source)
        else:
            groups.append([source])
            size, index_size = source.size_bytes, source.largest_index_bytes
    return groups


def source_path(folder: Folder, source: Source) -> str:
    """Paths of the data file."""
    return folder.join(offset_name(source.base_offset, LOG_SUFFIX))


def batches(
    folder: Folder, source: Source, chunk_bytes: int, has_read: Callable[[int], object]
) -> Iterator[tuple[int, BatchView]]:
    """Return (position in the file, batch, or message of format v0 or v1) of a segment in order.

    Read in chunks of `chunk_bytes`, or of one batch if it is larger. `has_read` is called with the size of each
    chunk. Raises OSError, and KafkaError if the segment is damaged.
    """
    path = source_path(folder, source)
    file = folder.disk.open(path, read_only=True)
    try:
        position, next_offset = 0, source.base_offset
        while position < source.size_bytes:
            chunk = _chunk(file, position, source.size_bytes, chunk_bytes)
            has_read(len(chunk))
            end = 0
            for batch in iter_views(chunk):
                if batch.base_offset < next_offset or batch.last_offset_delta < 0:
                    raise CorruptBatch(f"{path}: offset {batch.base_offset} follows {next_offset - 1}", position + end)
                next_offset = batch.next_offset
                end = batch.end
                yield position + batch.position, batch
            if not end:
                raise CorruptBatch(f"{path}: no whole batch", position)
            position += end
        if next_offset > source.next_base_offset:
            raise CorruptBatch(f"{path} reaches to offset {next_offset - 1}, which the next segment begins with or has")
    finally:
        file.close()


def _chunk(file: File, position: int, end: int, chunk_bytes: int) -> bytes:
    """Read at least one batch. Raises OSError if the file ends before."""
    left = end - position
    chunk = file.read(min(max(chunk_bytes, HEADER_SIZE), left), position)
    size = int.from_bytes(chunk[LENGTH_POSITION:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
    if len(chunk) < size <= left:
        chunk = file.read(size, position)
    return chunk


def aborted_transactions(folder: Folder, base_offsets: Sequence[int]) -> list[CompletedTransaction]:
    """Return the entries of the transaction indexes of these segments. Raises OSError, IndexCorruption."""
    found = []
    for base_offset in base_offsets:
        path = folder.join(offset_name(base_offset, TRANSACTION_INDEX_SUFFIX))
        try:
            data = folder.disk.read_bytes(path)
        except FileNotFoundError:
            continue
        if len(data) % ENTRY.size:
            raise IndexCorruption(f"{path}: {len(data)} bytes are not a multiple of the entry size")
        for version, *entry in ENTRY.iter_unpack(data):
            transaction = CompletedTransaction(*entry)
            if version != 0 or not 0 <= transaction.first_offset < transaction.last_offset >= base_offset:
                raise IndexCorruption(f"{path}: {transaction} is not an aborted transaction of this segment")
            found.append(transaction)
    return found
