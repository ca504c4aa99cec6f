"""Key filters of one segment, built from its batches in a process of the log cleaner.

The segment is closed; it may be truncated or replaced by its owner meanwhile. The file is written only if size and
modification time of the segment are those of the beginning.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from ottla.common.errors import ErrorCode, KafkaError
from ottla.record.batch import MAGIC_V2, BatchView, unsupported_magic
from ottla.record.keys import key_hashes
from ottla.storage.compaction.retention import batch_records
from ottla.storage.compaction.sources import Source, batches, source_path
from ottla.storage.files.descriptors import Folder
from ottla.storage.files.names import KEY_FILTER_SUFFIX, offset_name
from ottla.storage.segment.key_filter import (
    MAX_FILE_BYTES,
    SECRET,
    Block,
    SegmentIdentity,
    format_key_filters,
    read_key_filters,
)

BLOCK_BYTES = 1024 * 1024
"""Stored bytes of a block; a search reads a whole block for one record."""
BLOCK_KEYS = 1 << 16
NO_TIMES = (0, 0)


def ensure_key_filters(
    folder: Folder, source: Source, chunk_bytes: int, max_body_bytes: int, has_read: Callable[[int], object]
) -> None:
    """Write the file of a segment, unless it has a valid one.

    Raises OSError, and KafkaError for a damaged batch, messages of format v0 or v1, or too many keys.
    """
    path = folder.join(offset_name(source.base_offset, KEY_FILTER_SUFFIX))
    identity = SegmentIdentity(source.base_offset, source.next_base_offset, source.size_bytes, source.mtime_ms)
    if read_key_filters(folder.disk, path, identity) is not None:
        return
    blocks: list[Block] = []
    block = _BlockBuilder(source.base_offset)
    for position, batch in batches(folder, source, chunk_bytes, has_read):
        if position - block.position >= BLOCK_BYTES or len(block.hashes) >= BLOCK_KEYS:
            blocks.append(block.finished())
            block = _BlockBuilder(batch.base_offset, position)
        block.add(batch, max_body_bytes)
    data = format_key_filters(identity, [*blocks, block.finished()])
    segment_path = source_path(folder, source)
    if (folder.disk.size(segment_path), folder.disk.mtime_ms(segment_path)) != (source.size_bytes, source.mtime_ms):
        return  # its owner changed it: the next task is about the segment as it is then
    if len(data) > MAX_FILE_BYTES:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"its key filters would exceed {MAX_FILE_BYTES} bytes")
    folder.disk.write_atomic(path, data)


class _BlockBuilder:
    """A block in progress."""

    def __init__(self, start: int, position: int = 0) -> None:
        self.position = position
        self.hashes: array[int] = array("Q")
        self._start = start
        self._times: tuple[int, int] | None = None
        self._records = 0
        self._is_transactional = False

    def add(self, batch: BatchView, max_body_bytes: int) -> None:
        if batch.magic != MAGIC_V2:
            raise unsupported_magic(batch.magic, batch.position)
        if batch.is_control:
            return
        _, body, rows = batch_records(batch, max_body_bytes)
        if not batch.records_count:
            return
        self.hashes.extend(key_hashes(SECRET, body, rows))
        oldest, newest = min(batch.base_timestamp, batch.max_timestamp), batch.max_timestamp
        before = self._times or (oldest, newest)
        self._times = min(before[0], oldest), max(before[1], newest)
        self._records += batch.records_count
        self._is_transactional |= batch.is_transactional

    def finished(self) -> Block:
        times = self._times or NO_TIMES
        return Block(self._start, *times, self._records, self._is_transactional, self.hashes)
