"""The data files of a table in any store, as an Arrow dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from ottla.pipeline.sinks.table import FileLayout


def open_dataset(layout: FileLayout, schema: pa.Schema, files: Sequence[str]) -> Any:
    """Some files of a table, as its `files()` returns them, with the columns whose values are in their paths; null
    where a file is older than a column."""
    in_paths = [] if layout.partitions_in_files else layout.partition_columns
    partitioning = ds.partitioning(pa.schema([schema.field(name) for name in in_paths]), flavor="hive")
    filesystem, paths = layout.store.arrow(list(map(layout.store.relative, files)))
    return ds.dataset(paths, schema=schema, filesystem=filesystem, format="parquet", partitioning=partitioning)
