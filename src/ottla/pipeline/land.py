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

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.model import Position
from ottla.common.errors import ErrorCode, OperatorError, OttlaError
from ottla.pipeline.decode import DEAD_LETTER_SCHEMA, SCHEMA, DecodeError
from ottla.pipeline.failure import spark_reason
from ottla.pipeline.plan import ClusterView, DataLossError, OffsetRange, OnDataLoss
from ottla.pipeline.row_bounds import RowBounds
from ottla.pipeline.sinks.partitioned_writer import PartitionedWriter, unplaceable
from ottla.pipeline.sinks.partitioning import with_date, with_date_column
from ottla.pipeline.sinks.table import FileLayout, files_to_json
from ottla.pipeline.sinks.writer import DataFileWriter
from ottla.pipeline.sources import fetch
from ottla.pipeline.sources.source import ReadRange, RecordsDeletedError
from ottla.pipeline.transform.record_decoder import RecordDecoder, dead_letters_of

OpenCluster = Callable[[], AbstractContextManager[ClusterView]]
"""Connects from inside a worker; must be picklable."""


@dataclass(frozen=True, slots=True)
class LandSettings:
    """What every task needs to know; travels to the workers."""

    open_cluster: OpenCluster
    layout: FileLayout
    letters_layout: FileLayout
    load_id: str
    """In the name of every file of this load, so that those of a failed one can be found."""
    isolation: str = "read_committed"
    on_data_loss: OnDataLoss = "fail"
    letters_held: Mapping[Position, int] = field(default_factory=dict)
    """Offsets below which dead letters are in their table already."""
    record_decoder: RecordDecoder | None = None
    """What decodes values; None lands them as they are."""
    read_range: ReadRange = fetch.read_range
    """The source."""
    bounds: RowBounds | None = None
    """Which records of a range are landed; None: all."""

    @property
    def schema(self) -> pa.Schema:
        """Of the rows that are landed."""
        decoded = self.record_decoder.schema if self.record_decoder else SCHEMA
        return with_date_column(decoded, self.layout.partition_columns)


@dataclass(frozen=True, slots=True)
class Landed:
    """The manifest row of one task; `error` is empty unless the task failed. `files`, `dead_files`: of its rows and of
    its dead letters, as `files_to_json` writes them."""

    task: int
    files: str = ""
    size_bytes: int = 0
    rows: int = 0
    fetched_bytes: int = 0
    body_bytes: int = 0
    skipped_offsets: int = 0
    dead_rows: int = 0
    dead_files: str = ""
    error_kind: str = ""
    error: str = ""


TOPIC_CHARS = 100
"""Of a topic's name in those of files, which have room for 255 bytes."""
LASTING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG}
)
"""Refusals of the operating system that trying again at once does not mend."""
UNPLACEABLE = "a partition column has a text that no directory can be named by"
MANIFEST_DDL = ", ".join(f"{f.name} {'string' if f.type == 'str' else 'bigint'}" for f in fields(Landed))
_MANIFEST_SCHEMA = pa.schema([(f.name, pa.string() if f.type == "str" else pa.int64()) for f in fields(Landed)])

_ERROR_KINDS: dict[str, Callable[[str], OttlaError]] = {
    "corrupt": lambda message: DecodeError(ErrorCode.CORRUPT_MESSAGE, message),
    "data loss": DataLossError,
    "operator": OperatorError,
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

    Raises the first error of a task; what the other tasks wrote is then for `sinks.writer.discard_load`.
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
    except OperatorError as error:
        return Landed(number, error_kind="operator", error=str(error))
    except OttlaError as error:
        return Landed(number, error_kind="failed", error=str(error))
    except OSError as error:
        if error.errno not in LASTING:
            raise
        reason = f"can't be written: {os.strerror(error.errno).lower()}; mend that and run the load again"
        return Landed(
            number, error_kind="operator", error=f"the table's directory {settings.layout.directory} {reason}"
        )


def _land_range(number: int, task: OffsetRange, settings: LandSettings) -> Landed:
    fetched_bytes = body_bytes = skipped = 0
    letters_from = settings.letters_held.get((task.topic, task.partition), 0)
    position = f"{task.topic[:TOPIC_CHARS]}-{task.partition}-{task.start_offset:020d}"
    with (
        PartitionedWriter(settings.layout, settings.schema, position, settings.load_id) as writer,
        DataFileWriter(settings.letters_layout, DEAD_LETTER_SCHEMA, {}, position, settings.load_id) as letter_writer,
        settings.open_cluster() as cluster,
    ):
        for part in settings.read_range(
            cluster, task, isolation=settings.isolation, on_data_loss=settings.on_data_loss
        ):
            dead_letters = _chosen(part.decoded.dead_letters, settings.bounds, task)
            for batch in _chosen(part.decoded.batches, settings.bounds, task):
                if settings.record_decoder is not None:
                    batch, bad = settings.record_decoder.decode(batch)
                    dead_letters += [bad] if bad is not None else []
                batch = with_date(batch, settings.schema)
                odd = unplaceable(batch, settings.layout.partition_columns)
                if odd.true_count:
                    dead_letters.append(dead_letters_of(batch.filter(odd), [UNPLACEABLE] * odd.true_count))
                    batch = batch.filter(pc.invert(odd))
                writer.add(batch)
            for letters in dead_letters:
                letter_writer.add(letters.filter(pc.greater_equal(letters.column("offset"), letters_from)))
            fetched_bytes += part.read_bytes
            body_bytes += part.decoded.body_bytes
            skipped += part.skipped_offsets
        letter_file = letter_writer.finish()
        written = writer.finish()
    return Landed(
        number,
        files_to_json(written),
        sum(file.size_bytes for file in written),
        sum(file.rows for file in written),
        fetched_bytes,
        body_bytes,
        skipped,
        letter_file.rows if letter_file else 0,
        files_to_json([letter_file] if letter_file else []),
    )


def _chosen(batches: Sequence[pa.RecordBatch], bounds: RowBounds | None, task: OffsetRange) -> list[pa.RecordBatch]:
    return [bounds.within(batch, task.topic) for batch in batches] if bounds else list(batches)
