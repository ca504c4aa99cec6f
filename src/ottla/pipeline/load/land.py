"""Tasks of a load in the workers of an engine: read planned ranges from a source, write Parquet files.

Nothing is visible to readers of the table until the driver commits the manifest (`ottla.pipeline.load.tasks` describes
its rows and errors).

**Invariants:** a task reads its range to the planned end and not beyond (more in `sources/source.py`); a file in
the manifest was written whole and synced before its row left the worker; a failed attempt removes its file, and a
second attempt writes under another name, so a manifest names the files of exactly one attempt a task.

Not handled: files of killed workers (they stay, unreferenced).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.load.tasks import ManifestRow, Row, attempt, run_tasks
from ottla.pipeline.local.pool import Count, LocalSession
from ottla.pipeline.model.arrays import numbers
from ottla.pipeline.model.decode import DEAD_LETTER_SCHEMA, SCHEMA
from ottla.pipeline.model.plan import ClusterView, OffsetRange, OnDataLoss
from ottla.pipeline.model.row_bounds import RowBounds
from ottla.pipeline.sinks.partitioned_writer import PartitionedWriter, unplaceable
from ottla.pipeline.sinks.partitioning import with_date, with_date_column
from ottla.pipeline.sinks.table import FileLayout, files_to_json
from ottla.pipeline.sinks.writer import DataFileWriter
from ottla.pipeline.sources import fetch
from ottla.pipeline.sources.source import ReadRange
from ottla.pipeline.transform.record_decoder import RecordDecoder, dead_letters_of
from ottla.pipeline.transform.schema_report import Tally

OpenCluster = Callable[[], AbstractContextManager[ClusterView]]
"""Connects from inside a worker; must be picklable."""


@dataclass(frozen=True, slots=True)
class LandSettings:
    """Settings of all tasks; sent to the workers."""

    open_cluster: OpenCluster
    layout: FileLayout
    letters_layout: FileLayout
    load_id: str
    """Part of the name of every file of this load, so that the files of a failed load can be found."""
    isolation: str = "read_committed"
    on_data_loss: OnDataLoss = "fail"
    letters_held: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Offsets below which dead letters are already in their table."""
    letters_there: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    """Offsets of these letters, in partitions whose range begins below; in others no letter below is new."""
    record_decoder: RecordDecoder | None = None
    """Decodes values; None leaves values unchanged."""
    read_range: ReadRange = fetch.read_range
    """The source."""
    bounds: RowBounds | None = None
    """Selects records of a range; None: all."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows that are written."""
        decoded = self.record_decoder.schema if self.record_decoder else SCHEMA
        return with_date_column(decoded, self.layout.partition_columns)


@dataclass(frozen=True, slots=True)
class WrittenRange(ManifestRow):
    """The manifest row of a task that reads; `dead_files`: of its dead letters, written as `files`."""

    fetched_bytes: int = 0
    body_bytes: int = 0
    skipped_offsets: int = 0
    dead_rows: int = 0
    dead_files: str = ""
    tally: str = ""
    """Counts of the decoder, as `Tally.to_text` returns them."""


TOPIC_CHARS = 100
"""Maximum length of a topic's name in file names, which have at most 255 bytes."""
UNPLACEABLE = "a partition column has a text that can't be a directory name"

Screen = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, pa.RecordBatch | None]]
"""Splits rows into those for the table and, by DEAD_LETTER_SCHEMA, dead letters; None for none."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Accumulators of a Spark session, or counts of a local one, for a progress line; they move when tasks end."""

    tasks: Any
    rows: Any
    offsets: Any
    fetched_bytes: Any


def make_counters(session: Any) -> Counters | None:
    """Counters on that session; None on Spark Connect, which has no accumulators."""
    if isinstance(session, LocalSession):
        return Counters(*(Count() for _ in range(4)))
    try:
        context = session.sparkContext
    except Exception:  # Connect raises a class of its own; its module may not be installed
        return None
    return Counters(*(context.accumulator(0) for _ in range(4)))


Task = TypeVar("Task")


@dataclass(frozen=True, slots=True)
class NumberedTasks(Generic[Task, Row]):
    """Executes a task by its number; picklable if its fields are."""

    tasks: Sequence[Task]
    work: Callable[[int, Task], Row]

    def __call__(self, number: int) -> Row:
        return self.work(number, self.tasks[number])


def land(
    session: Any, tasks: Sequence[OffsetRange], settings: LandSettings, counters: Counters | None = None
) -> list[WrittenRange]:
    """Run all tasks on the session of an engine; returns their rows in the order of `tasks`.

    Raises the first error of a task; `leased_files` then discards the files of the other tasks.
    """
    work = partial(land_task, settings=settings)
    return read_tasks(session, tasks, work, counters, "load", settings.layout.directory)


