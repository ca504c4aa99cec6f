"""The columns that a sample of JSON objects has.

Kinds are not mixed: integers and other numbers are one kind, numbers and text are not. A field whose values disagree,
one that was null or empty throughout, and one with a name that no table takes has no column; it stays in the record's
value. Integers beyond 64 bits make a decimal of 38 digits, and beyond that a double. Text is never taken for a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from ottla.pipeline.transform.columns import usable_names

MAX_FIELDS = 2_000
"""Fields of all levels that are told apart; objects with names made of data would bring ever more."""
MAX_DEPTH = 32
INT64 = range(-(1 << 63), 1 << 63)
DECIMAL_DIGITS = 38


def infer_json_schema(values: Iterable[bytes | None]) -> pa.Schema:
    """Values that are no JSON objects are passed over; they will be found bad when they are decoded."""
    root = _Shape()
    budget = _Budget(MAX_FIELDS)
    for value in values:
        if value is None:
            continue
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            root.add(found, budget, MAX_DEPTH)
    type_ = root.type()
    return pa.schema(list(type_)) if type_ is not None else pa.schema([])


class _Budget:
    def __init__(self, fields: int) -> None:
        self.fields = fields


class _Shape:
    """What was seen in one place of many documents."""

    __slots__ = ("element", "fields", "kinds", "largest")

    def __init__(self) -> None:
        self.kinds: set[type] = set()
        self.largest = 0
        """The largest magnitude of an integer."""
        self.fields: dict[str, _Shape] = {}
        self.element: _Shape | None = None

    def add(self, value: Any, budget: _Budget, depth: int) -> None:
        if value is None:
            return
        self.kinds.add(type(value))
        if isinstance(value, int):
            self.largest = max(self.largest, value if value >= 0 else -value - 1)
        elif depth and isinstance(value, dict):
            for name, inner in value.items():
                shape = self.fields.get(name)
                if shape is None:
                    if not budget.fields:
                        continue
                    budget.fields -= 1
                    shape = self.fields[name] = _Shape()
                shape.add(inner, budget, depth - 1)
        elif depth and isinstance(value, list):
            self.element = self.element or _Shape()
            for inner in value:
                self.element.add(inner, budget, depth - 1)

    def type(self) -> pa.DataType | None:
        """None where there is no column to be had."""
        if self.kinds == {dict}:
            found = {name: type_ for name, shape in self.fields.items() if (type_ := shape.type()) is not None}
            names = usable_names(found)
            return pa.struct([(name, found[name]) for name in names]) if names else None
        if self.kinds == {list}:
            inner = self.element.type() if self.element else None
            return None if inner is None else pa.list_(inner)
        if self.kinds == {int}:
            return self._integer()
        if self.kinds in ({float}, {int, float}):
            return pa.float64()
        if self.kinds == {str}:
            return pa.string()
        return pa.bool_() if self.kinds == {bool} else None

    def _integer(self) -> pa.DataType:
        if self.largest in INT64:
            return pa.int64()
        return pa.decimal128(DECIMAL_DIGITS, 0) if self.largest < 10**DECIMAL_DIGITS else pa.float64()
