"""Rows on their way to a topic: from data files and lake tables, or from a range of another topic.

Each source gives the same rows in the same order whenever it is asked, and with each batch the positions behind it, so
that whoever keeps the positions goes on where it was. Memory is bounded by one batch (BATCH_ROWS, or one fetch).
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

from ottla.client.wire.model import Position
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
"""Format -> the suffixes of its files."""
RECORD_COLUMNS = ["partition", "offset", "key", "value", "headers"]

T = TypeVar("T")
Batch = tuple[pa.RecordBatch, Mapping[Position, int]]


class RowSource(Protocol):
    """Rows with at least a column `value`, as `ottla.pipeline.sinks.topic` takes them."""

    @property
    def identity(self) -> str:
        """Tells sources with other rows, or in another order, apart; at most 64 characters."""

    @property
    def rows(self) -> int | None:
        """How many positions there are to pass in all, for a progress bar; None where that is not known."""

    def batches(self, done: Mapping[Position, int]) -> Iterator[Batch]:
        """The rows behind the positions that are done (none: all), each batch with the positions behind it.

        Raises UnreadableRows for what can't be read.
        """


@dataclass(frozen=True, slots=True)
class Shape:
    """Which columns of a file become which field of a record, and which rows."""

    key_column: str | None = None
    value_column: str | None = None
    """Without it `value` where there is one, else the whole row as a JSON object."""
    keep_timestamps: bool = False
    bounds: RowBounds | None = None


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a store, as a person and as Arrow call it."""

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
        """Its content as a stream, unpacked where its name says that it is packed."""
        return self.filesystem.open_input_stream(self.path)


class FileRows:
    """The rows of files, one after another, counted at `position`."""

    def __init__(self, store: Store, paths: Sequence[str], format: str, shape: Shape, position: Position) -> None:
        """`paths` in the store, in the order in which they are read. Raises UnreadableRows for a file that is not
        there."""
        filesystem, names = store.arrow(paths)
        self._files = [_File(store.locate(path), filesystem, name) for path, name in zip(paths, names, strict=True)]
        self._format = format
        self._shape = shape
        self._position = position
        digest = hashlib.sha256(repr((format, shape)).encode())
        for path, file in zip(paths, self._files, strict=True):
            found = _read(file, partial(store.find, path))
            if found is None:
                raise UnreadableRows(f"{file} can't be read: it is not there")
            digest.update(f"{file} {found.size_bytes} {found.modified_ms}\n".encode("utf-8", "replace"))
        self.identity = digest.hexdigest()

    @property
    def rows(self) -> int | None:
        """Known of Parquet files."""
        if self._format != "parquet":
            return None
        return sum(_read(file, file.parquet_rows) for file in self._files)

    def batches(self, done: Mapping[Position, int]) -> Iterator[Batch]:
        """As `RowSource` says."""
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
    """The rows of a table with its columns: values of partitions, and null where a file is older than a column."""

    def __init__(
        self, store: Store, files: Sequence[DataFile], schema: pa.Schema, shape: Shape, position: Position
    ) -> None:
        """`files`: those of one version, of whose schema the rows are. Raises UnreadableRows."""
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
    """What a file has of a column, else the value of its partition, else null. Raises ArrowException."""
    if field.name in batch.schema.names:
        return batch.column(field.name)
    return pa.repeat(pa.scalar(values.get(field.name), pa.string()).cast(field.type), batch.num_rows)


class TopicRows:
    """The records of some ranges of a topic, committed ones only, each for the partition that it was in.

    What a table could not hold goes along.
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
        """`asked`: how the ranges were asked for. What it stands for may grow, as the newest offset does."""
        self._bounds = bounds
        self._cluster = cluster
        self._ranges = list(ranges)
        self._columns = ["partition", "key", "value", "headers", *(["timestamp"] if keep_timestamps else [])]
        ids = sorted({(each.topic, each.topic_id) for each in ranges})
        self.identity = hashlib.sha256(repr((ids, asked, keep_timestamps)).encode()).hexdigest()

    @property
    def rows(self) -> int | None:
        """As many offsets."""
        return sum(each.offsets for each in self._ranges)

    def batches(self, done: Mapping[Position, int]) -> Iterator[Batch]:
        """As `RowSource` says."""
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
    """By the suffix of its name, a compressed one's `.gz` left out."""
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    return next((name for name, known in FORMATS.items() if suffixes and suffixes[-1].lower() in known), None)


def _file_batches(path: _File, format: str, key_column: str | None) -> Iterator[pa.RecordBatch]:
    """Raises UnreadableRows for a file that is none of that format."""
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
    """Bytes and text as they are, numbers, times and the like as text."""
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
    """As JSON has them: a map is an object, and a time keeps its nanoseconds, which Python's has no room for. Raises
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
        f"{path} has a time in the column {name!r} that is not within the years 1 to 9999: correct it, or make the "
        "column text"
    )


def _is_special(kind: Any) -> bool:
    if pa.types.is_map(kind) or _has_nanoseconds(kind):
        return True
    return pa.types.is_nested(kind) and any(_is_special(kind.field(index).type) for index in range(kind.num_fields))


def _has_nanoseconds(kind: Any) -> bool:
    return bool(pa.types.is_time64(kind) or pa.types.is_timestamp(kind)) and kind.unit == "ns"


def _plain(value: Any, kind: Any) -> Any:
    """A value of Arrow with its type."""
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
    """What JSON has no type for is as in `printable`."""
    form = partial(json.dumps, ensure_ascii=False, separators=(",", ":"), default=printable)
    try:
        return form(row, allow_nan=False)
    except ValueError:
        return form(printable(row))
