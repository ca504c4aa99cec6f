"""Inference of columns from a sample of JSON objects.

Kinds are not mixed: integers and other numbers are one kind, numbers and text are not. These fields have no column and
stay in the record's value: one with values of different kinds, one that was null or empty throughout, and one with a
name that a table can't have. Text is never taken for a time.

Integers beyond 64 bits become a decimal of 38 digits, and beyond that a double. Fractions become a double. If a field
has fractions and an integer that a double would round, such as an id above 2**53, both become a decimal: with 18 digits
after the point, or as many as the 38 allow beside the largest integer. Numbers that need more become a double; a later
integer that it would round is then a dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ottla.pipeline.transform.columns import usable_names
from ottla.pipeline.transform.fit import digit_counts, is_exact_double, parse_number

MAX_FIELDS = 2_000
"""Maximum number of fields of all levels; objects with data as names would bring ever more."""
MAX_DEPTH = 32
INT64 = range(-(1 << 63), 1 << 63)
DECIMAL_DIGITS = 38
FRACTION_DIGITS = 18


def infer_json_schema(values: Iterable[bytes | None]) -> pa.Schema:
    """Values that are not JSON objects are skipped; decoding makes them dead letters."""
    root = _Shape()
    budget = _Budget(MAX_FIELDS)
    for value in values:
        if value is None:
            continue
        try:
            found = json.loads(value, parse_float=parse_number)
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
    """Values seen at one path of many documents."""

    __slots__ = ("element", "fields", "fraction_digits", "is_rounded", "kinds", "largest", "whole_digits")

    def __init__(self) -> None:
        self.kinds: set[type] = set()
        self.largest = 0
        """The largest magnitude of an integer."""
        self.whole_digits = 0
        self.fraction_digits = 0
        """The most digits before and after the point."""
        self.is_rounded = False
        """True if a double would round an integer."""
        self.fields: dict[str, _Shape] = {}
        self.element: _Shape | None = None

    def add(self, value: Any, budget: _Budget, depth: int) -> None:
        if value is None:
            return
        self.kinds.add(float if isinstance(value, Decimal) else type(value))
        if isinstance(value, int | float | Decimal):
            self._add_number(value)
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

    def _add_number(self, value: int | float | Decimal) -> None:
        if isinstance(value, int):
            self.largest = max(self.largest, value if value >= 0 else -value - 1)
            self.is_rounded |= not is_exact_double(value)
        whole, fraction = digit_counts(Decimal(value)) or (0, 0)
        self.whole_digits = max(self.whole_digits, whole)
        self.fraction_digits = max(self.fraction_digits, fraction)

    def type(self) -> pa.DataType | None:
        """The column type; None if there can't be a column."""
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
            return self._number()
        if self.kinds == {str}:
            return pa.string()
        return pa.bool_() if self.kinds == {bool} else None

    def _integer(self) -> pa.DataType:
        if self.largest in INT64:
            return pa.int64()
        return pa.decimal128(DECIMAL_DIGITS, 0) if self.largest < 10**DECIMAL_DIGITS else pa.float64()

    def _number(self) -> pa.DataType:
        """For fractions, and for integers beside them."""
        scale = max(self.fraction_digits, min(FRACTION_DIGITS, DECIMAL_DIGITS - self.whole_digits))
        if self.is_rounded and self.whole_digits + scale <= DECIMAL_DIGITS:
            return pa.decimal128(DECIMAL_DIGITS, scale)
        return pa.float64()
