"""Move planned ranges into data files inside Spark's Python workers: read from a source, write Parquet.

Payload never enters the JVM: a worker gets the number of its task, and what comes back is one manifest row a task.
Nothing is visible to readers of the table until the driver commits the manifest.

**Invariants:** a task lands its range to the planned end and not beyond (`sources/source.py` says the rest); a file in
the manifest was written whole and synced before its row left the worker; an attempt that fails removes its file, and a
second attempt writes under another name, so a manifest names the files of exactly one attempt a task.

Errors that trying again can't mend come back as manifest rows and are raised on the driver in their own words; all
others are raised in the worker, so that Spark's retries apply. Left out: what became of workers that were killed (their
files stay, unreferenced).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.client.model import Position
from ottla.common.errors import ErrorCode, OttlaError
from ottla.pipeline.decode import DEAD_LETTER_SCHEMA, SCHEMA, DecodeError
from ottla.pipeline.failure import spark_reason
from ottla.pipeline.plan import ClusterView, DataLossError, OffsetRange, OnDataLoss
from ottla.pipeline.sinks.delta import DEAD_LETTER_DIRECTORY, DataFile
from ottla.pipeline.sources.fetch import read_range
from ottla.pipeline.sources.source import RecordsDeletedError

ROW_GROUP_BYTES = 64 << 20
ROW_GROUP_ROWS = 1_000_000
STATISTICS_COLUMNS = ("partition", "offset", "timestamp")
"""Small columns only: keys and values would repeat whole payloads in the footer."""
NULL_COUNT_COLUMNS = (*STATISTICS_COLUMNS, "key", "value")

OpenCluster = Callable[[], AbstractContextManager[ClusterView]]
"""Connects from inside a worker; must be picklable."""


@dataclass(frozen=True, slots=True)
class LandSettings:
    """What every task needs to know; travels to the workers."""

    open_cluster: OpenCluster
    table_dir: str
    load_id: str
    """In the name of every file of this load, so that those of a failed one can be found."""
    partition_columns: tuple[str, ...] = ()
    isolation: str = "read_committed"
    on_data_loss: OnDataLoss = "fail"
    letters_held: Mapping[Position, int] = field(default_factory=dict)
    """Offsets below which dead letters are in their table already."""


@dataclass(frozen=True, slots=True)
class Landed:
    """The manifest row of one task. Without a file `path` is empty; `error` is empty unless the task failed.

    `dead_file`: the file of its dead letters, a DataFile in JSON.
    """

    task: int
    path: str = ""
    size_bytes: int = 0
    rows: int = 0
    fetched_bytes: int = 0
    body_bytes: int = 0
    skipped_offsets: int = 0
    modified_ms: int = 0
    stats: str = ""
    dead_rows: int = 0
    dead_file: str = ""
    error_kind: str = ""
    error: str = ""


MANIFEST_DDL = ", ".join(f"{f.name} {'string' if f.type == 'str' else 'bigint'}" for f in fields(Landed))
_MANIFEST_SCHEMA = pa.schema([(f.name, pa.string() if f.type == "str" else pa.int64()) for f in fields(Landed)])

_ERROR_KINDS: dict[str, Callable[[str], OttlaError]] = {
    "corrupt": lambda message: DecodeError(ErrorCode.CORRUPT_MESSAGE, message),
    "data loss": DataLossError,
    "failed": OttlaError,
}


@dataclass(frozen=True, slots=True)
class Counters:
    """Accumulators of a Spark session, for a progress line; they move when tasks end. None where there are none."""

    tasks: Any
    rows: Any
    offsets: Any
    fetched_bytes: Any


def make_counters(spark: Any) -> Counters | None:
    """Counters on that session; None on Spark Connect, which has no accumulators."""
    try:
        context = spark.sparkContext
    except Exception:  # Connect raises its own kind, whose module need not be installed
        return None
    return Counters(*(context.accumulator(0) for _ in range(4)))


def land(
    spark: Any, tasks: Sequence[OffsetRange], settings: LandSettings, counters: Counters | None = None
) -> list[Landed]:
    """Run all tasks on the session, one Spark task each; returns their rows in the order of `tasks`.

    Raises the first error of a task; what the other tasks wrote is then for `discard_load`.
    """
    frozen = list(tasks)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                row = land_task(number, frozen[number], settings)
                if counters is not None:
                    counters.tasks.add(1)
                    counters.rows.add(row.rows)
                    counters.offsets.add(frozen[number].offsets)
                    counters.fetched_bytes.add(row.fetched_bytes)
                yield pa.RecordBatch.from_pylist([asdict(row)], schema=_MANIFEST_SCHEMA)

    try:
        rows = spark.range(0, len(frozen), 1, len(frozen)).mapInArrow(run, MANIFEST_DDL).collect()
    except Exception as error:  # Spark wraps whatever a worker raised
        raise OttlaError(f"the load failed in a Spark task: {spark_reason(error)}") from error
    landed = sorted((Landed(**row.asDict()) for row in rows), key=lambda row: row.task)
    failed = next((row for row in landed if row.error_kind), None)
    if failed is not None:
        raise _ERROR_KINDS[failed.error_kind](failed.error)
    if [row.task for row in landed] != list(range(len(frozen))):
        raise OttlaError("Spark returned another set of tasks than it was given; nothing was committed")
    return landed


def land_task(number: int, task: OffsetRange, settings: LandSettings) -> Landed:
    """Land one range; runs in a worker. Errors that trying again can't mend come back inside the row."""
    try:
        return _land_range(number, task, settings)
    except DecodeError as error:
        return Landed(number, error_kind="corrupt", error=str(error))
    except RecordsDeletedError as error:
        way_on = "load what is there with --on-data-loss skip"
        return Landed(number, error_kind="data loss", error=f"{error}; {way_on}")
    except DataLossError as error:
        return Landed(number, error_kind="data loss", error=str(error))
    except OttlaError as error:
        return Landed(number, error_kind="failed", error=str(error))


