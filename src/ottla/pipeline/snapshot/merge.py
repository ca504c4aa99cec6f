"""Merge of one bucket: its files of the table and its staged records become new files.

Keys and offsets alone decide which record wins, as in Kafka's compaction: per topic, partition and key the highest
offset wins, and a record without a value deletes. In a history each record is valid from its time until that of the
next one of its key. A time that is before its predecessor's is replaced by the latter, so no two values of a key are
valid at once; the record after a deletion starts a new lifetime.

**Invariants:** the payload is never in memory as a whole: a first pass reads topics, partitions, keys, offsets and
times, and decides on each row; a second one copies rows, a batch at a time. So a task needs memory for the keys of one
bucket (280 bytes a row with keys of 20, measured) and a row group. A bucket without changes is not rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.load.shape import CURRENT, TIME_TYPE, VALID_FROM, VALID_TO, Shape
from ottla.pipeline.load.tasks import ManifestRow, attempt
from ottla.pipeline.sinks.rewrite import conformed
from ottla.pipeline.sinks.table import DataFile, FileLayout, files_to_json
from ottla.pipeline.sinks.writer import DataFileWriter
from ottla.pipeline.snapshot.staging import StagedBatch
from ottla.pipeline.stores.store import Store

BATCH_ROWS = 64 << 10
NO_TIME = np.iinfo(np.int64).min

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BucketTask:
    """`held`: the bucket's files as the table's `files()` returns them, in a history only those of its open rows."""

    bucket: int
    held: tuple[str, ...] = ()
    staged: tuple[StagedBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """Settings of all tasks; sent to the workers."""

    shape: Shape
    layout: FileLayout
    schema: pa.Schema
    """Schema of the table."""
    load_id: str
    void_topics: frozenset[str] = frozenset()
    """All rows of these topics are void, regardless of their offsets."""
    void_partitions: frozenset[TopicPartition] = frozenset()
    now_us: int = 0
    """End of validity for void rows, in a history."""


@dataclass(frozen=True, slots=True)
class MergeRow(ManifestRow):
    """The manifest row of a task that merges. `changed` is 0 when the bucket's files stay, 1 when they are replaced.

    `inserted`, `updated`, `deleted`: number of keys that were added, changed or removed.
    """

    changed: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


def merge_task(number: int, task: BucketTask, settings: MergeSettings) -> MergeRow:
    """Merge one bucket; runs in a worker. Permanent errors are returned in the row."""
    return attempt(number, lambda: _merge(number, task, settings), MergeRow, settings.layout.directory)


def _merge(number: int, task: BucketTask, settings: MergeSettings) -> MergeRow:
    verdict = judge(_read_index(task, settings), settings)
    if not verdict.changed:
        return MergeRow(number)
    files = _write(task, verdict, settings)
    return MergeRow(
        number,
        changed=1,
        files=files_to_json(files),
        rows=sum(file.rows for file in files),
        size_bytes=sum(file.size_bytes for file in files),
        inserted=verdict.inserted,
        updated=verdict.updated,
        deleted=verdict.deleted,
    )


# Decision on each row


@dataclass(slots=True)
class RowIndex:
    """All rows of a bucket, those of the table first: the columns that decide on them, one entry a row."""

    identities: list[pa.Array] = field(default_factory=list)
    """Topic, partition and key as one text."""
    offsets: list[Int64s] = field(default_factory=list)
    times: list[Int64s] = field(default_factory=list)
    """Start of validity, in microseconds; NO_TIME if it is unknown."""
    alive: list[Flags] = field(default_factory=list)
    """False for a record without a value."""
    void: list[Flags] = field(default_factory=list)
    """Rows of the table that are void."""
    held: int = 0
    """Number of rows of the table."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One entry a row, in the order of the index; times in microseconds, NO_TIME for none."""

    kept: Flags
    """False for rows that no file gets."""
    open: Flags
    """Rows that are valid now."""
    valid_from: Int64s
    valid_to: Int64s
    changed: bool
    inserted: int
    updated: int
    deleted: int


