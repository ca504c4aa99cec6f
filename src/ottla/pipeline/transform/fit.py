"""Checks that numbers fit the types of columns unchanged, with the reason if one does not.

Arrow's conversions are the first check, but some accept a number that the column can't hold: a number beyond a float
becomes infinite, and readers of CSV and JSON put more digits into a decimal than it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MAX_FLOAT = float(np.finfo(np.float32).max)
FIRST_ROUNDED = 2.0**53
"""Doubles represent all integers up to this one."""
FLOAT_ROUNDING = 2.0**103
"""Half of the step between floats at the upper end: numbers up to there round to MAX_FLOAT."""
MAX_SHOWN_CHARACTERS = 80

Check = Callable[[str, Any, pa.DataType], str | None]
"""(path, value, type) of a value that is not nested -> reason why a column of that type can't hold it."""


def is_exact_double(number: int) -> bool:
    """True if a double holds this integer unchanged."""
    try:
        return int(float(number)) == number
    except OverflowError:
        return False


def parse_integer(text: str) -> int | Decimal:
    """An integer; a decimal where it has more digits than Python converts (`sys.get_int_max_str_digits`)."""
    try:
        return int(text)
    except ValueError:
        return Decimal(text)


def parse_number(text: str) -> Decimal | float:
    """A number with a fraction or an exponent, all of its digits; a float where its exponent is beyond any decimal."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return float(text)


def number_misfit(value: Any, type_: pa.DataType) -> str | None:
    """Why a decimal or floating point column can't hold a number, as the end of a sentence that begins with the number.

    None for other types, for what is not a number, and for NaN and infinity in floating point columns.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if pa.types.is_decimal(type_):
        return decimal_misfit(Decimal(value), type_)
    if pa.types.is_floating(type_) and _overflows(value, type_):
        return f"which its column of type {type_} can't hold"
    return None


def _overflows(value: float | Decimal, type_: pa.DataType) -> bool:
    if isinstance(value, float) and not np.isfinite(value):
        return False
    try:
        size = abs(float(value))
    except OverflowError:
        return True
    return bool(np.isinf(size)) or (type_.bit_width < 64 and size >= MAX_FLOAT + FLOAT_ROUNDING)


def digit_counts(number: Decimal) -> tuple[int, int] | None:
    """The digits that a number needs before and after the point; None for NaN and infinity."""
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return None
    if not any(digits):
        return 0, 0
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return max(number.adjusted() + 1, 0), max(-exponent - zeros, 0)


def decimal_misfit(number: Decimal, type_: pa.DataType) -> str | None:
    """The digits that exceed a decimal type, as the end of a sentence; None if the number fits."""
    counts = digit_counts(number)
    if counts is None:
        return f"which its column of type {type_} can't hold"
    rooms = (type_.precision - type_.scale, type_.scale)
    for count, room, where in zip(counts, rooms, ("before", "after"), strict=True):
        if count > room:
            return f"with {count} digits {where} the point, and its column of type {type_} has {room}"
    return None


def first_misfit(path: str, value: Any, type_: pa.DataType, check: Check) -> str | None:
    """The first reason that `check` has for a value inside dictionaries, lists and maps (lists of pairs); null fits."""
    if value is None:
        return None
    if pa.types.is_struct(type_) and isinstance(value, Mapping):
        columns = ((name, one, type_.get_field_index(name)) for name, one in value.items())
        tests = (
            first_misfit(f"{path}.{name}", one, type_.field(at).type, check) for name, one, at in columns if at >= 0
        )
    elif pa.types.is_list(type_) and isinstance(value, list):
        tests = (first_misfit(f"{path}[]", one, type_.value_type, check) for one in value)
    elif pa.types.is_map(type_) and isinstance(value, list | Mapping):
        pairs = value.items() if isinstance(value, Mapping) else value
        tests = (first_misfit(f"{path}[]", one, type_.item_type, check) for _, one in pairs)
    else:
        return check(path, value, type_)
    return next((reason for reason in tests if reason), None)


def field_at(path: str) -> str:
    """The place of a value, as reasons name it."""
    return f"the field {path.removeprefix('.')!r}"


def shown(number: object) -> str:
    """A number as reasons show it."""
    text = str(number)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}... ({len(text)} characters)"


def has_float_from(array: pa.Array, limit: float) -> bool:
    """True if a floating point number in a column, nested ones too, is `limit` or more, with either sign."""
    if pa.types.is_floating(array.type):
        return bool(pc.any(pc.greater_equal(pc.abs(array), limit)).as_py())
    if pa.types.is_struct(array.type):
        return any(has_float_from(part, limit) for part in array.flatten())
    if pa.types.is_map(array.type):
        return has_float_from(array.items, limit)
    return bool(pa.types.is_list(array.type)) and has_float_from(array.flatten(), limit)