def _land_range(number: int, task: OffsetRange, settings: LandSettings) -> Landed:
    fetched_bytes = body_bytes = skipped = 0
    letters_from = settings.letters_held.get((task.topic, task.partition), 0)
    values = partition_values(task, settings.partition_columns)
    with (
        _FileWriter(Path(settings.table_dir), SCHEMA, values, task, settings.load_id) as writer,
        _FileWriter(
            Path(settings.table_dir, DEAD_LETTER_DIRECTORY), DEAD_LETTER_SCHEMA, {}, task, settings.load_id
        ) as letter_writer,
        settings.open_cluster() as cluster,
    ):
        for part in read_range(cluster, task, isolation=settings.isolation, on_data_loss=settings.on_data_loss):
            for batch in part.decoded.batches:
                writer.add(batch)
            for letters in part.decoded.dead_letters:
                letter_writer.add(letters.filter(pc.greater_equal(letters.column("offset"), letters_from)))
            fetched_bytes += part.read_bytes
            body_bytes += part.decoded.body_bytes
            skipped += part.skipped_offsets
        letter_file = letter_writer.finish()
        file = writer.finish()
    row = Landed(
        number,
        fetched_bytes=fetched_bytes,
        body_bytes=body_bytes,
        skipped_offsets=skipped,
        dead_rows=letter_file.rows if letter_file else 0,
        dead_file=json.dumps(asdict(letter_file)) if letter_file else "",
    )
    if file is None:
        return row
    return replace(
        row,
        path=file.path,
        size_bytes=file.size_bytes,
        rows=file.rows,
        modified_ms=file.modified_ms,
        stats=file.stats,
    )


