"""Partition columns of a table: checks, and the date of a record, which is computed from its timestamp.

`date` is the UTC day of a record's column `timestamp`; a field of that name in its value is in the column
`value_date`. Rows that have a column `date` of their own, results and copies, keep it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ottla.common.errors import OperatorError

DATE_COLUMN = "date"
UNUSABLE_CHARACTERS = frozenset("/\\%=:*?#[]")
"""Characters not allowed in a partition column: they end a directory's name or have a meaning for readers."""
MAX_NAME_BYTES = 127
"""Maximum length of a partition column, which leaves room for its values in the names of directories."""


def with_date_column(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """The schema of rows that are partitioned by these columns."""
    if DATE_COLUMN not in columns or DATE_COLUMN in schema.names:
        return schema
    if "timestamp" not in schema.names or not pa.types.is_timestamp(schema.field("timestamp").type):
        return schema
    return schema.append(pa.field(DATE_COLUMN, pa.date32()))


def with_date(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the day of their timestamps where the schema has it."""
    if DATE_COLUMN not in schema.names:
        return batch
    days = pc.floor_temporal(batch.column("timestamp"), unit="day").cast(pa.timestamp("us")).cast(pa.date32())
    return pa.RecordBatch.from_arrays([*batch.columns, days], schema=schema)


def typed_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of Spark's types as rows of the table, with the day of their timestamps where only the schema has it."""
    found = set(batch.schema.names)
    held = pa.schema([column for column in schema if column.name in found])
    columns = [batch.column(column.name).cast(column.type) for column in held]
    rows = pa.RecordBatch.from_arrays(columns, schema=held)
    return rows if held.names == schema.names else with_date(rows, schema)


def require_partition_columns(schema: pa.Schema, columns: Sequence[str]) -> None:
    """Raise OperatorError for a duplicate column, one that rows don't have, or one of a type without short texts."""
    for number, name in enumerate(columns):
        if name in columns[:number]:
            raise OperatorError(f"a table can't be partitioned by {name!r} twice: name it once with --partition-by")
        if name not in schema.names:
            raise OperatorError(
                f"a table can't be partitioned by {name!r}, which is not a column of its rows: they have "
                f"{', '.join(schema.names)}; and {DATE_COLUMN} is the day of a record's timestamp"
            )
        if UNUSABLE_CHARACTERS & set(name):
            raise OperatorError(
                f"a table can't be partitioned by {name!r}: directories are named by it, so it can't have any of "
                f"{' '.join(sorted(UNUSABLE_CHARACTERS))}"
            )
        if name.startswith(("_", ".")) or len(name.encode()) > MAX_NAME_BYTES:
            raise OperatorError(
                f"a table can't be partitioned by {name!r}: readers skip directories with a leading '_' or '.', "
                f"and a column name in them has at most {MAX_NAME_BYTES} bytes; rename the column"
            )
        type_ = schema.field(name).type
        if not any(test(type_) for test in _PARTITION_TYPES):
            raise OperatorError(
                f"a table can't be partitioned by {name!r} of type {type_}; it can be by text, integers, "
                "booleans and days"
            )


_PARTITION_TYPES = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date32)
