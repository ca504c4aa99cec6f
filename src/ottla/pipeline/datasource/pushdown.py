"""Filters of a batch query on partition, offset and timestamp, converted to bounds of the read.

Spark asks for filters in a worker of its own, which runs only if `spark.sql.python.filterPushdown.enabled` is set;
in any other process a reader that takes filters is an error. Hence `asked_for_filters`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ottla.pipeline.datasource.bounds import UNBOUNDED, Bounds

PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_NUMBERS = ("partition", "offset", "timestamp")
_COMPARISONS = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
_EPOCH = datetime.fromtimestamp(0, UTC)


def asked_for_filters() -> bool:
    """True in Spark's worker that pushes filters down, as `python -m` or forked by a daemon.

    If Spark renamed that module, nothing would be pushed down, and every result would still be right.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return PUSHDOWN_WORKER in sys.modules or getattr(main, "name", "") == PUSHDOWN_WORKER


def bounds(filters: Iterable[Filter]) -> Bounds:
    """Combined bounds of these filters; other filters are ignored."""
    ranges: dict[str, tuple[int, int]] = {}
    sets: dict[str, frozenset[int | str]] = {}
    for one in filters:
        column = one.attribute[0] if len(getattr(one, "attribute", ())) == 1 else ""
        if column not in (*_NUMBERS, "topic"):
            continue
        if isinstance(one, (EqualTo, EqualNullSafe, In)):
            values = [_value(column, value) for value in (one.value if isinstance(one, In) else [one.value])]
            if None in values:
                continue
            wanted = frozenset(value for value in values if value is not None)
            sets[column] = sets.get(column, wanted) & wanted
        elif column in _NUMBERS and isinstance(one, _COMPARISONS) and isinstance(_value(column, one.value), int):
            least, greatest = ranges.get(column, UNBOUNDED)
            limit = _value(column, one.value)
            if isinstance(one, (GreaterThan, GreaterThanOrEqual)):
                least = max(least, limit + isinstance(one, GreaterThan))
            else:
                greatest = min(greatest, limit - isinstance(one, LessThan))
            ranges[column] = (least, greatest)
    if "timestamp" in sets:
        ranges["timestamp"] = Bounds(ranges, sets).range_of("timestamp")
    return Bounds(ranges, sets)


def _value(column: str, value: Any) -> Any:
    """A literal in the form of `Bounds`; None if it can't be represented."""
    if column == "timestamp":
        aware = isinstance(value, datetime) and value.tzinfo is not None
        return (value - _EPOCH) // timedelta(microseconds=1) if aware else None
    wanted = str if column == "topic" else int
    return value if isinstance(value, wanted) and not isinstance(value, bool) else None
