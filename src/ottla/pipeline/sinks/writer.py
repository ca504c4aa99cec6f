"""Data files as workers write them: Parquet, synced, named by their load.

A name is `part-TOPIC-PARTITION-OFFSET-LOAD-ATTEMPT.zstd.parquet`. It names the load of a file in any directory, so
that files of a failed load are found; each attempt at a task writes under a name of its own.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.pipeline.sinks.table import ColumnStatistics, DataFile, FileLayout
from ottla.pipeline.stores.store import Store

ROW_GROUP_BYTES = 64 << 20
ROW_GROUP_ROWS = 1_000_000
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
"""Directory of rows without a value, the same as in Hive and Spark."""

DATA_FILE = re.compile(r"part-.*\.parquet")
_NAME = re.compile(r"part-.+-(?P<load>[0-9A-Za-z]+)-[0-9a-f]{8}\.zstd\.parquet")


_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^`<>|]")


def directory_text(value: str | None) -> str:
    """The text of a partition's value in the name of its directory, escaped as Hive and Spark do (`%2F`)."""
    if value is None:
        return NULL_DIRECTORY
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", value)


def new_load_id() -> str:
    """A unique id of a load or compaction, for the names of files and leases."""
    return uuid.uuid4().hex[:16]


def load_of(path: str) -> str | None:
    """The id of the load that wrote a data file, None for any other file."""
    match = _NAME.fullmatch(file_name(path))
    return match["load"] if match else None


def file_name(path: str) -> str:
    """The last part; for a data file it is unique by load and attempt, in any notation of its path."""
    return path.rpartition("/")[2]


def discard_load(store: Store, load_id: str, named: Collection[str] = ()) -> None:
    """Remove the files of a failed load, except those that the table names; others that can't be removed stay for a
    vacuum."""
    kept = set(map(file_name, named))
    with suppress(OSError):
        for file in list(store.files()):
            if load_of(file.path) == load_id and file.name not in kept:
                with suppress(OSError):
                    store.remove(file.path)


class DataFileWriter:
    """One Parquet file, opened with its first row; removed unless `finish` was reached."""

    def __init__(
        self, layout: FileLayout, schema: pa.Schema, values: Mapping[str, str | None], position: str, load_id: str
    ) -> None:
        """`schema`: of the rows that are added; `values`: of the layout's partition columns in all rows, as text.

        `position` names the origin of the rows in the file name, such as `TOPIC-PARTITION-OFFSET`. `load_id`: letters
        and digits.
        """
        self._partition_values = values
        directory = layout.subdirectory + "".join(f"{name}={directory_text(value)}/" for name, value in values.items())
        attempt = uuid.uuid4().hex[:8]
        self._relative = f"{directory}part-{position}-{load_id}-{attempt}.zstd.parquet"
        self._store = layout.store
        self._schema = schema
        if not layout.partitions_in_files:
            self._schema = pa.schema([column for column in schema if column.name not in values])
        self._bounded = [column.name for column in self._schema if _has_bounds(column.type)]
        self._output: Any = None
        self._writer: Any = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        self._statistics = _Statistics(self._schema.names, self._bounded)
        self._finished = False

    def __enter__(self) -> DataFileWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.discard()

    def discard(self) -> None:
        """Remove the file unless it was finished."""
        if not self._finished and self._writer is not None:
            with suppress(OSError):  # a full disk fails again here
                self._writer.close()
            with suppress(OSError):
                self._output.close()
            self._store.remove(self._relative)

    @property
    def pending_bytes(self) -> int:
        """Bytes of rows that no row group has yet."""
        return self._pending_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; they are written in row groups of bounded size."""
        if not batch.num_rows:
            return
        kept = batch.select(self._schema.names)
        self._statistics.add(kept)
        self._pending.append(kept)
        self._pending_bytes += kept.nbytes
        self._pending_rows += batch.num_rows
        if self._pending_bytes >= ROW_GROUP_BYTES or self._pending_rows >= ROW_GROUP_ROWS:
            self.write_group()

    def finish(self) -> DataFile | None:
        """Close and sync the file; None if it has no rows."""
        self.write_group()
        if self._writer is None:
            return None
        self._writer.close()
        self._output.close()
        stored = self._store.sync(self._relative)
        self._finished = True
        return DataFile(
            self._relative,
            stored.size_bytes,
            self._statistics.rows,
            stored.modified_ms,
            self._statistics.columns(),
            self._partition_values,
        )

    def write_group(self) -> None:
        """Write the pending rows as a row group."""
        if not self._pending:
            return
        if self._writer is None:
            self._output = self._store.open_output(self._relative)
            self._writer = pq.ParquetWriter(
                self._output,
                self._schema,
                compression="zstd",
                use_dictionary=["topic"] if "topic" in self._schema.names else False,
                write_statistics=self._bounded,  # keys and values would repeat whole payloads in the footer
            )
        self._writer.write_table(
            pa.Table.from_batches(self._pending, schema=self._schema), row_group_size=ROW_GROUP_ROWS
        )
        self._pending = []
        self._pending_bytes = self._pending_rows = 0


def _has_bounds(kind: Any) -> bool:
    """True for small columns with an order: whole numbers, dates and times."""
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


class _Statistics:
    """Row count, null counts and extremes of the columns of one file."""

    def __init__(self, names: Collection[str], bounded: Collection[str]) -> None:
        self.rows = 0
        self._bounded = bounded
        self._least: dict[str, int] = {}
        self._greatest: dict[str, int] = {}
        self._nulls = dict.fromkeys(names, 0)

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        for name in self._bounded:
            column = batch.column(name)
            if pa.types.is_date32(column.type):
                column = column.cast(pa.int32())
            extremes = pc.min_max(column.cast(pa.int64()))
            least, greatest = extremes["min"].as_py(), extremes["max"].as_py()
            if least is not None:
                self._least[name] = min(least, self._least.get(name, least))
                self._greatest[name] = max(greatest, self._greatest.get(name, greatest))
        for name in self._nulls:
            self._nulls[name] += batch.column(name).null_count

    def columns(self) -> dict[str, ColumnStatistics]:
        return {
            name: ColumnStatistics(count, self._least.get(name), self._greatest.get(name))
            for name, count in self._nulls.items()
        }
