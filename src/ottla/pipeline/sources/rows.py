"""Rows for a topic: from data files and lake tables, or from a range of another topic.

Each source returns the same rows in the same order on every call, and with each batch the positions after it, so
that a caller that stores the positions can resume. Memory is bounded by one batch (BATCH_ROWS, or one fetch).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.model.decode import HEADERS_TYPE
from ottla.pipeline.model.plan import ClusterView, OffsetRange
from ottla.pipeline.model.results import printable
from ottla.pipeline.model.row_bounds import RowBounds
from ottla.pipeline.model.years import outside_years
from ottla.pipeline.sinks.table import DataFile
from ottla.pipeline.sources.fetch import read_range
from ottla.pipeline.sources.text_rows import UnreadableRows, csv_rows, json_lines
from ottla.pipeline.stores.store import Store

BATCH_ROWS = 10_000
FORMATS: Mapping[str, tuple[str, ...]] = {
    "parquet": (".parquet",),
    "json": (".json", ".jsonl", ".ndjson"),
    "csv": (".csv",),
}
"""Format -> file name suffixes."""
RECORD_COLUMNS = ["partition", "offset", "key", "value", "headers"]

T = TypeVar("T")
Batch = tuple[pa.RecordBatch, Mapping[TopicPartition, int]]


class RowSource(Protocol):
    """Rows with at least a column `value`, for `ottla.pipeline.sinks.topic`."""

    @property
    def identity(self) -> str:
        """Differs between sources with other rows, or in another order; at most 64 characters."""

    @property
    def rows(self) -> int | None:
        """Total number of positions, for a progress bar; None if it is unknown."""

    def batches(self, done: Mapping[TopicPartition, int]) -> Iterator[Batch]:
        """The rows after the `done` positions (empty: all), each batch with the positions after it.

        Raises UnreadableRows.
        """


@dataclass(frozen=True, slots=True)
class Shape:
    """Mapping of a file's columns to the fields of a record, and the selected rows."""

    key_column: str | None = None
    value_column: str | None = None
    """By default `value` if it exists, else the whole row as a JSON object."""
    keep_timestamps: bool = False
    bounds: RowBounds | None = None


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a store, with its names for people and for Arrow."""

    location: str
    filesystem: Any
    path: str

    def __str__(self) -> str:
        return self.location

    def open_parquet(self) -> Any:
        return pq.ParquetFile(self.path, filesystem=self.filesystem)

    def parquet_rows(self) -> int:
        with self.open_parquet() as file:
            return int(file.metadata.num_rows)

    def open_stream(self) -> Any:
        """Its content as a stream, decompressed if its name says so."""
        return self.filesystem.open_input_stream(self.path)


class FileRows:
    """The rows of files, one after another, counted at `position`."""

    def __init__(self, store: Store, paths: Sequence[str], format: str, shape: Shape, position: TopicPartition) -> None:
        """`paths` in the store, in the order in which they are read. Raises UnreadableRows for a missing file."""
        filesystem, names = store.arrow(paths)
        self._files = [_File(store.locate(path), filesystem, name) for path, name in zip(paths, names, strict=True)]
        self._format = format
        self._shape = shape
        self._position = position
        digest = hashlib.sha256(repr((format, shape)).encode())
        for path, file in zip(paths, self._files, strict=True):
            found = _read(file, partial(store.find, path))
            if found is None:
                raise UnreadableRows(f"{file} can't be read: it does not exist")
            digest.update(f"{file} {found.size_bytes} {found.modified_ms}\n".encode("utf-8", "replace"))
        self.identity = digest.hexdigest()

    @property
    def rows(self) -> int | None:
        """Known for Parquet files only."""
        if self._format != "parquet":
            return None
        return sum(_read(file, file.parquet_rows) for file in self._files)

    def batches(self, done: Mapping[TopicPartition, int]) -> Iterator[Batch]:
        """Implements `RowSource`."""
        skip = done.get(self._position, 0)
        number = 0
        for file in self._files:
            for batch in self._batches_of(file):
                if number + batch.num_rows > skip:
                    rest = batch.slice(max(0, skip - number))
                    yield self._shaped(file, rest), {self._position: number + batch.num_rows}
                number += batch.num_rows

    def _batches_of(self, file: _File) -> Iterator[pa.RecordBatch]:
        return _file_batches(file, self._format, self._shape.key_column)

    def _shaped(self, path: _File, batch: pa.RecordBatch) -> pa.RecordBatch:
        shape, names = self._shape, batch.schema.names
        for name in (shape.key_column, shape.value_column):
            if name is not None and name not in names:
                raise UnreadableRows(f"{path} has no column `{name}`, only: {', '.join(names)}")
        if shape.bounds is not None:
            batch = shape.bounds.within(batch, str(path))
        columns: dict[str, Any] = {}
        if shape.value_column is not None or "value" in names:
            columns["value"] = _bytes(path, batch, shape.value_column or "value")
        else:
            columns["value"] = pa.array([_json(row) for row in _python_rows(path, batch)], pa.string())
        key_column = shape.key_column or ("key" if "key" in names else None)
        if key_column is not None:
            columns["key"] = _bytes(path, batch, key_column)
        if "headers" in names and batch.schema.field("headers").type == HEADERS_TYPE:
            columns["headers"] = batch.column("headers")
        if shape.keep_timestamps and "timestamp" in names:
            columns["timestamp"] = batch.column("timestamp")
        return pa.record_batch(columns)


class TableRows(FileRows):
    """The rows of a table with its columns: values of partitions, and null in files that are older than a column."""

    def __init__(
        self, store: Store, files: Sequence[DataFile], schema: pa.Schema, shape: Shape, position: TopicPartition
    ) -> None:
        """`files`: those of one version, with its schema. Raises UnreadableRows."""
        ordered = sorted(files, key=lambda file: file.path)
        super().__init__(store, [file.path for file in ordered], "parquet", shape, position)
        self._schema = schema
        self._values = {opened.path: file.partition_values for opened, file in zip(self._files, ordered, strict=True)}

    def _batches_of(self, file: _File) -> Iterator[pa.RecordBatch]:
        values = self._values[file.path]
        for batch in super()._batches_of(file):
            columns = [_read(file, partial(_table_column, batch, field, values)) for field in self._schema]
            yield pa.RecordBatch.from_arrays(columns, names=self._schema.names)


def _table_column(batch: pa.RecordBatch, field: pa.Field, values: Mapping[str, str | None]) -> pa.Array:
    """A column of a file, else the value of its partition, else null. Raises ArrowException."""
    if field.name in batch.schema.names:
        return batch.column(field.name)
    return pa.repeat(pa.scalar(values.get(field.name), pa.string()).cast(field.type), batch.num_rows)


class TopicRows:
    """Committed records of some ranges of a topic, each with its original partition.

    Includes records that a table could not store.
    """

    def __init__(
        self,
        cluster: ClusterView,
        ranges: Sequence[OffsetRange],
        asked: object,
        bounds: RowBounds | None,
        *,
        keep_timestamps: bool,
    ) -> None:
        """`asked`: the ranges as requested; the offsets for `latest` may grow meanwhile."""
        self._bounds = bounds
        self._cluster = cluster
        self._ranges = list(ranges)
        self._columns = ["partition", "key", "value", "headers", *(["timestamp"] if keep_timestamps else [])]
        ids = sorted({(each.topic, each.topic_id) for each in ranges})
        self.identity = hashlib.sha256(repr((ids, asked, keep_timestamps)).encode()).hexdigest()

    @property
    def rows(self) -> int | None:
        """Number of offsets."""
        return sum(each.offsets for each in self._ranges)

    def batches(self, done: Mapping[TopicPartition, int]) -> Iterator[Batch]:
        """Implements `RowSource`."""
        for whole in self._ranges:
            key = (whole.topic, whole.partition)
            rest = replace(whole, start_offset=max(whole.start_offset, done.get(key, 0)))
            for part in read_range(self._cluster, rest, isolation="read_committed", on_data_loss="fail"):
                found = [*map(_timed, part.decoded.batches), *map(_letters, part.decoded.dead_letters)]
                if found:
                    batch = pa.concat_batches(found)
                    if part.decoded.dead_letters:
                        batch = batch.take(pc.sort_indices(batch.column("offset")))
                    if self._bounds is not None:
                        batch = self._bounds.within(batch, whole.topic)
                    yield batch.select(self._columns), {key: part.decoded.next_offset}


def _timed(batch: pa.RecordBatch) -> pa.RecordBatch:
    times = batch.column("timestamp").cast(pa.timestamp("ms", tz="UTC"))
    return batch.select(RECORD_COLUMNS).append_column("timestamp", times)


def _letters(batch: pa.RecordBatch) -> pa.RecordBatch:
    times = batch.column("timestamp_ms").cast(pa.timestamp("ms", tz="UTC"))
    return batch.select(RECORD_COLUMNS).append_column("timestamp", times)


def format_of(path: Path) -> str | None:
    """The format by the suffix of the name, ignoring `.gz`."""
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    return next((name for name, known in FORMATS.items() if suffixes and suffixes[-1].lower() in known), None)


def _file_batches(path: _File, format: str, key_column: str | None) -> Iterator[pa.RecordBatch]:
    """Raises UnreadableRows for a file of another format."""
    batches = _parquet_batches(path) if format == "parquet" else _text_batches(path, format, key_column)
    while (batch := _read(path, lambda: next(batches, None))) is not None:
        names = batch.schema.names
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UnreadableRows(f"{path} has two columns of the name {twice!r}; rename one of them")
        yield batch


def _parquet_batches(path: _File) -> Iterator[pa.RecordBatch]:
    with path.open_parquet() as file:
        yield from file.iter_batches(BATCH_ROWS)


def _text_batches(path: _File, format: str, key_column: str | None) -> Iterator[pa.RecordBatch]:
    with path.open_stream() as stream:
        yield from json_lines(str(path), stream, key_column) if format == "json" else csv_rows(str(path), stream)


def _read(path: _File, read: Callable[[], T]) -> T:
    try:
        return read()
    except (OSError, pa.ArrowException) as error:
        raise UnreadableRows(f"{path} can't be read: {str(error).splitlines()[0]}") from error


def _bytes(path: _File, batch: pa.RecordBatch, name: str) -> pa.Array:
    """Bytes and text unchanged; numbers, times and other types as text."""
    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column
    if pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.large_binary())
    if isinstance(column.type, pa.UuidType):
        return pa.array([None if each is None else str(each) for each in column.to_pylist()], pa.large_string())
    if outside_years(column).any():
        raise _out_of_years(path, name)
    return _read(path, lambda: column.cast(pa.large_string()))


def _python_rows(path: _File, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as JSON values: a map is an object, and a time keeps its nanoseconds, which Python's type lacks. Raises
    UnreadableRows."""
    names = batch.schema.names
    columns = [_python_values(path, batch, name) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _python_values(path: _File, batch: pa.RecordBatch, name: str) -> list[Any]:
    column = batch.column(name)
    try:
        return [_plain(value, column.type) for value in column] if _is_special(column.type) else column.to_pylist()
    except OverflowError as error:
        raise _out_of_years(path, name) from error


def _out_of_years(path: _File, name: str) -> UnreadableRows:
    return UnreadableRows(
        f"{path} has a time in the column {name!r} that is not within the years 1 to 9999: correct it, or convert the "
        "column to text"
    )


def _is_special(kind: Any) -> bool:
    if pa.types.is_map(kind) or _has_nanoseconds(kind):
        return True
    return pa.types.is_nested(kind) and any(_is_special(kind.field(index).type) for index in range(kind.num_fields))


def _has_nanoseconds(kind: Any) -> bool:
    return bool(pa.types.is_time64(kind) or pa.types.is_timestamp(kind)) and kind.unit == "ns"


def _plain(value: Any, kind: Any) -> Any:
    """An Arrow value of that type as a Python value."""
    if not value.is_valid:
        return None
    if pa.types.is_map(kind):
        pairs = ((pair["key"], pair["value"]) for pair in value.values)
        return {str(printable(key.as_py())): _plain(item, kind.item_type) for key, item in pairs}
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[index], field.type) for index, field in enumerate(kind)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_plain(each, kind.value_type) for each in value.values]
    if _has_nanoseconds(kind) and value.value % 1000:
        return str(value.cast(pa.string())).replace(" ", "T")
    return value.cast(pa.time64("us")).as_py() if pa.types.is_time64(kind) else value.as_py()


def _json(row: Mapping[str, Any]) -> str:
    """Types that JSON lacks are converted as in `printable`."""
    form = partial(json.dumps, ensure_ascii=False, separators=(",", ":"), default=printable)
    try:
        return form(row, allow_nan=False)
    except ValueError:
        return form(printable(row))
