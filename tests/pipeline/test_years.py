"""Times outside of the years 1 to 9999 are found in columns of any type, and commands refuse them in one sentence."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

import pyarrow.parquet as pq  # noqa: E402

from ottla.pipeline.model.results import as_records, write_csv  # noqa: E402
from ottla.pipeline.model.years import END_DAY, FIRST_DAY, outside_years  # noqa: E402
from ottla.pipeline.sources.rows import FileRows, Shape  # noqa: E402
from ottla.pipeline.stores.local_store import LocalStore  # noqa: E402

DAYS = pa.array([FIRST_DAY, FIRST_DAY - 1, None, END_DAY - 1, END_DAY], pa.int32()).cast(pa.date32())
OUTSIDE = [False, True, False, False, True]
SPLIT = pa.array([0, 2, None, 4, 5], pa.int32())
"""Borders of lists: two, null (without items), two, one."""


def times(unit: str) -> Any:
    return DAYS.cast(pa.timestamp(unit, tz="UTC"))


@pytest.mark.parametrize(
    "column", [DAYS, times("s"), times("ms"), times("us"), pa.StructArray.from_arrays([DAYS], ["d"])]
)
def test_columns_and_fields(column: Any) -> None:
    assert outside_years(column).tolist() == OUTSIDE
    assert outside_years(column.slice(1, 3)).tolist() == OUTSIDE[1:4]


@pytest.mark.parametrize(
    "column",
    [
        pa.ListArray.from_arrays(SPLIT, DAYS),
        pa.LargeListArray.from_arrays(SPLIT.cast(pa.int64()), times("us")),
        pa.MapArray.from_arrays(SPLIT, pa.array(["k"] * 5), pa.StructArray.from_arrays([times("us")], ["t"])),
        pa.MapArray.from_arrays(SPLIT, DAYS.fill_null(0), pa.array(["v"] * 5)),
    ],
)
def test_items_keys_and_values(column: Any) -> None:
    assert outside_years(column).tolist() == [True, False, False, True]
    assert outside_years(column.slice(1)).tolist() == [False, False, True]


RESULT = pa.table({"a": [1] * 5, "t": pa.StructArray.from_arrays([times("us")], ["at"])})


@pytest.mark.parametrize("show", [as_records, lambda result: write_csv(result, io.StringIO())])
def test_result_of_a_query_with_such_a_time_is_refused(show: Any) -> None:
    with pytest.raises(OperatorError, match="the column 't' of the result has a time that is not within the years"):
        show(RESULT)


@pytest.mark.parametrize("key_column", [None, "day"])
def test_file_of_rows_with_such_a_time_is_refused(tmp_path: Path, key_column: str | None) -> None:
    pq.write_table(pa.table({"day": DAYS}), tmp_path / "rows.parquet")
    source = FileRows(LocalStore(tmp_path), ["rows.parquet"], "parquet", Shape(key_column), ("t", 0))
    with pytest.raises(OperatorError, match="has a time in the column 'day' that is not within the years 1 to 9999"):
        list(source.batches({}))
