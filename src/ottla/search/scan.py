"""Scan of fetched batches: which records of a range match.

A batch is decompressed once. Clauses (`search.literals`) rule out whole batches, and the rarest one picks the
records to verify. Batches of aborted transactions and control batches are invisible under committed isolation; control
batches always are. A batch that cannot be read is listed and never passed over in silence.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.client.wire.model import FetchResult
from ottla.common.errors import KafkaError
from ottla.record.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchView
from ottla.record.compression import NONE
from ottla.record.errors import InvalidRecord
from ottla.record.legacy.stored import iter_any_batches
from ottla.record.transactions import TransactionFilter
from ottla.record.walk import INDEX_WIDTH, index_records
from ottla.search.decoders import Decoded, Headers
from ottla.search.evaluation import Filter
from ottla.search.literals import BACKSLASH, Clause
from ottla.search.plan import Order
from ottla.search.subject import Batch, MaskedSubject, OpenDecoders, Subject, Tally


class Hit(NamedTuple):
    """A record that matches; `timestamp` in milliseconds. `key` and `value` are the raw bytes."""

    order: Order
    partition: int
    offset: int
    timestamp: int
    is_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: Headers
    decoded_key: Decoded
    decoded_value: Decoded

    @property
    def size_bytes(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


class Unreadable(NamedTuple):
    """Offsets of a partition that could not be searched, end exclusive."""

    partition: int
    start: int
    end: int
    reason: str


class Matcher(NamedTuple):
    """A filter in the forms that a scan needs."""

    accepts: Filter
    clauses: tuple[Clause, ...]
    decoders: OpenDecoders
    tally: Tally


@dataclass(slots=True)
class Scanned:
    """Result of a scan up to `next_offset`; `first_offset` is the base offset of its first batch, None without one.

    `reached` is the largest timestamp of visible records from the start of the partition's range, `oldest` the smallest
    one of this scan, by the headers of batches. `skipped` of the `records` were ruled out by clauses.
    """

    next_offset: int
    reached: int
    first_offset: int | None = None
    oldest: int | None = None
    hits: list[Hit] = field(default_factory=list)
    records: int = 0
    skipped: int = 0
    size_bytes: int = 0
    unreadable: list[Unreadable] = field(default_factory=list)


class Scanner:
    """Scans fetches of one partition."""

    def __init__(self, partition: int, matcher: Matcher, *, by_reached: bool) -> None:
        """`by_reached`: matches are ordered by the largest timestamp so far, otherwise by their own."""
        self._partition = partition
        self._matcher = matcher
        self._by_reached = by_reached

    def scan(self, result: FetchResult, start: int, end: int, reached: int) -> Scanned:
        """Scan the records from `start` to before `end`. Raises KafkaError if the fetch is not a series of batches."""
        found = Scanned(start, reached, size_bytes=len(result.records))
        transactions = TransactionFilter(result.aborted)
        for batch in iter_any_batches(result.records):
            if batch.base_offset >= end:
                found.next_offset = end
                break
            if found.first_offset is None:
                found.first_offset = batch.base_offset
            try:
                is_visible = transactions.passes(batch)
                if batch.next_offset > start and is_visible and batch.records_count:
                    self._scan_batch(batch, start, end, found)
            except KafkaError as error:
                first, last = max(start, batch.base_offset), min(end, batch.next_offset)
                found.unreadable.append(Unreadable(self._partition, first, last, error.message))
            found.next_offset = max(found.next_offset, min(end, batch.next_offset))
        return found

    def _scan_batch(self, batch: BatchView, start: int, end: int, found: Scanned) -> None:
        if not batch.crc_matches():
            raise InvalidRecord("the checksum of the batch does not match")
        data, first_byte, end_byte = _bytes_of_records(batch)
        is_whole = start <= batch.base_offset and batch.next_offset <= end
        is_ruled_out = any(clause.rules_out(data, first_byte, end_byte) for clause in self._matcher.clauses)
        if is_whole and is_ruled_out:
            found.records += batch.records_count
            found.skipped += batch.records_count
            found.reached = max(found.reached, batch.max_timestamp)
            _lower(found, min(batch.base_timestamp, batch.max_timestamp))
            return
        body = data[first_byte:end_byte]
        index = index_records(body, 0, len(body), batch.records_count)
        deltas = index[0::INDEX_WIDTH]
        if deltas[-1] > batch.last_offset_delta:
            raise InvalidRecord("the last record lies beyond the last offset of its batch")
        first = bisect_left(deltas, start - batch.base_offset)
        last = bisect_left(deltas, end - batch.base_offset)
        found.records += last - first
        if first < last:
            times = _times(batch, index, first, last)
            _lower(found, min(times))
            if is_ruled_out:
                found.skipped += last - first
            else:
                self._verify(self._batch(batch, body, index), (first, last), times, found)
            found.reached = max(found.reached, *times)

    def _batch(self, batch: BatchView, body: bytes, index: Sequence[int]) -> Batch:
        is_append_time = batch.timestamp_type == LOG_APPEND_TIME
        return Batch(
            body,
            index,
            self._partition,
            batch.base_offset,
            batch.base_timestamp,
            batch.max_timestamp if is_append_time else None,
            batch.producer_id,
            self._matcher.decoders,
            self._matcher.tally,
        )

    def _verify(self, batch: Batch, numbers: tuple[int, int], times: Sequence[int], found: Scanned) -> None:
        first = numbers[0]
        reached, counted = found.reached, first
        accepts, tally, mask = self._matcher.accepts, self._matcher.tally, self._matcher.decoders.mask
        for number in _candidates(batch.body, batch.rows, numbers, self._matcher.clauses):
            subject = Subject(batch, number) if mask is None else MaskedSubject(batch, number, mask)
            tally.verified += 1
            if accepts(subject):
                if self._by_reached:
                    reached = max(reached, *times[counted - first : number + 1 - first])
                    counted = number + 1
                place = reached if self._by_reached else subject.timestamp
                found.hits.append(_hit(subject, place))


def _bytes_of_records(batch: BatchView) -> tuple[bytes, int, int]:
    """The decompressed records, and their place in the bytes: the whole fetch if they are not compressed."""
    if batch.codec_id == NONE and isinstance(batch.buffer, bytes):
        return batch.buffer, batch.position + HEADER_SIZE, batch.end
    body = bytes(batch.body())
    return body, 0, len(body)


def _times(batch: BatchView, index: Sequence[int], first: int, last: int) -> Sequence[int]:
    if batch.timestamp_type == LOG_APPEND_TIME:
        return [batch.max_timestamp] * (last - first)
    base = batch.base_timestamp
    return [base + delta for delta in index[first * INDEX_WIDTH + 1 : last * INDEX_WIDTH : INDEX_WIDTH]]


def _lower(found: Scanned, timestamp: int) -> None:
    if found.oldest is None or timestamp < found.oldest:
        found.oldest = timestamp


def _candidates(
    body: bytes, index: Sequence[int], numbers: tuple[int, int], clauses: Sequence[Clause]
) -> Iterator[int]:
    """The records that contain the rarest single alternative of a clause, or escapes; all without such a clause."""
    first, last = numbers
    usable = [clause for clause in clauses if len(clause.alternatives) == 1]
    if not usable:
        yield from range(first, last)
        return
    clause = min(usable, key=lambda each: body.count(each.alternatives[0]))
    found = _containing(body, index, numbers, clause.alternatives[0])
    if clause.or_escaped and BACKSLASH in body:
        # Fields of the format between keys and values, such as offset deltas, may have this byte as well.
        escaped = (each for each in _containing(body, index, numbers, BACKSLASH) if _has_escapes(body, index, each))
        yield from sorted({*found, *escaped})
    else:
        yield from found


def _containing(body: bytes, index: Sequence[int], numbers: tuple[int, int], literal: bytes) -> Iterator[int]:
    """The records with a literal anywhere in their bytes."""
    first, last = numbers
    starts = index[2::INDEX_WIDTH]
    position = body.find(literal, starts[first])
    while position >= 0:
        number = bisect_right(starts, position) - 1
        if number >= last:
            return
        yield number
        if number + 1 >= last:
            return
        position = body.find(literal, starts[number + 1])


def _has_escapes(body: bytes, index: Sequence[int], number: int) -> bool:
    """True if the key, the value or a header of a record has a backslash."""
    at = number * INDEX_WIDTH
    parts = ((index[at + column], index[at + column + 1]) for column in (2, 4, 6))
    return any(length > 0 and body.find(BACKSLASH, start, start + length) >= 0 for start, length in parts)


def _hit(subject: Subject, place: int) -> Hit:
    return Hit(
        (place, subject.partition, subject.offset),
        subject.partition,
        subject.offset,
        subject.timestamp,
        subject.batch.append_time is not None,
        subject.key,
        subject.value,
        subject.headers,
        subject.decoded_key,
        subject.decoded_value,
    )
