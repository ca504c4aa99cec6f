"""Inference of columns from JSON objects.

Kinds are not mixed: integers and other numbers are one kind, numbers and text are not. These fields have no column and
stay in the record's value: one with values of different kinds, one that was null or empty throughout, and one with a
name that a table can't have. The result lists them with the reason. Text is never taken for a time.

Names match without regard to case; the column has the commonest spelling. Of two spellings in one object the first
counts. A spelling with characters that a table can't have is the column's after `columns.table_name`.

`numbers = "double"`: numbers are doubles, since later ones may have fractions, and no table format widens a `long` to a
double. A field with an integer beyond 2**53 stays an integer: doubles would round ids. `numbers = "exact"`: numbers
without fractions are integers.

Integers beyond 64 bits become a decimal of 38 digits, and beyond that a double. Fractions become a double. If a field
has fractions and an integer that a double would round, such as an id above 2**53, both become a decimal: with 18 digits
after the point, or as many as the 38 allow beside the largest integer. Numbers that need more become a double; a later
integer that it would round is then a dead letter.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ottla.pipeline.transform.columns import match_key, renamed_paths, renamed_type, table_name, usable_names
from ottla.pipeline.transform.decoder import MAX_COUNTED, add_bounded
from ottla.pipeline.transform.fit import digit_counts, is_exact_double, parse_number

MAX_FIELDS = 2_000
"""Maximum number of fields of all levels; objects with data as names would bring ever more."""
MAX_DEPTH = 32
INT64 = range(-(1 << 63), 1 << 63)
DECIMAL_DIGITS = 38
FRACTION_DIGITS = 18
LARGEST_EXACT = 1 << 53
"""Doubles hold every integer up to this one."""

UNION = "values of several types"
EMPTY = "no value but null or empty ones"
NAME = "a name that no table can have"
LIMIT = f"more than {MAX_FIELDS:,} fields"
DEPTH = f"nested more than {MAX_DEPTH} levels deep"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A field without a column: the number of its values among those that were inspected, and why."""

    values: int
    why: str


@dataclass(frozen=True, slots=True)
class InferredFields:
    """`left_out`: path -> field without a column. `spellings`: path -> number of objects that spell the name twice.
    `renamed`: path -> name in the table, of fields with characters that a table can't have."""

    schema: pa.Schema
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    spellings: Mapping[str, int] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


def declared_fields(schema: pa.Schema) -> InferredFields:
    """The fields of a schema that an operator gave, with their names in a table."""
    type_ = pa.struct(list(schema))
    return InferredFields(pa.schema(list(renamed_type(type_))), renamed=dict(renamed_paths("", type_)))


def infer_json_schema(values: Iterable[bytes | None]) -> pa.Schema:
    """The columns of `infer_json`, with exact numbers."""
    return infer_json(values).schema


def infer_json(
    values: Iterable[bytes | None],
    *,
    is_exact: bool = True,
    exact_fields: frozenset[str] = frozenset(),
    map_keys: int = 0,
) -> InferredFields:
    """Infer columns. `exact_fields`: fields of the objects themselves that have exact numbers in any case. `map_keys`:
    an object with more names than this, and values of one plain type, is a map; 0 for none.

    Values that are not JSON objects are skipped; decoding makes them dead letters.
    """
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
    result = _Types(is_exact, frozenset(map(match_key, exact_fields)), map_keys)
    result.left_out.update({path: LeftOut(count, LIMIT) for path, count in budget.refused.items()})
    type_ = result.of(root, "")
    schema = pa.schema(list(type_) if type_ is not None else [])
    return InferredFields(schema, result.left_out, budget.spellings, result.renamed)


class _Budget:
    def __init__(self, fields: int) -> None:
        self.fields = fields
        self.refused: Counter[str] = Counter()
        """Values of fields beyond the limit."""
        self.spellings: Counter[str] = Counter()


class _Shape:
    """Values seen at one path of many documents."""

    __slots__ = (
        *("element", "fields", "fraction_digits", "is_cut", "is_rounded", "kinds", "largest", "names", "values"),
        "whole_digits",
    )

    def __init__(self) -> None:
        self.kinds: set[type] = set()
        self.values = 0
        """Number of values, null ones too."""
        self.names: Counter[str] = Counter()
        """How often each spelling of the name was used."""
        self.largest = 0
        """The largest magnitude of an integer."""
        self.whole_digits = 0
        self.fraction_digits = 0
        """The most digits before and after the point."""
        self.is_rounded = False
        """True if a double would round an integer."""
        self.is_cut = False
        """True if nested values were too deep to be inspected."""
        self.fields: dict[str, _Shape] = {}
        """By `match_key`."""
        self.element: _Shape | None = None

    def add(self, value: Any, budget: _Budget, depth: int) -> None:
        self.values += 1
        if value is None:
            return
        self.kinds.add(float if isinstance(value, Decimal) else type(value))
        if isinstance(value, int | float | Decimal):
            self._add_number(value)
        elif isinstance(value, dict):
            if depth:
                self._add_object(value, budget, depth - 1)
            else:
                self.is_cut |= bool(value)
        elif isinstance(value, list):
            if depth:
                self.element = self.element or _Shape()
                for inner in value:
                    self.element.add(inner, budget, depth - 1)
            else:
                self.is_cut |= bool(value)

    def _add_object(self, value: dict[str, Any], budget: _Budget, depth: int) -> None:
        spelled: set[str] = set()
        for name, inner in value.items():
            key = match_key(name)
            if key in spelled:
                add_bounded(budget.spellings, {key: 1})
                continue
            spelled.add(key)
            shape = self.fields.get(key)
            if shape is None:
                if not budget.fields:
                    add_bounded(budget.refused, {name: 1})
                    continue
                budget.fields -= 1
                shape = self.fields[key] = _Shape()
            shape.names[name] += 1
            shape.add(inner, budget, depth)

    def _add_number(self, value: int | float | Decimal) -> None:
        if isinstance(value, int):
            self.largest = max(self.largest, value if value >= 0 else -value - 1)
            self.is_rounded |= not is_exact_double(value)
        whole, fraction = digit_counts(Decimal(value)) or (0, 0)
        self.whole_digits = max(self.whole_digits, whole)
        self.fraction_digits = max(self.fraction_digits, fraction)


