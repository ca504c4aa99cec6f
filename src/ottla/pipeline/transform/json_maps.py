"""Objects of JSON with data as names, as columns of maps.

pyarrow's reader has no maps, so Python reads values with such columns a second time: only loads with a map pay for it.
A map is a top-level field, its keys are text and its items plain values. Of a duplicate key the last item counts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ottla.pipeline.transform.columns import match_key
from ottla.pipeline.transform.fit import field_at

_ITEMS = (pa.types.is_string, pa.types.is_boolean, pa.types.is_int32, pa.types.is_int64, pa.types.is_float64)


def is_readable_map(type_: pa.DataType) -> bool:
    """True for a map from text to plain values."""
    return bool(
        pa.types.is_map(type_) and pa.types.is_string(type_.key_type) and any(test(type_.item_type) for test in _ITEMS)
    )


def read_maps(text: pa.Array, columns: Sequence[pa.Field], unknown: dict[str, int]) -> dict[str, pa.Array]:
    """The map columns of some objects; their names are taken from the counts in `unknown`. Raises ValueError."""
    pairs: dict[str, list[list[tuple[str, Any]] | None]] = {column.name: [] for column in columns}
    for value in text.to_pylist():
        try:
            found = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the value can't be read with maps: {error}") from error
        for name, items in pairs.items():
            spelled = _spelling(found, name)
            content = found.get(spelled)
            if content is not None and not isinstance(content, dict):
                raise ValueError(f"{field_at(name)} is not an object, and its column is a map")
            items.append(None if content is None else list(content.items()))
            for known in (spelled, *(content or ())):
                if known in unknown:
                    unknown[known] -= 1
    for name in [name for name, count in unknown.items() if count <= 0]:
        del unknown[name]
    return {column.name: _array(column, pairs[column.name]) for column in columns}


def _spelling(found: dict[str, Any], name: str) -> str:
    """The field's name as the object spells it: as the column does, else the first in another spelling."""
    if found.get(name) is not None:
        return name
    key = match_key(name)
    others = (other for other in sorted(found) if match_key(other) == key and found[other] is not None)
    return next(others, name)


def _array(column: pa.Field, pairs: list[list[tuple[str, Any]] | None]) -> pa.Array:
    try:
        return pa.array(pairs, column.type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise ValueError(f"{field_at(column.name)} has an item that its column of type {column.type} can't hold") from (
            error
        )
