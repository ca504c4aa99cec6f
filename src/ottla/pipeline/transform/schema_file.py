"""Schema file of an operator: a StructType in JSON, as Spark and Delta write it.

`df.schema.json()` returns one. All of its fields are nullable in a table, even if it declares otherwise: a tombstone
has null in all of them.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.columns import match_key, table_name, usable_names
from ottla.schemas.settings import read_schema_bytes

EXAMPLE = '{"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": true, "metadata": {}}]}'


def read_struct_type(path: Path) -> pa.Schema:
    """The fields of a StructType, by their names in the file; some have another name in a table (`columns.table_name`).

    Raises OperatorError for a file that has none, or names that no table has.
    """
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
    _require_usable(path, pa.struct(list(schema)))
    return pa.schema([column.with_nullable(True) for column in schema])


def _require_usable(path: Path, type_: pa.DataType) -> None:
    """Raise OperatorError for names of fields, at any level, that a table can't have, or not side by side."""
    if pa.types.is_struct(type_):
        names: dict[str, str] = {}
        for part in type_:
            name = part.name
            if not usable_names([table_name(name)]):
                raise OperatorError(
                    f"the schema {path} has a field {name!r}, which can't be a column: a name has to be printable, "
                    "and 1 to 255 characters long"
                )
            other = names.setdefault(match_key(name), name)
            if other is not name:
                raise OperatorError(
                    f"the schema {path} has the fields {other!r} and {name!r}, whose names are equal in a table: "
                    "case does not count, and spaces and ,;{}()= are _ there; rename one of them"
                )
            _require_usable(path, part.type)
    elif pa.types.is_list(type_):
        _require_usable(path, type_.value_type)
    elif pa.types.is_map(type_):
        _require_usable(path, type_.item_type)
