"""Text to the types of columns, for formats whose values are text throughout."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.fit import decimal_misfit, field_at

_INFINITE = r"(?i)\A[+-]?inf(?:inity)?\z"


def cast_field(text: pa.Array, column: pa.Field) -> pa.Array:
    """The column of a field's text; empty text is null but in a column of text. Raises ValueError for a text that is no
    value of the column's type, with that text if it is the only one."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return text.cast(column.type)
    text = null_if(text, "")
    try:
        return _cast(text, column.type)
    except ValueError as error:
        if len(text) == 1 and (only := text[0].as_py()) is not None:
            raise ValueError(f"{field_at(column.name)} is {only!r}, {_reason(only, column.type)}") from error
        raise


def _cast(text: pa.Array, type_: pa.DataType) -> pa.Array:
    found = text.cast(type_)
    if pa.types.is_floating(type_):
        infinite = text.filter(pc.is_inf(found))
        if not all_match(infinite, _INFINITE):
            raise ValueError("a number is larger than its column holds")
    return found


def _reason(text: str, type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        try:
            number = Decimal(text)
        except InvalidOperation:
            number = Decimal("NaN")
        if reason := decimal_misfit(number, type_):
            return reason
    return f"which its column of type {type_} can't hold"


def all_match(text: pa.Array, pattern: str) -> bool:
    """Whether each text matches, null ones too."""
    return pc.all(pc.match_substring_regex(text, pattern)).as_py() is not False


def null_if(text: pa.Array, absent: str) -> pa.Array:
    """The same with nulls in place of `absent`."""
    return pc.if_else(pc.equal(text, absent), None, text)


def require_castable(column: pa.Field) -> None:
    """Raises OperatorError for a type that is not read from text."""
    try:
        pa.array([], pa.string()).cast(column.type)
    except pa.ArrowNotImplementedError as error:
        raise OperatorError(
            f"the schema has the column {column.name!r} of type {column.type}, which is not read from text"
        ) from error
