"""Comparison of decoded values with literals, and paths through them.

Types are null, boolean, number, text, bytes, list and object. Values of different types are not equal and have no
order; the caller counts such a mismatch. Numbers compare exactly. A boolean is not a number.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any

from ottla.search.decoders import Undecodable, decode_json
from ottla.search.syntax import Operator, Scalar, Segment

NULL, BOOLEAN, NUMBER, TEXT = "null", "a boolean", "a number", "text"
_KINDS: dict[type, str] = {
    type(None): NULL,
    bool: BOOLEAN,
    int: NUMBER,
    float: NUMBER,
    Decimal: NUMBER,
    str: TEXT,
    bytes: "undecoded bytes",
    list: "a list",
    dict: "an object",
}
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def json_text(value: object) -> str:
    """A decoded value as JSON. A decimal is a number if a double is as exact, otherwise text."""
    return json.dumps(value, ensure_ascii=False, default=_json_number)


def _json_number(value: object) -> object:
    if not isinstance(value, Decimal):
        raise TypeError(f"a decoder returned {type(value).__name__}")
    number = float(value)
    return number if isfinite(number) and Decimal(repr(number)) == value else str(value)


def kind_of(value: object) -> str:
    """The type of a decoded value, for messages."""
    return _KINDS[type(value)]


def compare(value: object, comparison: Operator, literal: Scalar) -> bool | None:
    """Compare two values; None for different types, of which neither is null."""
    kind, wanted = kind_of(value), kind_of(literal)
    if kind != wanted:
        if NULL in (kind, wanted) and comparison in ("==", "!="):
            return comparison == "!="
        return None
    if comparison == "==":
        return value == literal
    if comparison == "!=":
        return value != literal
    return None if kind in (NULL, BOOLEAN) else _ORDERS[comparison](value, literal)


def follow(values: Sequence[object], segments: Sequence[Segment], *, parses_text: bool = False) -> Sequence[object]:
    """The values at the end of a path, none where it leads nowhere; several after `[*]`.

    `parses_text`: text that is an object or a list in JSON has the fields of it, as in headers.
    """
    for segment in segments:
        found: list[object] = []
        for value in values:
            if parses_text and isinstance(value, str):
                value = _parsed(value)
            if isinstance(value, dict):
                if segment is None:
                    found.extend(value.values())
                elif segment in value:
                    found.append(value[segment])
            elif isinstance(value, list):
                if segment is None:
                    found.extend(value)
                elif isinstance(segment, int) and segment < len(value):
                    found.append(value[segment])
        values = found
    return values


def _parsed(text: str) -> object:
    try:
        return decode_json(text.encode()) if text.lstrip()[:1] in ("{", "[") else text
    except (Undecodable, UnicodeEncodeError):
        return text