class _FileWriter:
    """One Parquet file, opened with its first row; removed unless `finish` was reached."""

    def __init__(
        self, root: Path, schema: pa.Schema, values: Mapping[str, str], task: OffsetRange, load_id: str
    ) -> None:
        self._partition_values = values
        directory = "".join(f"{name}={value}/" for name, value in values.items())
        attempt = uuid.uuid4().hex[:8]
        name = f"part-{task.topic}-{task.partition}-{task.start_offset:020d}-{load_id}-{attempt}.zstd.parquet"
        self._relative = directory + name
        self._path = root / self._relative
        kept = [column for column in schema if column.name not in values]
        self._schema = pa.schema(kept)
        self._writer: Any = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        self._statistics = _Statistics()
        self._finished = False

    def __enter__(self) -> _FileWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        if not self._finished and self._writer is not None:
            with suppress(OSError):  # a full disk fails again here
                self._writer.close()
            self._path.unlink(missing_ok=True)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in; they are written in row groups of bounded size."""
        if not batch.num_rows:
            return
        self._statistics.add(batch)
        self._pending.append(batch.select(self._schema.names))
        self._pending_bytes += batch.nbytes
        self._pending_rows += batch.num_rows
        if self._pending_bytes >= ROW_GROUP_BYTES or self._pending_rows >= ROW_GROUP_ROWS:
            self._write_group()

    def finish(self) -> DataFile | None:
        """Close and sync the file; None when there was no row."""
        self._write_group()
        if self._writer is None:
            return None
        self._writer.close()
        for path in (self._path, self._path.parent):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        status = self._path.stat()
        self._finished = True
        return DataFile(
            self._relative,
            status.st_size,
            self._statistics.rows,
            self._statistics.to_json(self._schema.names),
            int(status.st_mtime * 1000),
            self._partition_values,
        )

    def _write_group(self) -> None:
        if not self._pending:
            return
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(
                self._path,
                self._schema,
                compression="zstd",
                use_dictionary=["topic"] if "topic" in self._schema.names else False,
                write_statistics=[name for name in STATISTICS_COLUMNS if name in self._schema.names],
            )
        self._writer.write_table(
            pa.Table.from_batches(self._pending, schema=self._schema), row_group_size=ROW_GROUP_ROWS
        )
        self._pending = []
        self._pending_bytes = self._pending_rows = 0


def partition_values(task: OffsetRange, columns: Sequence[str]) -> dict[str, str]:
    """The values of the table's partition columns in every row of a task."""
    values = {"topic": task.topic, "partition": str(task.partition)}
    return {name: values[name] for name in columns}


class _Statistics:
    """Row count and the extremes of offset and timestamp, as Delta's statistics."""

    def __init__(self) -> None:
        self.rows = 0
        self._least: dict[str, int] = {}
        self._greatest: dict[str, int] = {}
        self._nulls: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        present = batch.schema.names
        for name in [name for name in STATISTICS_COLUMNS if name in present]:
            extremes = pc.min_max(batch.column(name).cast(pa.int64()))
            least, greatest = extremes["min"].as_py(), extremes["max"].as_py()
            if least is not None:
                self._least[name] = min(least, self._least.get(name, least))
                self._greatest[name] = max(greatest, self._greatest.get(name, greatest))
        for name in [name for name in NULL_COUNT_COLUMNS if name in present]:
            self._nulls[name] = self._nulls.get(name, 0) + batch.column(name).null_count

    def to_json(self, columns: Sequence[str]) -> str:
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: _stat(name, value) for name, value in self._least.items() if name in columns},
                "maxValues": {name: _stat(name, value) for name, value in self._greatest.items() if name in columns},
                "nullCount": {name: count for name, count in self._nulls.items() if name in columns},
            }
        )


def _stat(name: str, value: int) -> int | str:
    """Timestamps in whole milliseconds, which Kafka's are exactly: the greatest is not cut below the truth."""
    if name != "timestamp":
        return value
    instant = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=value)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def discard_load(table_dir: str, load_id: str, named: Collection[Path] = ()) -> None:
    """Remove the files of a load that failed, but none that the table names; what can't go stays for a vacuum."""
    kept = {path.name for path in named}  # unique by load and attempt, so nothing hangs on how a path is written
    for path in Path(table_dir).rglob(f"part-*-{load_id}-*.zstd.parquet"):
        if path.name in kept:
            continue
        try:
            path.unlink(missing_ok=True)
        except OSError:
            continue
