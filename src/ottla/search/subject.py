"""One record under a filter: fields are cut out of the batch and decoded when a test first needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla.record.walk import INDEX_WIDTH, parse_headers
from ottla.search.decoder_factory import open_decoder
from ottla.search.decoder_names import AUTO
from ottla.search.decoders import DECODED_NULL, Decoded, Headers, ValueDecoder, decoder_for, schema_id
from ottla.search.masks import MaskedPart, RecordMask
from ottla.search.syntax import KEY, VALUE

if TYPE_CHECKING:
    from ottla.schemas.settings import SchemaSettings


class Decoders(NamedTuple):
    """Names of the decoders of keys and values."""

    key: str = AUTO
    value: str = AUTO


class OpenDecoders(NamedTuple):
    """Decoders of keys and values, and the mask of the records."""

    key: ValueDecoder
    value: ValueDecoder
    mask: RecordMask | None = None


def open_decoders(
    names: Decoders, settings: SchemaSettings | None = None, mask: RecordMask | None = None
) -> OpenDecoders:
    """The decoders of these names. Raises OperatorError for a missing schema or package.

    A key or a value with masked fields has the decoder `auto`: another one could return them in another structure, as
    text for example.
    """
    if mask is not None:
        names = Decoders(
            *(
                decoder_for(mask.topic, AUTO) if mask.has_fields(root) else name
                for root, name in zip((KEY, VALUE), names, strict=True)
            )
        )
    return OpenDecoders(open_decoder(names.key, settings, is_key=True), open_decoder(names.value, settings), mask)


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
        if data is None:
            return DECODED_NULL
        decoded = decoder.decode(data, self)
        if decoded.failure is not None:
            self._count_failure(f"not {decoded.decoder}: {decoded.failure}")
        return decoded

    def _count_failure(self, reason: str) -> None:
        """Count a record once, even if both key and value fail."""
        if self._failed:
            return
        self._failed = True
        self.batch.tally.undecodable += 1
        if self.batch.tally.first_failure is None:
            self.batch.tally.first_failure = reason


class MaskedSubject(Subject):
    """A record under the mask of its batch: every part is masked before a filter, a decoder or a match sees it.

    A decoder of an unmasked part sees the other parts masked, since the reason of its failure may contain them.
    """

    __slots__ = ("_mask", "_parts")

    def __init__(self, batch: Batch, number: int, mask: RecordMask) -> None:
        super().__init__(batch, number)
        self._mask = mask
        self._parts: dict[str, MaskedPart] = {}

    @property
    def key(self) -> bytes | None:
        return self._part(KEY).data if self._mask.covers(KEY) else super().key

    @property
    def value(self) -> bytes | None:
        return self._part(VALUE).data if self._mask.covers(VALUE) else super().value

    @property
    def size(self) -> int:
        """Bytes of the masked key and value: the original size could reveal them."""
        return len(self.key or b"") + len(self.value or b"")

    @property
    def headers(self) -> Headers:
        if self._headers is None:
            self._headers = self._mask.headers(super().headers)
        return self._headers

    @property
    def decoded_key(self) -> Decoded:
        return self._part(KEY).decoded if self._mask.covers(KEY) else super().decoded_key

    @property
    def decoded_value(self) -> Decoded:
        return self._part(VALUE).decoded if self._mask.covers(VALUE) else super().decoded_value

    def _part(self, root: str) -> MaskedPart:
        found = self._parts.get(root)
        if found is None:
            decoders = self.batch.decoders
            decoder, column = (decoders.key, 2) if root == KEY else (decoders.value, 4)
            found = self._mask.part(root, self._bytes(column), lambda data: decoder.decode(data, self))
            self._parts[root] = found
            if not found.is_found:
                self._count_failure("a part with masked fields")
        return found
