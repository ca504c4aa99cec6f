"""Columns of a table for the values of a load: decided by the driver before any task starts.

**Invariant:** the content of a record can't stop a load: inferred fields that the table can't take leave the table
unchanged, and the records that don't fit become dead letters. A schema that an operator gave and that the table can't
take is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from ottla.common.errors import RETRIABLE_ERRORS, KafkaError, OperatorError
from ottla.pipeline.model.decode import SCHEMA, DecodeError, DecodeResult
from ottla.pipeline.model.plan import ClusterView, OffsetRange
from ottla.pipeline.sinks.table import Table, stored_schema
from ottla.pipeline.sources.fetch import fetch_part
from ottla.pipeline.transform.columns import (
    CORRUPT_COLUMN,
    CORRUPT_TYPE,
    RESERVED_COLUMNS,
    column_name,
    field_name,
    usable_names,
    with_paths_of_their_own,
)
from ottla.pipeline.transform.json_inference import InferredFields
from ottla.pipeline.transform.record_decoder import RecordDecoder
from ottla.pipeline.transform.schema_ids import encoded_values
from ottla.pipeline.transform.schema_report import SchemaReport
from ottla.pipeline.transform.value_format import CsvFormat, JsonFormat, Samples, ValueFormat
from ottla.pipeline.transform.widening import adapted, widened
from ottla.schemas.ids import IdLength

SAMPLED_RANGES = 256
SAMPLE_BYTES = 8 << 20
"""Values of a topic that are inspected: all of a load of half the size."""
SAMPLED_PLACES = 16
"""Places in a larger range, evenly spread, behind its first records."""
MAX_PLACES = 512
"""Places in all ranges of a topic."""
SAMPLE_FETCH_BYTES = 256 << 10
SAMPLE_WAIT_MS = 500
WIDENING_FORMAT = "iceberg"
"""The format whose columns can change their types; others only get new columns."""


def settle(
    value_format: ValueFormat,
    table: Table,
    cluster: ClusterView,
    ranges: Iterable[OffsetRange],
    isolation: str,
    reserved: frozenset[str] = RESERVED_COLUMNS,
    *,
    report: SchemaReport | None = None,
    keeps_bad: bool = False,
) -> RecordDecoder:
    """Create or widen the table for the records to load; returns their decoder. Raises OperatorError.

    `reserved`: column names that a field gets only with a prefix. `report` gets the new columns, and the fields that
    have none. `keeps_bad`: records that can't be decoded stay in the table, with CORRUPT_COLUMN.
    """
    samples = sample_values(cluster, ranges, isolation, value_format.id_length)
    return settle_samples(value_format, table, samples, reserved, report=report, keeps_bad=keeps_bad)


def settle_samples(
    value_format: ValueFormat,
    table: Table,
    samples: Samples,
    reserved: frozenset[str] = RESERVED_COLUMNS,
    *,
    report: SchemaReport | None = None,
    keeps_bad: bool = False,
    dry_run: bool = False,
) -> RecordDecoder:
    """As `settle`, for records of which `samples` are values. With `dry_run` the table stays as it is."""
    held = table.schema() if table.exists() else SCHEMA
    inferred = _infer(value_format, _fields_of(held, reserved), samples)
    fields = _with_usable_columns(inferred.schema, held, reserved)
    wanted = {column_name(field.name, reserved): field.type for field in fields}
    if keeps_bad:
        wanted[CORRUPT_COLUMN] = CORRUPT_TYPE
    if not value_format.is_inferred:
        _require_fit(held, wanted, table)
    is_there = table.exists()
    if dry_run:
        schema = stored_schema(table.format, _with_columns(held, wanted, widen=table.format == WIDENING_FORMAT))
    else:
        schema = _widen(table, held, wanted) if is_there else stored_schema(table.format, _with_columns(held, wanted))
    if report is not None:
        names = set(held.names)
        report.add(inferred, fields, [name for name in wanted if name not in names])
    types = {field_name(c.name, reserved): c.type for c in schema if c.name not in reserved}
    rows = pa.schema([column for column in schema if column.name in SCHEMA.names or column.name in wanted])
    decoder = value_format.decoder(pa.schema([(f.name, types[f.name]) for f in fields]))
    return RecordDecoder(decoder, rows, value_format.id_length, reserved)


def _infer(value_format: ValueFormat, held: pa.Schema, samples: Samples) -> InferredFields:
    if isinstance(value_format, JsonFormat | CsvFormat):
        return value_format.infer(held, samples)
    return InferredFields(value_format.fields(held, samples))


def settle_fields(
    value_format: ValueFormat, cluster: ClusterView, ranges: Iterable[OffsetRange], isolation: str
) -> pa.Schema:
    """The fields of values that no table has yet, if they can be column names. Raises OperatorError."""
    fields = value_format.fields(pa.schema([]), sample_values(cluster, ranges, isolation, value_format.id_length))
    return _with_usable_columns(fields, SCHEMA, RESERVED_COLUMNS)


def given_fields(value_format: ValueFormat) -> pa.Schema:
    """As `settle_fields`, for fields that a schema file names. Raises OperatorError."""
    return _with_usable_columns(value_format.fields(pa.schema([]), {}), SCHEMA, RESERVED_COLUMNS)


def sample_values(
    cluster: ClusterView, ranges: Iterable[OffsetRange], isolation: str, id_length: IdLength | None = None
) -> Samples:
    """All values of ranges up to half of SAMPLE_BYTES of each topic, else some, in the form for decoders.

    Half of those of a larger range are its first, the others are at places that are evenly spread over the rest.
    """
    by_topic: dict[str, list[OffsetRange]] = {}
    for whole in ranges:
        by_topic.setdefault(whole.topic, []).append(whole)
    found: dict[str, pa.Array] = {}
    for topic, wholes in by_topic.items():
        sampled = sorted(wholes[:: -(-len(wholes) // SAMPLED_RANGES)], key=lambda whole: whole.size_bytes)
        values: list[pa.Array] = []
        for number, whole in enumerate(sampled):
            left = SAMPLE_BYTES - sum(each.nbytes for each in values)  # small ranges leave room for large ones
            sample = _Sample(cluster, isolation, max(left, 0) // (len(sampled) - number))
            values += [encoded_values(batch, id_length) for batch in sample.batches(whole, len(sampled))]
        found[topic] = pa.chunked_array(values, pa.binary()).combine_chunks()
    return found


@dataclass(frozen=True, slots=True)
class _Sample:
    """Records of a range for inference, of about `max_bytes`."""

    cluster: ClusterView
    isolation: str
    max_bytes: int

    def batches(self, whole: OffsetRange, ranges: int) -> Iterator[pa.RecordBatch]:
        """Batches of the range, which is one of so many."""
        offset, taken = whole.start_offset, 0
        while offset < whole.end_offset and taken < max(self.max_bytes // 2, 1):
            part = self._fetch(whole, offset, self.max_bytes - taken)
            if part is None or part.next_offset <= offset:
                return
            yield from (_first(batch, self.max_bytes) for batch in part.batches)
            offset, taken = part.next_offset, taken + max(part.body_bytes, 1)
        left = whole.end_offset - offset
        count = max(min(SAMPLED_PLACES, MAX_PLACES // ranges), 1) if left else 0
        at_once = self.max_bytes // 2 // count if count else 0
        for number in range(count):
            place = max(offset, whole.end_offset - left * (count - number) // count)
            if place < whole.end_offset and (part := self._fetch(whole, place, at_once)):
                yield from (_first(batch, at_once) for batch in part.batches)
                offset = max(offset, part.next_offset)

    def _fetch(self, whole: OffsetRange, offset: int, max_bytes: int) -> DecodeResult | None:
        """Some records from `offset` on; None if they can't be read, which the task that reads them reports.

        Raises KafkaError for a broker that does not answer: fields of an unseen sample would be missing silently.
        """
        size = min(max(max_bytes, 1), SAMPLE_FETCH_BYTES)
        try:
            part = fetch_part(self.cluster, whole, offset, self.isolation, max_bytes=size, max_wait_ms=SAMPLE_WAIT_MS)
        except DecodeError:
            return None
        except KafkaError as error:
            if error.code in RETRIABLE_ERRORS:
                raise
            return None
        return part.decoded


def _first(batch: pa.RecordBatch, max_bytes: int) -> pa.RecordBatch:
    """The first rows of a batch that decompression made larger than `max_bytes`."""
    size = batch.column("value").nbytes
    return batch if size <= max_bytes else batch.slice(0, max(batch.num_rows * max_bytes // size, 1))


def _fields_of(held: pa.Schema, reserved: frozenset[str]) -> pa.Schema:
    """The fields that a table has columns for."""
    return pa.schema([(field_name(c.name, reserved), c.type) for c in held if c.name not in reserved])


def _with_usable_columns(fields: pa.Schema, held: pa.Schema, reserved: frozenset[str]) -> pa.Schema:
    """The fields with a column name that the table has, or can add to its own."""
    columns = [column_name(field.name, reserved) for field in fields]
    names = held.names
    taken = set(names)  # pyarrow builds its list of names again at each use
    kept = set(usable_names([*names, *(name for name in columns if name not in taken)])) & set(columns)
    named = pa.schema([field.with_name(name) for field, name in zip(fields, columns, strict=True) if name in kept])
    return pa.schema([c.with_name(field_name(c.name, reserved)) for c in with_paths_of_their_own(named, held)])


def _require_fit(held: pa.Schema, wanted: dict[str, pa.DataType], table: Table) -> None:
    types = {column.name: column.type for column in held}
    for name, type_ in wanted.items():
        if name in types and widened(types[name], type_) is None:
            raise OperatorError(
                f"the schema declares {type_} for {name!r}, but the table {table.location} has {types[name]}, which "
                "can't be widened to it; change the schema, or load into another table"
            )


def _with_columns(held: pa.Schema, wanted: dict[str, pa.DataType], *, widen: bool = True) -> pa.Schema:
    """The columns of both."""
    merged = {column.name: column for column in held}
    for name, type_ in wanted.items():
        mine = merged.get(name)
        merged[name] = mine.with_type(adapted(mine.type, type_, widen=widen)) if mine else pa.field(name, type_)
    return pa.schema(list(merged.values()))


def _widen(table: Table, held: pa.Schema, wanted: dict[str, pa.DataType]) -> pa.Schema:
    """Widen types if the table's format supports that, else only add columns and fields."""
    merged = _with_columns(held, wanted)
    if merged.equals(held):
        return held
    try:
        return table.widen(merged)
    except OperatorError:
        return table.widen(_with_columns(held, wanted, widen=False))