def judge(index: RowIndex, settings: MergeSettings) -> Verdict:
    """Pure function of the index."""
    offsets, times = _joined(index.offsets, np.int64), _joined(index.times, np.int64)
    alive, void = _joined(index.alive, np.bool_), _joined(index.void, np.bool_)
    codes = _codes(index.identities)
    known = codes.copy()  # for readers, a recreated topic continues the keys of the old one
    codes[void] = codes.max(initial=0) + 1 + np.arange(np.count_nonzero(void))
    order = np.lexsort((offsets, codes))
    ordered = codes[order]
    last = np.ones(len(order), np.bool_)
    last[:-1] = ordered[1:] != ordered[:-1]
    newest = np.zeros(len(order), np.bool_)
    newest[order[last]] = True
    opened = newest & alive & ~void
    held = np.arange(len(order)) < index.held
    valid_from, valid_to = times, np.full(len(order), NO_TIME)
    kept = opened
    if settings.shape.history:
        kept = alive
        valid_from = _valid_from(times, order, ordered, alive)
        valid_to[order[:-1][~last[:-1]]] = valid_from[order[1:][~last[:-1]]]
        valid_to[void] = np.maximum(valid_from[void], settings.now_us)
    had, has, came = (_present(known[chosen], len(order)) for chosen in (held, opened, opened & ~held))
    return Verdict(
        kept,
        opened,
        valid_from,
        valid_to,
        changed=bool((held & ~opened).any() or (~held & kept).any()),
        inserted=int(np.count_nonzero(has & ~had)),
        updated=int(np.count_nonzero(came & had)),
        deleted=int(np.count_nonzero(had & ~has)),
    )


def _valid_from(times: Int64s, order: Int64s, ordered: Int64s, alive: Flags) -> Int64s:
    """The greatest time so far within the lifetime of a key, which a record without a value ends."""
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (ordered[1:] != ordered[:-1]) | ~alive[order[:-1]]
    distinct, ranks = np.unique(times[order], return_inverse=True)
    lives = np.cumsum(begins) * len(distinct)  # a lifetime is above all ranks of the one before
    found = np.empty(len(order), np.int64)
    found[order] = distinct[np.maximum.accumulate(lives + ranks) - lives] if len(order) else times
    return found


def _present(codes: Int64s, count: int) -> Flags:
    """Of `count` numbers those that are among `codes`."""
    found = np.zeros(count, np.bool_)
    found[codes] = True
    return found


def _codes(identities: Sequence[pa.Array]) -> Int64s:
    """Equal numbers for equal identities."""
    encoded = pa.chunked_array(identities, pa.large_binary()).dictionary_encode()
    return _joined([chunk.indices.to_numpy() for chunk in encoded.chunks], np.int64)


def _joined(parts: Sequence[npt.NDArray[Any]], kind: type) -> npt.NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *parts]).astype(kind)


# Reading


def _read_index(task: BucketTask, settings: MergeSettings) -> RowIndex:
    index = RowIndex()
    names = ["topic", "partition", "key", "offset", *([VALID_FROM] if settings.shape.history else [])]
    store = settings.layout.store
    for batch in _held_rows(store, task.held, pa.schema([settings.schema.field(name) for name in names])):
        times = batch.column(VALID_FROM) if settings.shape.history else None
        _add(index, batch, times, alive=np.ones(batch.num_rows, np.bool_), void=_void(batch, settings))
        index.held += batch.num_rows
    for staged in task.staged:
        batch = staged.read(store)
        alive = _flags(batch.column("value").is_valid())
        _add(index, batch, batch.column("timestamp"), alive=alive, void=np.zeros(batch.num_rows, np.bool_))
    return index


def _void(batch: pa.RecordBatch, settings: MergeSettings) -> Flags:
    topics, partitions = batch.column("topic"), batch.column("partition")
    found = _flags(pc.is_in(topics, pa.array(sorted(settings.void_topics), pa.string())))
    for topic, partition in settings.void_partitions:
        found = found | _flags(pc.and_(pc.equal(topics, topic), pc.equal(partitions, partition)))
    return found


