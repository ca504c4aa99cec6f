"""Schema file of an operator: a StructType in JSON, as Spark and Delta write it.

`df.schema.json()` returns one. All of its fields are nullable in a table, even if it declares otherwise: a tombstone
has null in all of them.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.columns import usable_names
from ottla.schemas.settings import read_schema_bytes

EXAMPLE = '{"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": true, "metadata": {}}]}'


def read_struct_type(path: Path) -> pa.Schema:
    """The fields of a StructType. Raises OperatorError for a file that has none, or names that no table has."""
    from deltalake import Schema
    from deltalake.exceptions import DeltaError

    data = read_schema_bytes(path)
    try:
        schema = pa.schema(Schema.from_json(data.decode()))
    except (ValueError, RecursionError, DeltaError) as error:
        raise OperatorError(
            f"the schema {path} is not a StructType in JSON as Spark writes it (df.schema.json()), such as {EXAMPLE}: "
            f"{error}"
        ) from error
    refused = set(schema.names) - set(usable_names(schema.names))
    if refused:
        raise OperatorError(
            f"the schema {path} has a field {min(refused)!r}, which can't be a column: its name has to be free of "
            "spaces and of ,;{}()= and of control characters, and no longer than 255 characters"
        )
    return pa.schema([column.with_nullable(True) for column in schema])
