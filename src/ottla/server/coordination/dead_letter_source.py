"""Reads of the records that failed in a share group, for their dead letters: in the pool, a bounded number of bytes.

A record that can't be copied, since it was deleted or its batch is unreadable or has an old format, is left out: its
dead letter names the offset only, as in Apache Kafka.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.logs import RATE_LIMITED
from ottla.record.batch import LOG_APPEND_TIME, MAGIC_V2, BatchView, unsupported_magic
from ottla.record.errors import CorruptBatch
from ottla.record.walk import INDEX_WIDTH, index_records, parse_headers
from ottla.replica.partition import Partition
from ottla.server.requests.in_flight import TrackedPool
from ottla.share.dead_letters import SourceRecord
from ottla.storage.files.off_loop import Known, WouldBlock, run_off_loop

logger = logging.getLogger(__name__)

MAX_BYTES = 4 * 1024 * 1024
"""Copied bytes after which further records are left for the next read."""
_READ_UNCOMMITTED = 0


class CopiedParts(NamedTuple):
    """Parts of a record that its dead letter contains."""

    key_and_value: bool
    headers: bool


ReadDone = Callable[["dict[int, SourceRecord]", int, "KafkaError | None"], None]
"""Gets the records by offset, the number of examined offsets, and the error of a broken disk."""


class DeadLetterSource:
    """One read."""

    __slots__ = ("_done", "_known", "_offsets", "_partition", "_parts", "_pool", "_position", "_records", "_size")

    def __init__(
        self, partition: Partition, offsets: Sequence[int], parts: CopiedParts, pool: TrackedPool, done: ReadDone
    ) -> None:
        """`offsets` rise. `done` is called once, possibly within `read`."""
        self._partition = partition
        self._offsets = offsets
        self._parts = parts
        self._pool = pool
        self._done = done
        self._position = 0
        self._size = 0
        self._records: dict[int, SourceRecord] = {}
        self._known: Known = {}

    def read(self) -> None:
        """Read batch by batch, up to the limit."""
        try:
            while self._position < len(self._offsets) and self._size < MAX_BYTES:
                if self._begin():
                    return
        except WouldBlock as needed:
            run_off_loop([needed], self._known, self._pool, self.read)
            return
        except KafkaError as error:
            self._done(self._records, self._position, error)
            return
        self._done(self._records, self._position, None)

    def _begin(self) -> bool:
        """Begin to read the batch of the next offset; False if it does not exist. Raises KafkaError, WouldBlock."""
        try:
            found = self._partition.read(self._offsets[self._position], 1, True, _READ_UNCOMMITTED, self._known)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            found = None
        self._known.clear()
        region = None if found is None else found.records
        if region is None:
            if self._offsets[self._position] >= self._partition.high_watermark:
                # Records below the previous leader's high watermark; a new leader learns it with the next fetches.
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
            self._position += 1
            return False
        rest, parts, limit = self._offsets[self._position :], self._parts, MAX_BYTES - self._size

        def ended(result: tuple[dict[int, SourceRecord], int, int] | None, error: BaseException | None) -> None:
            region.release()
            if result is None:
                self._failed(error)
                return
            records, examined, size = result
            self._records.update(records)
            self._position += examined
            self._size += size
            self.read()

        self._pool.submit(lambda: copy_records(region.read_all(), rest, parts, limit), ended)
        return True

    def _failed(self, error: BaseException | None) -> None:
        if isinstance(error, OSError):
            # A truncation under the read, or a broken disk, which takes the partition offline.
            self._done(self._records, self._position, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            return
        if isinstance(error, InvariantError):
            raise error
        logger.warning(
            "dead letter without the record of %s-%d at offset %d: %s",
            self._partition.topic,
            self._partition.index,
            self._offsets[self._position],
            error,
            extra=RATE_LIMITED,
        )
        self._position += 1
        self.read()


def copy_records(
    data: bytes, offsets: Sequence[int], parts: CopiedParts, limit: int
) -> tuple[dict[int, SourceRecord], int, int]:
    """Copy the records of the batch in `data` that have one of the `offsets`, which rise, up to `limit` bytes.

    Returns the records, the number of examined offsets, at least one, and the copied bytes. Raises KafkaError and
    CorruptBatch for an unreadable batch.
    """
    batch = BatchView(data)
    if batch.magic != MAGIC_V2:
        raise unsupported_magic(batch.magic, 0)
    if not batch.crc_matches():
        raise CorruptBatch("the checksum of the batch does not match", 0)  # a copy would have a valid one
    wanted = [offset for offset in offsets if offset < batch.next_offset]
    body = bytes(batch.body())
    index = index_records(body, 0, len(body), batch.records_count)
    deltas = index[0::INDEX_WIDTH]
    append_time = batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else None
    records: dict[int, SourceRecord] = {}
    size = 0
    for number, offset in enumerate(wanted):
        if size >= limit:
            return records, number, size
        at = bisect_left(deltas, offset - batch.base_offset)
        if at < len(deltas) and deltas[at] == offset - batch.base_offset:
            row = index[at * INDEX_WIDTH : (at + 1) * INDEX_WIDTH]
            record = records[offset] = _copy(body, row, parts, batch.base_timestamp, append_time)
            size += record.size_bytes
    return records, max(1, len(wanted)), size


def _copy(
    body: bytes, row: Sequence[int], parts: CopiedParts, base_timestamp: int, append_time: int | None
) -> SourceRecord:
    """Copy the record of a row of `index_records`."""
    _, timestamp_delta, key_start, key_length, value_start, value_length, headers_start, headers_length = row
    key = value = timestamp = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    if parts.key_and_value:
        key = body[key_start : key_start + key_length] if key_length >= 0 else None
        value = body[value_start : value_start + value_length] if value_length >= 0 else None
    if parts.headers:
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        headers = parse_headers(body, headers_start, headers_length) if headers_length else ()
    return SourceRecord(timestamp, key, value, headers)
