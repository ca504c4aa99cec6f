"""Rewrite of small data files as larger ones, which are named and synced as those of a load.

So a vacuum finds the writer of each file, and a lease is checked before the commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.common.errors import OperatorError
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.sinks.partitioned_writer import unplaceable
from ottla.pipeline.sinks.partitioning import require_partition_columns
from ottla.pipeline.sinks.table import DataFile, FileLayout, Table, TableCommit
from ottla.pipeline.sinks.writer import DataFileWriter
from ottla.pipeline.stores.store import Store


def group_small_files(files: Sequence[DataFile], target_bytes: int) -> list[list[DataFile]]:
    """Files of one partition that fit into one of about `target_bytes`, in the order of their names; at least two."""
    partitions: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.path):
        if file.size_bytes < target_bytes:
            partitions[tuple(sorted(file.partition_values.items()))].append(file)
    groups: list[list[DataFile]] = []
    for small in partitions.values():
        groups.append([])
        size_bytes = 0
        for file in small:
            if groups[-1] and size_bytes + file.size_bytes > target_bytes:
                groups.append([])
                size_bytes = 0
            groups[-1].append(file)
            size_bytes += file.size_bytes
    return [group for group in groups if len(group) > 1]


def compact_groups(
    table: Table, groups: Sequence[Sequence[DataFile]], load_id: str, before_commit: Callable[[], None]
) -> None:
    """Rewrite each group as one file and commit all together. Raises StaleCommitError, OperatorError."""
    if not groups:
        return
    layout, schema = table.layout(), table.schema()
    _require_placeable(table, layout, schema, groups)
    made = [rewrite_files(layout, schema, group, number, load_id) for number, group in enumerate(groups)]
    kept = {file.path for file in made} & {file.path for group in groups for file in group}
    removed = [layout.store.locate(file.path) for group in groups for file in group if file.path not in kept]
    before_commit()
    table.commit(TableCommit(load_id, [file for file in made if file.path not in kept], removed, is_compaction=True))


def _require_placeable(
    table: Table, layout: FileLayout, schema: pa.Schema, groups: Sequence[Sequence[DataFile]]
) -> None:
    """Raise OperatorError for partitions of other writers whose values can't be directory names."""
    require_partition_columns(schema, layout.partition_columns)
    for name in layout.partition_columns:
        texts = pa.array([group[0].partition_values[name] for group in groups], pa.string())
        odd = texts.filter(unplaceable(pa.record_batch({name: texts}), [name]))
        if len(odd):
            raise OperatorError(
                f"the table {table.location} can't be compacted: the value of its partition "
                f"{name}={odd[0].as_py()!r} can't be a directory name"
            )


def rewrite_files(
    layout: FileLayout, schema: pa.Schema, files: Sequence[DataFile], number: int, load_id: str
) -> DataFile:
    """The rows of `files` in one file of `schema`, a row group in memory at a time; all are of one partition.

    Returns the first of them if they have no rows. Raises OperatorError if a file can't be read or written.
    """
    values = dict(files[0].partition_values)
    kept = schema if layout.partitions_in_files else pa.schema([one for one in schema if one.name not in values])
    with DataFileWriter(layout, schema, values, f"compacted-{number}", load_id) as writer:
        try:
            for batch in _rows(layout.store, files, kept):
                writer.add(batch)
            made = writer.finish()
        except (OSError, pa.ArrowException) as error:
            raise OperatorError(
                f"files of the table {layout.directory} can't be rewritten: {os_reason(error)}; the table is unchanged"
            ) from error
    return made or files[0]


def _rows(store: Store, files: Sequence[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    filesystem, paths = store.arrow([file.path for file in files])
    for path in paths:
        with pq.ParquetFile(path, filesystem=filesystem) as parquet:
            for batch in parquet.iter_batches():
                yield conformed(batch, schema)


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of `schema`; null for columns that are newer than their file."""
    return pa.RecordBatch.from_arrays([_column(batch, one) for one in schema], schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> Any:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    return batch.column(field.name).cast(field.type)