class _Types:
    """The column types of shapes, and the fields that have none."""

    def __init__(self, is_exact: bool, exact_fields: frozenset[str], map_keys: int) -> None:
        self.left_out: dict[str, LeftOut] = {}
        self.renamed: dict[str, str] = {}
        self._is_exact = is_exact
        self._exact_fields = exact_fields
        self._map_keys = map_keys

    def of(self, shape: _Shape, path: str) -> pa.DataType | None:
        """The column type; None if there can't be a column, which `left_out` then has with the reason."""
        if shape.is_cut:
            return self._without(shape, path, DEPTH)
        if shape.kinds == {dict}:
            return self._map(shape, path) or self._struct(shape, path)
        if shape.kinds == {list}:
            inner = self.of(shape.element, f"{path}[]") if shape.element and shape.element.values else None
            return self._without(shape, path, EMPTY) if inner is None else pa.list_(inner)
        if shape.kinds == {int}:
            return self._integer(shape, path)
        if shape.kinds in ({float}, {int, float}):
            return _number(shape)
        if shape.kinds == {str}:
            return pa.string()
        if shape.kinds == {bool}:
            return pa.bool_()
        return self._without(shape, path, UNION if shape.kinds else EMPTY)

    def _map(self, shape: _Shape, path: str) -> pa.DataType | None:
        """The map type of a top-level object whose names look like data; None for any other."""
        if not (0 < self._map_keys < len(shape.fields)) or not path or "." in path or path.endswith("[]"):
            return None
        kinds = set().union(*(part.kinds for part in shape.fields.values()))
        if kinds == {str} or kinds == {bool}:
            return pa.map_(pa.string(), pa.string() if kinds == {str} else pa.bool_())
        if not kinds or kinds - {int, float}:
            return None
        is_exact = kinds == {int} and (self._is_exact or any(p.largest > LARGEST_EXACT for p in shape.fields.values()))
        return pa.map_(pa.string(), pa.int64() if is_exact else pa.float64())

    def _struct(self, shape: _Shape, path: str) -> pa.DataType | None:
        found: dict[str, pa.DataType] = {}
        for part in shape.fields.values():
            spelling = max(part.names, key=part.names.__getitem__)
            name, inner = table_name(spelling), f"{path}.{spelling}".removeprefix(".")
            if not usable_names([name]):
                self._without(part, inner, NAME)
            elif (type_ := self.of(part, inner)) is not None:
                found[name] = type_
                if name != spelling:
                    add_renamed(self.renamed, inner, name)
        names = usable_names(found)
        for name in found.keys() - set(names):
            self._without(shape.fields[match_key(name)], f"{path}.{name}".removeprefix("."), NAME)
        return pa.struct([(name, found[name]) for name in names]) if names else self._without(shape, path, EMPTY)

    def _without(self, shape: _Shape, path: str, why: str) -> pa.DataType | None:
        """Always None, after the field was added to `left_out`; a list gets the reason of its items."""
        path = path.removesuffix("[]")
        if path and len(self.left_out) < MAX_COUNTED:
            self.left_out.setdefault(path, LeftOut(shape.values, why))
        return None

    def _integer(self, shape: _Shape, path: str) -> pa.DataType:
        if not (self._is_exact or match_key(path) in self._exact_fields or shape.largest > LARGEST_EXACT):
            return pa.float64()
        if shape.largest in INT64:
            return pa.int64()
        return pa.decimal128(DECIMAL_DIGITS, 0) if shape.largest < 10**DECIMAL_DIGITS else pa.float64()


def add_renamed(renamed: dict[str, str], path: str, name: str) -> None:
    """Note the name in the table of a field, of at most MAX_COUNTED fields."""
    if len(renamed) < MAX_COUNTED:
        renamed[path] = name


def _number(shape: _Shape) -> pa.DataType:
    """For fractions, and for integers beside them."""
    scale = max(shape.fraction_digits, min(FRACTION_DIGITS, DECIMAL_DIGITS - shape.whole_digits))
    if shape.is_rounded and shape.whole_digits + scale <= DECIMAL_DIGITS:
        return pa.decimal128(DECIMAL_DIGITS, scale)
    return pa.float64()
