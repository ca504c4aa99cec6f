"""Scan of fetched batches: which records of a range match.

A batch is decompressed once, into memory that all batches share. Clauses (`search.literals`) rule out whole batches
without a copy, and the rarest one picks the records to verify. Batches of aborted transactions and control batches are
invisible under committed isolation; control batches always are. A batch that cannot be read is listed and never passed
over in silence.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ottla.client.wire.model import FetchResult
from ottla.common.errors import KafkaError
from ottla.common.platform.reused_memory import ReusedMemory
from ottla.record.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchView
from ottla.record.compression import NONE
from ottla.record.errors import InvalidRecord
from ottla.record.legacy.stored import iter_any_batches
from ottla.record.transactions import TransactionFilter
from ottla.record.walk import INDEX_WIDTH, index_records
from ottla.search.byte_search import find_exponent, has_exponent
from ottla.search.decoders import Decoded, Headers
from ottla.search.evaluation import Filter
from ottla.search.literals import BACKSLASH, Clause
from ottla.search.plan import Order
from ottla.search.subject import Batch, MaskedSubject, OpenDecoders, Subject, Tally

MAX_LOCATED = 8
"""Alternatives of a clause that are looked for one after the other, to choose the records to verify."""


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
    memory: ReusedMemory
    """For the decompressed records of one batch."""


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
        stored = _stored_records(batch, self._matcher.memory)
        is_whole = start <= batch.base_offset and batch.next_offset <= end
        is_ruled_out = any(clause.rules_out(stored) for clause in self._matcher.clauses)
        if is_whole and is_ruled_out:
            found.records += batch.records_count
            found.skipped += batch.records_count
            found.reached = max(found.reached, batch.max_timestamp)
            _lower(found, min(batch.base_timestamp, batch.max_timestamp))
            return
        body = bytes(stored)
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


def _stored_records(batch: BatchView, memory: ReusedMemory) -> memoryview:
    """The decompressed records; of any size if they are a part of the fetch."""
    if batch.codec_id == NONE:
        return memoryview(batch.buffer)[batch.position + HEADER_SIZE : batch.end]
    return batch.body(memory=memory)


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
) -> Sequence[int]:
    """The records that can match by the clause with the fewest occurrences; all without such a clause."""
    usable = [clause for clause in clauses if len(clause.alternatives) <= MAX_LOCATED]
    if not usable:
        return range(*numbers)
    clause = min(usable, key=lambda each: sum(map(body.count, each.alternatives)))
    found: set[int] = set()
    for literal in clause.alternatives:
        found.update(_located(partial(body.find, literal), index, numbers))
    # Fields of the format between keys and values, such as offset deltas, may have bytes of these forms as well.
    if clause.or_escaped and BACKSLASH in body:
        escaped = _located(partial(body.find, BACKSLASH), index, numbers)
        found.update(each for each in escaped if _has_escapes(body, index, each))
    if clause.or_exponent:
        written = _located(lambda position: find_exponent(body, position, len(body)), index, numbers)
        found.update(each for each in written if _has_exponents(body, index, each))
    return sorted(found)


def _located(find: Callable[[int], int], index: Sequence[int], numbers: tuple[int, int]) -> Iterator[int]:
    """The records with a find anywhere in their bytes; `find` takes the position to search from, -1 is none."""
    first, last = numbers
    starts = index[2::INDEX_WIDTH]
    position = find(starts[first])
    while position >= 0:
        number = bisect_right(starts, position) - 1
        if number >= last:
            return
        yield number
        if number + 1 >= last:
            return
        position = find(starts[number + 1])


def _has_escapes(body: bytes, index: Sequence[int], number: int) -> bool:
    """True if the key, the value or a header of a record has a backslash."""
    return any(body.find(BACKSLASH, start, end) >= 0 for start, end in _parts(index, number))


def _has_exponents(body: bytes, index: Sequence[int], number: int) -> bool:
    """True if the key, the value or a header of a record may have a number with an exponent."""
    key, value, headers = _parts(index, number)
    return has_exponent(body, *value) or has_exponent(body, *key) or find_exponent(body, *headers) >= 0


def _parts(index: Sequence[int], number: int) -> list[tuple[int, int]]:
    """Start and end of the key, the value and the headers of a record."""
    at = number * INDEX_WIDTH
    return [(index[at + column], index[at + column] + max(0, index[at + column + 1])) for column in (2, 4, 6)]


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
