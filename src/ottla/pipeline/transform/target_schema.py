"""Columns of a table for the values of a load: decided by the driver before any task starts.

**Invariant:** the content of a record can't stop a load: inferred fields that the table can't take leave the table
unchanged, and the records that don't fit become dead letters. A schema that an operator gave and that the table can't
take is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from ottla.common.errors import RETRIABLE_ERRORS, KafkaError, OperatorError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.model.decode import SCHEMA, DecodeError
from ottla.pipeline.model.plan import ClusterView, OffsetRange
from ottla.pipeline.sinks.table import Table, stored_schema
from ottla.pipeline.sources.fetch import fetch_part
from ottla.pipeline.transform.columns import (
    RESERVED_COLUMNS,
    column_name,
    field_name,
    usable_names,
    with_paths_of_their_own,
)
from ottla.pipeline.transform.record_decoder import RecordDecoder
from ottla.pipeline.transform.schema_ids import encoded_values
from ottla.pipeline.transform.value_format import Samples, ValueFormat
from ottla.pipeline.transform.widening import adapted, widened
from ottla.schemas.ids import IdLength

SAMPLED_RANGES = 32
SAMPLE_BYTES = 256 << 10
SAMPLE_ROWS = 1_000
SAMPLE_WAIT_MS = 500


def settle(
    value_format: ValueFormat,
    table: Table,
    cluster: ClusterView,
    ranges: Iterable[OffsetRange],
    isolation: str,
    reserved: frozenset[str] = RESERVED_COLUMNS,
) -> RecordDecoder:
    """Create or widen the table for the records to load; returns their decoder. Raises OperatorError.

    `reserved`: column names that a field gets only with a prefix.
    """
    held = table.schema() if table.exists() else SCHEMA
    samples = sample_values(cluster, ranges, isolation, value_format.id_length)
    fields = value_format.fields(_fields_of(held, reserved), samples)
    fields = _with_usable_columns(fields, held, reserved)
    wanted = {column_name(field.name, reserved): field.type for field in fields}
    if not value_format.is_inferred:
        _require_fit(held, wanted, table)
    is_there = table.exists()
    schema = _widen(table, held, wanted) if is_there else stored_schema(table.format, _with_columns(held, wanted))
    types = {field_name(c.name, reserved): c.type for c in schema if c.name not in reserved}
    rows = pa.schema([column for column in schema if column.name in SCHEMA.names or column.name in wanted])
    decoder = value_format.decoder(pa.schema([(f.name, types[f.name]) for f in fields]))
    return RecordDecoder(decoder, rows, value_format.id_length, reserved)


def settle_fields(
    value_format: ValueFormat, cluster: ClusterView, ranges: Iterable[OffsetRange], isolation: str
) -> pa.Schema:
    """The fields of values that no table has yet, if they can be column names. Raises OperatorError."""
    fields = value_format.fields(pa.schema([]), sample_values(cluster, ranges, isolation, value_format.id_length))
    return _with_usable_columns(fields, SCHEMA, RESERVED_COLUMNS)


def sample_values(
    cluster: ClusterView, ranges: Iterable[OffsetRange], isolation: str, id_length: IdLength | None = None
) -> Samples:
    """Values at the start and near the end of ranges, a bounded number of each topic, in the form for decoders."""
    found: dict[str, list[pa.Array]] = {}
    sampled: dict[str, set[TopicPartition]] = {}
    for whole in ranges:
        key = (whole.topic, whole.partition)
        places = sampled.setdefault(whole.topic, set())
        if len(places) >= SAMPLED_RANGES:
            continue
        places.add(key)
        for offset in sorted({whole.start_offset, max(whole.start_offset, whole.end_offset - SAMPLE_ROWS)}):
            batches = _sample(cluster, whole, offset, isolation)
            found.setdefault(whole.topic, []).extend(encoded_values(batch, id_length) for batch in batches)
    return {topic: pa.chunked_array(values, pa.binary()).combine_chunks() for topic, values in found.items()}


def _sample(cluster: ClusterView, whole: OffsetRange, offset: int, isolation: str) -> list[pa.RecordBatch]:
    """Sampled batches; empty if the range can't be read, which the task that reads it reports.

    Raises KafkaError for a broker that does not answer: fields of an unseen sample would be missing silently.
    """
    some = replace(whole, end_offset=min(whole.end_offset, offset + SAMPLE_ROWS))
    try:
        part = fetch_part(cluster, some, offset, isolation, max_bytes=SAMPLE_BYTES, max_wait_ms=SAMPLE_WAIT_MS)
    except DecodeError:
        return []
    except KafkaError as error:
        if error.code in RETRIABLE_ERRORS:
            raise
        return []
    return part.decoded.batches


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
