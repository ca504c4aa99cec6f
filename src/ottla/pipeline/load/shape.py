"""How a snapshot's table is laid out, which the table itself tells: by its partition columns.

A key lies in one of so many buckets, by the CRC-32 of its bytes. Their number is in the name of the partition column,
`key_bucket_16`, as Iceberg names the field of such a transform: it is fixed in the moment in which the table is made,
and every reader can see it. A table with a history has a second partition column, `current`, which parts the open rows
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
    """The number of buckets, and whether the table keeps what was valid before."""

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
        """The columns beside those of the records."""
        times = [(VALID_FROM, TIME_TYPE), (VALID_TO, TIME_TYPE)] if self.history else []
        current = [(CURRENT, pa.bool_())] if self.history else []
        return pa.schema([*times, (self.bucket_column, pa.int32()), *current])

    @property
    def reserved_columns(self) -> frozenset[str]:
        """Names that no decoded field gets."""
        return RESERVED_COLUMNS | set(self.own_columns.names)

    def place_of(self, path: str) -> tuple[int, bool]:
        """(bucket, open rows?) of a data file, by the directories that every format's writers name by them.

        Raises OperatorError for a file elsewhere, which no run wrote.
        """
        values = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
        bucket, current = values.get(self.bucket_column, ""), values.get(CURRENT, "").lower()
        if not bucket.isdecimal() or (self.history and current not in ("true", "false")):
            raise OperatorError(
                f"the file {path} lies in no bucket: another program wrote into the snapshot; make it anew in another "
                "directory"
            )
        return int(bucket), not self.history or current == "true"

    def buckets_of(self, keys: pa.Array) -> Buckets:
        """The bucket of each key; `keys` are binary, without nulls."""
        return np.array([zlib.crc32(key) % self.buckets for key in keys.to_pylist()], np.int64)


def shape_of(table: Table) -> Shape | None:
    """That of the table, or of one that would be made by it; None when it is no snapshot. Raises OperatorError."""
    columns = table.layout().partition_columns
    match = _BUCKET_COLUMN.fullmatch(columns[0]) if columns else None
    if match is None or columns[1:] not in ((), (CURRENT,)):
        return None
    return Shape(int(match[1]), history=len(columns) > 1)


def settled_shape(table: Table, buckets: int | None, *, history: bool) -> Shape:
    """The shape of the table, which is asked for when it is not there yet: None means what it has, or the default.

    Raises OperatorError for a table of another shape, and for one that is no snapshot.
    """
    if not table.exists():
        return Shape(buckets or DEFAULT_BUCKETS, history)
    found = shape_of(table)
    if found is None:
        raise OperatorError(
            f"the table {table.location} was not made by `ottla pipeline snapshot`: it holds every record, or is of "
            "others; choose another directory"
        )
    if buckets not in (None, found.buckets):
        raise OperatorError(
            f"the table {table.location} has {found.buckets} buckets since it was made, not {buckets}; leave --buckets "
            "away, or make the snapshot anew in another directory"
        )
    if history and not found.history:
        raise OperatorError(
            f"the table {table.location} was made without --history, so what was valid before is gone; leave --history "
            "away, or make the snapshot anew in another directory"
        )
    return found


def require_rows(table: Table, layout: FileLayout, schema: pa.Schema) -> None:
    """Raise OperatorError where a table, as it is now that it was made, takes no rows of `schema`: another command may
    have made it in the meantime, as a snapshot or in other partitions."""
    if layout.partition_columns:
        require_no_snapshot(table)
        require_partition_columns(schema, layout.partition_columns)


def require_no_snapshot(table: Table) -> None:
    """Raise OperatorError for a table that holds one row a key: what adds each record would double them."""
    if shape_of(table) is not None:
        raise OperatorError(
            f"the table {table.location} is a snapshot, which holds one row a key: bring it up to date with `ottla "
            "pipeline snapshot`, or choose another directory"
        )
