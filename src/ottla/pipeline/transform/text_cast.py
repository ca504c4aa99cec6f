"""Casts from text to the types of columns: for formats with text values, and for times in JSON.

Times are in ISO 8601. Digits of a second beyond the column's unit are cut, as Java writes nanoseconds.
"""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.fit import decimal_misfit, field_at

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""Digits of a second, by the unit of a time."""
_ZONED = r"\A[0-9-]{10}[T ].*(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)\z"
_DAY_CHARS = 10
_DECIMAL = r"\A-?[0-9]+\z"
_INFINITE = r"(?i)\A[+-]?inf(?:inity)?\z"


def cast_field(text: pa.Array, column: pa.Field) -> pa.Array:
    """Cast a field's text to the column's type; empty text is null except in a text column. Raises ValueError for a
    text that is not a value of the type, with that text if it is the only one."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return text.cast(column.type)
    text = null_if(text, "")
    try:
        return _cast(text, column.type)
    except ValueError as error:
        if len(text) == 1 and (only := text[0].as_py()) is not None:
            raise ValueError(f"{field_at(column.name)} is {only!r}, {_reason(only, column.type)}") from error
        raise


def cast_json_time(text: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast text of JSON to dates, times of day or timestamps; UTC is the default zone. Raises ValueError."""
    if not pa.types.is_timestamp(type_):
        return _cast(text, type_)
    if type_.tz == "UTC":
        with suppress(ValueError):  # fast path if all have a zone
            return text.cast(type_)
    midnight = pc.if_else(pc.equal(pc.utf8_length(text), _DAY_CHARS), "T00Z", "Z")
    rest = pc.if_else(pc.match_substring_regex(text, _ZONED), "", midnight)
    zoned = pc.binary_join_element_wise(text, rest, "")
    return _cast(zoned, pa.timestamp(type_.unit, "UTC")).cast(type_)


def _cast(text: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type_):
        with suppress(ValueError):
            return text.cast(type_)
        return _cut(text, type_.unit).cast(type_)
    if pa.types.is_time(type_):
        today = pc.binary_join_element_wise("1970-01-01", text, "T")
        return _cut(today, type_.unit).cast(pa.timestamp(type_.unit)).cast(type_)
    if pa.types.is_integer(type_) and not all_match(text, _DECIMAL):
        raise ValueError("an integer is not written in decimal digits")  # pyarrow takes 0x1A
    found = text.cast(type_)
    if pa.types.is_floating(type_):
        infinite = text.filter(pc.is_inf(found))
        if not all_match(infinite, _INFINITE):
            raise ValueError("a number is larger than its column holds")
    return found


def _cut(text: pa.Array, unit: str) -> pa.Array:
    """The text without the digits of a second beyond the unit."""
    digits = _DIGITS[unit]
    kept = rf"(\.[0-9]{{{digits}}})" if digits else r"()\."
    return pc.replace_substring_regex(text, rf"\A([^.]*){kept}[0-9]+([^.0-9][^.]*)?\z", r"\1\2\3")


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
    """True if each text matches; nulls match."""
    return pc.all(pc.match_substring_regex(text, pattern)).as_py() is not False


def null_if(text: pa.Array, absent: str) -> pa.Array:
    """The same texts with nulls in place of `absent`."""
    return pc.if_else(pc.equal(text, absent), None, text)


def require_castable(column: pa.Field) -> None:
    """Raises OperatorError for a type that is not read from text."""
    if pa.types.is_time(column.type):
        return
    try:
        pa.array([], pa.string()).cast(column.type)
    except pa.ArrowNotImplementedError as error:
        raise OperatorError(
            f"the schema has the column {column.name!r} of type {column.type}, which is not read from text"
        ) from error