def _add(index: RowIndex, batch: pa.RecordBatch, times: pa.Array | None, *, alive: Flags, void: Flags) -> None:
    parts = [
        batch.column("topic").cast(pa.large_binary()),
        batch.column("partition").cast(pa.string()).cast(pa.large_binary()),
        batch.column("key").cast(pa.large_binary()),
    ]
    index.identities.append(pc.binary_join_element_wise(*parts, pa.scalar(b"/", pa.large_binary())))
    index.offsets.append(batch.column("offset").to_numpy())
    if times is None:
        index.times.append(np.zeros(batch.num_rows, np.int64))
    else:
        index.times.append(pc.fill_null(times.cast(TIME_TYPE).cast(pa.int64()), NO_TIME).to_numpy())
    index.alive.append(alive)
    index.void.append(void)


def _held_rows(store: Store, files: Iterable[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """These columns of rows in files of the table."""
    filesystem, paths = store.arrow(list(map(store.relative, files)))
    for path in paths:
        with pq.ParquetFile(path, filesystem=filesystem) as file:
            stored = set(file.schema_arrow.names)
            names = [name for name in schema.names if name in stored]
            for batch in file.iter_batches(BATCH_ROWS, columns=names):
                yield conformed(batch, schema)


def _flags(array: pa.Array) -> Flags:
    flags: Flags = array.to_numpy(zero_copy_only=False)
    return flags


# Writing


def _write(task: BucketTask, verdict: Verdict, settings: MergeSettings) -> list[DataFile]:
    """Copy the remaining rows: in a history the open ones to one file, the others to another."""
    own = settings.shape.own_columns
    records = pa.schema([one for one in settings.schema if one.name not in own.names])
    with ExitStack() as stack:
        writers = {
            current: stack.enter_context(_writer(task.bucket, settings, current=current))
            for current in ((True, False) if settings.shape.history else (True,))
        }
        place = 0
        for batch in _all_rows(task, settings.layout.store, records):
            here = slice(place, place + batch.num_rows)
            place += batch.num_rows
            for current, writer in writers.items():
                chosen = verdict.kept[here] & (verdict.open[here] == current)
                if chosen.any():
                    rows = _with_own_columns(batch, task.bucket, verdict, here, settings)
                    writer.add(rows.filter(pa.array(chosen)))
        return [file for writer in writers.values() if (file := writer.finish()) is not None]


def _all_rows(task: BucketTask, store: Store, records: pa.Schema) -> Iterator[pa.RecordBatch]:
    """In the order of the index."""
    yield from _held_rows(store, task.held, records)
    for staged in task.staged:
        yield conformed(staged.read(store), records)


def _with_own_columns(
    batch: pa.RecordBatch, bucket: int, verdict: Verdict, here: slice, settings: MergeSettings
) -> pa.RecordBatch:
    """Rows by the schema of the table."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns[settings.shape.bucket_column] = pa.array(np.full(batch.num_rows, bucket, np.int32))
    if settings.shape.history:
        columns[VALID_FROM] = _times(verdict.valid_from[here])
        columns[VALID_TO] = _times(verdict.valid_to[here])
        columns[CURRENT] = pa.array(verdict.open[here])
    return pa.RecordBatch.from_arrays([columns[one.name] for one in settings.schema], schema=settings.schema)


def _times(microseconds: Int64s) -> pa.Array:
    return pa.array(microseconds, mask=microseconds == NO_TIME).view(TIME_TYPE)


def _writer(bucket: int, settings: MergeSettings, *, current: bool) -> DataFileWriter:
    values: dict[str, str | None] = {settings.shape.bucket_column: str(bucket)}
    if settings.shape.history:
        values[CURRENT] = "true" if current else "false"
    position = f"bucket-{bucket}" + ("" if current else "-past")
    return DataFileWriter(settings.layout, settings.schema, values, position, settings.load_id)
