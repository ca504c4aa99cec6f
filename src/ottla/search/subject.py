"""One record under a filter: fields are cut out of the batch and decoded when a test first needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla.record.walk import INDEX_WIDTH, parse_headers
from ottla.search.decoder_factory import open_decoder
from ottla.search.decoder_names import AUTO
from ottla.search.decoders import Decoded, Headers, ValueDecoder, schema_id

if TYPE_CHECKING:
    from ottla.schemas.settings import SchemaSettings


class Decoders(NamedTuple):
    """Names of the decoders of keys and values."""

    key: str = AUTO
    value: str = AUTO


class OpenDecoders(NamedTuple):
    """Decoders of keys and values."""

    key: ValueDecoder
    value: ValueDecoder


def open_decoders(names: Decoders, settings: SchemaSettings | None = None) -> OpenDecoders:
    """The decoders of these names. Raises OperatorError for a missing schema or package."""
    return OpenDecoders(open_decoder(names.key, settings, is_key=True), open_decoder(names.value, settings))


_NULL = Decoded(None, "null", None)


@dataclass(slots=True)
class Tally:
    """Counters of verification. `mismatches` has a bounded set of descriptions: tests of the query and type names."""

    verified: int = 0
    undecodable: int = 0
    first_failure: str | None = None
    mismatches: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Add the counts of another part of the search."""
        self.verified += other.verified
        self.undecodable += other.undecodable
        self.first_failure = self.first_failure or other.first_failure
        self.mismatches.update(other.mismatches)


class Batch(NamedTuple):
    """The decompressed records of a batch, with their `rows` (see `record.walk.index_records`)."""

    body: bytes
    rows: Sequence[int]
    partition: int
    base_offset: int
    base_timestamp: int
    append_time: int | None
    """The timestamp of all records, under LogAppendTime."""
    producer_id: int
    decoders: OpenDecoders
    tally: Tally


class Subject:
    """Record number `number` of `batch`."""

    __slots__ = ("_at", "_failed", "_headers", "_key", "_value", "batch", "offset", "timestamp")

    def __init__(self, batch: Batch, number: int) -> None:
        at = self._at = number * INDEX_WIDTH
        self.batch = batch
        self.offset = batch.base_offset + batch.rows[at]
        append_time = batch.append_time
        self.timestamp = batch.base_timestamp + batch.rows[at + 1] if append_time is None else append_time
        self._headers: Headers | None = None
        self._key: Decoded | None = None
        self._value: Decoded | None = None
        self._failed = False

    @property
    def partition(self) -> int:
        return self.batch.partition

    @property
    def producer_id(self) -> int:
        """-1 without a producer id."""
        return self.batch.producer_id

    @property
    def key(self) -> bytes | None:
        return self._bytes(2)

    @property
    def value(self) -> bytes | None:
        return self._bytes(4)

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        rows, at = self.batch.rows, self._at
        return max(0, rows[at + 3]) + max(0, rows[at + 5])

    @property
    def schema_id(self) -> int | None:
        return schema_id(self.value)

    @property
    def headers(self) -> Headers:
        if self._headers is None:
            start, length = self.batch.rows[self._at + 6], self.batch.rows[self._at + 7]
            self._headers = parse_headers(self.batch.body, start, length) if length else ()
        return self._headers

    @property
    def decoded_key(self) -> Decoded:
        if self._key is None:
            self._key = self._decoded(self.batch.decoders.key, self.key)
        return self._key

    @property
    def decoded_value(self) -> Decoded:
        if self._value is None:
            self._value = self._decoded(self.batch.decoders.value, self.value)
        return self._value

    def _bytes(self, column: int) -> bytes | None:
        start, length = self.batch.rows[self._at + column], self.batch.rows[self._at + column + 1]
        return None if length < 0 else self.batch.body[start : start + length]

    def _decoded(self, decoder: ValueDecoder, data: bytes | None) -> Decoded:
        """Count a record once, even if both key and value fail."""
        if data is None:
            return _NULL
        decoded = decoder.decode(data, self)
        if decoded.failure is not None and not self._failed:
            self._failed = True
            self.batch.tally.undecodable += 1
            if self.batch.tally.first_failure is None:
                self.batch.tally.first_failure = f"not {decoded.decoder}: {decoded.failure}"
        return decoded
