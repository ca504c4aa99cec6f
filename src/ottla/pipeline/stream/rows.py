"""The rows of a DataFrame as data files, which tasks write whole and sync before they report them to the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from ottla.common.errors import OperatorError
from ottla.pipeline.load.tasks import map_rows
from ottla.pipeline.model.arrays import texts
from ottla.pipeline.sinks.partitioned_writer import PartitionedWriter, require_placeable
from ottla.pipeline.sinks.partitioning import typed_rows
from ottla.pipeline.sinks.rewrite import group_small_files, rewrite_files
from ottla.pipeline.sinks.table import DataFile, FileLayout, files_from_json, files_to_json
from ottla.pipeline.transform.columns import usable_names

SMALL_BYTES = 8 << 20
"""Files of a batch are merged up to this size: most batches of an aggregation have a few rows a task."""


def arrow_schema(frame: Any) -> pa.Schema:
    """The columns of a DataFrame as table columns. Raises OperatorError for columns that no table can have."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(frame.schema, timezone="UTC")
    refused = [name for name in schema.names if name not in usable_names(schema.names)]
    doubled = [name for name in schema.names if schema.names.count(name) > 1]
    if refused or doubled:
        raise OperatorError(
            f"the result has a column {(refused + doubled)[0]!r} with a duplicate or invalid name; rename it with `AS`"
        )
    for column in schema:
        if pa.types.is_null(column.type):
            raise OperatorError(f"the column {column.name!r} of the result is null without a type; cast it to one")
    return pa.schema([pa.field(column.name, column.type) for column in schema])


def write_rows(frame: Any, layout: FileLayout, schema: pa.Schema, position: str, load_id: str) -> list[DataFile]:
    """Run the DataFrame once and write its rows; `position` names their origin in the file names.

    Few small files are merged. `leased_files` discards the files of a failed call.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = TaskContext.get().partitionId()
        with PartitionedWriter(layout, schema, f"{position}-{number:05d}", load_id) as writer:
            for batch in batches:
                rows = typed_rows(batch, schema)
                require_placeable(rows, layout.partition_columns)
                writer.add(rows)
            files = writer.finish()
        yield pa.RecordBatch.from_arrays([texts([files_to_json(files)])], ["files"])

    manifests = map_rows(frame, run, "files string").collect()
    files = sorted((file for row in manifests for file in files_from_json(row.files)), key=lambda file: file.path)
    return _put_together(files, layout, schema, load_id)


def _put_together(files: Sequence[DataFile], layout: FileLayout, schema: pa.Schema, load_id: str) -> list[DataFile]:
    made: list[DataFile] = []
    gone: set[str] = set()
    for number, group in enumerate(group_small_files(files, SMALL_BYTES)):
        made.append(rewrite_files(layout, schema, group, number, load_id))
        gone.update(file.path for file in group)
    for path in gone:
        layout.store.remove(path)
    return [*(file for file in files if file.path not in gone), *made]
