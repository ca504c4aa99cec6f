"""Days and times outside of the years 1 to 9999, which tables and many readers of them fail on.

Python has no value for them, and Arrow writes a wrong year as their text.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.model.arrays import Bools

FIRST_DAY, END_DAY = -719_162, 2_932_897
"""Range of the years 1 to 9999, in days from the epoch."""
DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6}
"""By the unit of a timestamp; those of nanoseconds reach over some hundred years only."""


def has_times(type_: pa.DataType) -> bool:
    """True if a type is one of days or times with days, or contains one."""
    inner = (type_.field(number).type for number in range(type_.num_fields))
    return _ticks_of_day(type_) > 0 or any(map(has_times, inner))


def _ticks_of_day(type_: pa.DataType) -> int:
    """Units of a date or timestamp, 0 for other types."""
    if pa.types.is_date32(type_):
        return 1
    return DAY.get(type_.unit, 0) if pa.types.is_timestamp(type_) else 0


def outside_years(column: pa.Array) -> Bools:
    """True for values with a time outside of the years, also in their fields, items, keys and values."""
    none = np.zeros(len(column), np.bool_)
    if not has_times(column.type):
        return none
    if pa.types.is_struct(column.type):
        found: Bools = np.logical_or.reduce([none, *map(outside_years, column.flatten())])
        return found
    if day := _ticks_of_day(column.type):
        ticks = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
        within = pc.and_(pc.greater_equal(ticks, FIRST_DAY * day), pc.less(ticks, END_DAY * day))
        return ~np.asarray(pc.fill_null(within, fill_value=True))
    is_map = pa.types.is_map(column.type)
    if not (is_map or pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return none
    inner = outside_years(column.keys) | outside_years(column.items) if is_map else outside_years(column.values)
    borders = np.asarray(column.offsets)
    counts = np.concatenate([[0], np.cumsum(inner)])[borders]
    outside: Bools = (np.diff(counts) > 0) & np.asarray(column.is_valid())
    return outside
