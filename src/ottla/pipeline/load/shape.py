"""Layout of a snapshot's table, as encoded in its partition columns.

A key is in one of a fixed number of buckets, by the CRC-32 of its bytes. The number is in the name of the partition
column, `key_bucket_16`, as Iceberg names the field of such a transform: it is fixed when the table is created, and
every reader can see it. A table with a history has a second partition column, `current`, which separates the open rows
from those that will never change again.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.common.errors import OperatorError
from ottla.pipeline.model.decode import SCHEMA
from ottla.pipeline.sinks.partitioning import require_partition_columns
from ottla.pipeline.sinks.table import FileLayout, Table
from ottla.pipeline.transform.columns import RESERVED_COLUMNS

DEFAULT_BUCKETS = 16
CURRENT = "current"
VALID_FROM = "valid_from"
VALID_TO = "valid_to"
TIME_TYPE = SCHEMA.field("timestamp").type

_BUCKET_COLUMN = re.compile(r"key_bucket_(\d{1,4})")

Buckets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shape:
    """The number of buckets, and whether the table has a history of earlier values."""

    buckets: int = DEFAULT_BUCKETS
    history: bool = False

    @property
    def bucket_column(self) -> str:
        return f"key_bucket_{self.buckets}"

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return (self.bucket_column, CURRENT) if self.history else (self.bucket_column,)

    @property
    def own_columns(self) -> pa.Schema:
        """The columns in addition to those of the records."""
        times = [(VALID_FROM, TIME_TYPE), (VALID_TO, TIME_TYPE)] if self.history else []
        current = [(CURRENT, pa.bool_())] if self.history else []
        return pa.schema([*times, (self.bucket_column, pa.int32()), *current])

    @property
    def reserved_columns(self) -> frozenset[str]:
        """Names that no decoded field may use."""
        return RESERVED_COLUMNS | set(self.own_columns.names)

    def place_of(self, path: str) -> tuple[int, bool]:
        """(bucket, open rows?) of a data file, from its directories, which writers of every format name alike.

        Raises OperatorError for a file outside the buckets, which no run wrote.
        """
        values = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
        bucket, current = values.get(self.bucket_column, ""), values.get(CURRENT, "").lower()
        if not bucket.isdecimal() or (self.history and current not in ("true", "false")):
            raise OperatorError(
                f"the file {path} is not in a bucket, so another program wrote into the snapshot; create the snapshot "
                "in another directory"
            )
        return int(bucket), not self.history or current == "true"

    def buckets_of(self, keys: pa.Array) -> Buckets:
        """The bucket of each key; `keys` are binary, without nulls."""
        return np.array([zlib.crc32(key) % self.buckets for key in keys.to_pylist()], np.int64)


def shape_of(table: Table) -> Shape | None:
    """The shape of the table, or of a table to be created; None if it is not a snapshot. Raises OperatorError."""
    columns = table.layout().partition_columns
    match = _BUCKET_COLUMN.fullmatch(columns[0]) if columns else None
    if match is None or columns[1:] not in ((), (CURRENT,)):
        return None
    return Shape(int(match[1]), history=len(columns) > 1)


def settled_shape(table: Table, buckets: int | None, *, history: bool) -> Shape:
    """The shape of the table, or the requested one if the table does not exist; None means the existing or the default.

    Raises OperatorError for a table of another shape, and for one that is not a snapshot.
    """
    if not table.exists():
        return Shape(buckets or DEFAULT_BUCKETS, history)
    found = shape_of(table)
    if found is None:
        raise OperatorError(
            f"the table {table.location} was not created by `ottla pipeline snapshot`: it has every record, or other "
            "rows; choose another directory"
        )
    if buckets not in (None, found.buckets):
        raise OperatorError(
            f"the table {table.location} was created with {found.buckets} buckets, not {buckets}; leave --buckets "
            "out, or create the snapshot in another directory"
        )
    if history and not found.history:
        raise OperatorError(
            f"the table {table.location} was created without --history, so earlier values are gone; leave --history "
            "out, or create the snapshot in another directory"
        )
    return found


def require_rows(table: Table, layout: FileLayout, schema: pa.Schema) -> None:
    """Raise OperatorError if a table that now exists can't take rows of `schema`: another command may have created it
    in the meantime, as a snapshot or with other partitions."""
    if layout.partition_columns:
        require_no_snapshot(table)
        require_partition_columns(schema, layout.partition_columns)


def require_no_snapshot(table: Table) -> None:
    """Raise OperatorError for a table with one row a key: a command that adds every record would duplicate rows."""
    if shape_of(table) is not None:
        raise OperatorError(
            f"the table {table.location} is a snapshot with one row a key: update it with `ottla pipeline snapshot`, "
            "or choose another directory"
        )