def read_tasks(
    session: Any,
    tasks: Sequence[OffsetRange],
    work: Callable[[int, OffsetRange], WrittenRange],
    counters: Counters | None,
    what: str,
    directory: str,
) -> list[WrittenRange]:
    """As `run_tasks`, with the range of each task; `counters` move with them."""
    frozen = list(tasks)

    def observe(number: int, row: WrittenRange) -> None:
        if counters is not None:
            counters.tasks.add(1)
            counters.rows.add(row.rows)
            counters.offsets.add(frozen[number].offsets)
            counters.fetched_bytes.add(row.fetched_bytes)

    return run_tasks(session, len(frozen), NumberedTasks(frozen, work), WrittenRange, what, directory, observe)


def land_task(number: int, task: OffsetRange, settings: LandSettings) -> WrittenRange:
    """Write one range; runs in a worker. Permanent errors are returned in the row."""
    return attempt(number, lambda: _land_range(number, task, settings), WrittenRange, settings.layout.directory)


def _land_range(number: int, task: OffsetRange, settings: LandSettings) -> WrittenRange:
    def placeable(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        batch = with_date(batch, settings.schema)
        odd = unplaceable(batch, settings.layout.partition_columns)
        return parted(batch, odd, UNPLACEABLE)

    with PartitionedWriter(settings.layout, settings.schema, position_of(task), settings.load_id) as writer:
        landed = read_rows(number, task, settings, placeable, writer.add)
        written = writer.finish()
    return replace(
        landed,
        files=files_to_json(written),
        size_bytes=sum(file.size_bytes for file in written),
        rows=sum(file.rows for file in written),
    )


def position_of(task: OffsetRange) -> str:
    """Prefix of a task's file names."""
    return f"{task.topic[:TOPIC_CHARS]}-{task.partition}-{task.start_offset:020d}"


def parted(batch: pa.RecordBatch, odd: pa.Array, reason: str) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Result of a `Screen` that refuses the rows where `odd` is true."""
    if not odd.true_count:
        return batch, None
    return batch.filter(pc.invert(odd)), dead_letters_of(batch.filter(odd), [reason] * odd.true_count)


def read_rows(
    number: int, task: OffsetRange, settings: LandSettings, screen: Screen, add: Callable[[pa.RecordBatch], None]
) -> WrittenRange:
    """Read and decode one range, in offset order: rows that `screen` accepts go to `add`, all others to dead letters.

    Returns the manifest row of the task, without the files that `add` writes.
    """
    fetched_bytes = body_bytes = skipped = 0
    tally = Tally()
    is_new = _NewLetters(settings, (task.topic, task.partition))
    with (
        DataFileWriter(settings.letters_layout, DEAD_LETTER_SCHEMA, {}, position_of(task), settings.load_id) as writer,
        settings.open_cluster() as cluster,
    ):
        for part in settings.read_range(
            cluster, task, isolation=settings.isolation, on_data_loss=settings.on_data_loss
        ):
            dead_letters: list[pa.RecordBatch | None] = [*_chosen(part.decoded.dead_letters, settings.bounds, task)]
            for batch in _chosen(part.decoded.batches, settings.bounds, task):
                for rows, bad in decoded_rows(batch, settings.record_decoder, tally):
                    taken, refused = screen(rows)
                    dead_letters += (bad, refused)
                    add(taken)
            for letters in dead_letters:
                if letters is not None:
                    letters = letters.filter(is_new(letters.column("offset")))
                    tally.add_reasons(letters.column("reason").to_pylist())
                    writer.add(letters)
            fetched_bytes += part.read_bytes
            body_bytes += part.decoded.body_bytes
            skipped += part.skipped_offsets
        letter_file = writer.finish()
    return WrittenRange(
        number,
        fetched_bytes=fetched_bytes,
        body_bytes=body_bytes,
        skipped_offsets=skipped,
        dead_rows=letter_file.rows if letter_file else 0,
        dead_files=files_to_json([letter_file] if letter_file else []),
        tally=tally.to_text(),
    )


class _NewLetters:
    """Selects the dead letters of a partition that are not in their table yet, by their offsets.

    A load that died after its dead letters may have decoded other records than this one does.
    """

    def __init__(self, settings: LandSettings, key: TopicPartition) -> None:
        self._held = settings.letters_held.get(key, 0)
        there = settings.letters_there.get(key)
        self._there = None if there is None else numbers(np.array(sorted(there), np.int64))

    def __call__(self, offsets: pa.Array) -> pa.Array:
        behind = pc.greater_equal(offsets, self._held)
        return behind if self._there is None else pc.or_(behind, pc.invert(pc.is_in(offsets, value_set=self._there)))


def decoded_rows(
    batch: pa.RecordBatch, decoder: RecordDecoder | None, tally: Tally | None = None
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
    """As `RecordDecoder.decode`, in bounded pieces; all rows unchanged without a decoder."""
    if decoder is None:
        yield batch, None
    else:
        yield from (decoder.decode(piece, tally) for piece in decoder.pieces(batch))


def _chosen(batches: Sequence[pa.RecordBatch], bounds: RowBounds | None, task: OffsetRange) -> list[pa.RecordBatch]:
    return [bounds.within(batch, task.topic) for batch in batches] if bounds else list(batches)
