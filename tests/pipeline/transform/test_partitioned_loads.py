"""Tables partitioned by the day of a record or by its fields, in every format, with few files open at once."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")

from ottla.pipeline.load.compact import compact  # noqa: E402
from ottla.pipeline.operations.status import row_counts  # noqa: E402
from ottla.pipeline.sinks import partitioned_writer  # noqa: E402
from ottla.pipeline.sinks.dataset import open_dataset  # noqa: E402
from ottla.pipeline.sinks.open_table import open_table  # noqa: E402
from ottla.pipeline.sinks.partitioned_writer import PartitionedWriter  # noqa: E402
from ottla.pipeline.sinks.table import TableCommit  # noqa: E402
from ottla.pipeline.sinks.writer import new_load_id  # noqa: E402
from ottla.pipeline.sql.query import register_tables, run_sql  # noqa: E402
from ottla.pipeline.transform.value_format import AccessLogFormat, JsonFormat  # noqa: E402
from ottla.record.builder import RecordData, build_batch  # noqa: E402

from .conftest import Lake  # noqa: E402

FORMATS = ("delta", "iceberg", "parquet")
DAY_MS = 86_400_000
VALUES = [
    b'{"id":0,"kind":"a b","ok":true}',
    b'{"id":1,"kind":"c"}',
    b'{"id":2}',
    b'{"id":3,"kind":"a b","ok":true}',
    b'{"id":4,"kind":"../up"}',
    b'{"id":5,"kind":""}',
    b'{"id":6,"kind":"a%20b"}',
]


@pytest.mark.pipeline
@pytest.mark.parametrize("table_format", FORMATS)
def test_partitions_are_read_as_they_were_written(
    make_lake: Callable[..., Lake], spark: Any, table_format: str
) -> None:
    lake = make_lake("date", "kind", "ok", table_format=table_format)
    lake.cluster.partitions["clicks", 0].append(
        build_batch([RecordData(DAY_MS * (20_000 + n % 2), None, value) for n, value in enumerate(VALUES)])
    )
    [row] = lake.load(JsonFormat())
    assert (row.error, row.rows, row.dead_rows) == ("", 7, 0)
    days = date(2024, 10, 4), date(2024, 10, 5)
    register_tables(spark, [lake.table])
    found = run_sql(spark, "select offset, date, kind, ok, id from records order by offset").to_pylist()
    assert [tuple(one.values()) for one in found] == [
        (0, days[0], "a b", True, 0),
        (1, days[1], "c", None, 1),
        (2, days[0], None, None, 2),
        (3, days[1], "a b", True, 3),
        (4, days[0], "../up", None, 4),
        (5, days[1], "" if table_format == "iceberg" else None, None, 5),
        (6, days[0], "a%20b", None, 6),
    ]
    lake.cluster.partitions["clicks", 0].append(
        build_batch([RecordData(-1, None, b'{"id":7,"date":"mine"}')], base_offset=7)
    )
    lake.load(JsonFormat())
    register_tables(spark, [lake.table])
    found = run_sql(spark, "select date, value_date from records where id = 7").to_pylist()
    assert found == [{"date": None, "value_date": "mine"}]
    assert row_counts(lake.table) == {("clicks", 0): 8}


ANY_TEXT = ["Österreich", "USA/CA", "10:30", "a%2Fb", "x=y", "", None, " lead", "..", "\x1f", *string.punctuation]


@pytest.mark.parametrize("table_format", FORMATS)
def test_partitions_of_any_text_are_read_and_compacted(make_lake: Callable[..., Lake], table_format: str) -> None:
    table = make_lake("place", table_format=table_format).table
    schema = pa.schema([("place", pa.string()), ("number", pa.int64())])
    layout = table.ensure(schema)
    for start in (0, len(ANY_TEXT)):
        with PartitionedWriter(layout, schema, "test", "load") as writer:
            numbers = range(start, start + len(ANY_TEXT))
            writer.add(pa.record_batch({"place": ANY_TEXT, "number": list(numbers)}, schema=schema))
            table.commit(TableCommit(new_load_id(), writer.finish()))
    read = [text if text or table_format == "iceberg" else None for text in ANY_TEXT] * 2
    for _ in range(2):
        found = open_dataset(table.layout(), table.schema(), table.files()).to_table().sort_by("number")
        assert found.column("place").to_pylist() == read
        assert {file.partition_values["place"] for file in table.data_files()} == set(read)
        table.compact(1 << 30, new_load_id(), lambda: None)
    assert len(table.files()) == len(set(read))


@pytest.mark.pipeline
@pytest.mark.parametrize("table_format", FORMATS)
def test_compacted_partitions_keep_their_values(make_lake: Callable[..., Lake], spark: Any, table_format: str) -> None:
    lake = make_lake("date", "kind", "ok", table_format=table_format)
    for start in (0, 3):
        lake.cluster.partitions["clicks", 0].append(
            build_batch([RecordData(DAY_MS * 20_000, None, value) for value in VALUES[:3]], base_offset=start)
        )
        lake.load(JsonFormat())
    summary = compact(lake.table)
    assert (summary.files_before, summary.files_after) == (6, 3)
    register_tables(spark, [lake.table])
    found = run_sql(spark, "select date, kind, ok, count(*) from records group by all order by kind").to_pylist()
    day = date(2024, 10, 4)
    assert [tuple(one.values()) for one in found] == [(day, None, None, 2), (day, "a b", True, 2), (day, "c", None, 2)]
    assert row_counts(lake.table) == {("clicks", 0): 6}


@pytest.mark.parametrize("table_format", FORMATS)
def test_partition_is_deleted_from_table(make_lake: Callable[..., Lake], table_format: str) -> None:
    lake = make_lake("date", "kind", "ok", table_format=table_format)
    lake.produce(*VALUES[:3])
    lake.load(JsonFormat())
    [removed] = [path for path in lake.table.files() if "ok=true" in path]
    lake.table.commit(TableCommit("removal", removed=[removed]))
    assert row_counts(lake.table) == {("clicks", 0): 2}


def test_dates_of_raw_records(make_lake: Callable[..., Lake]) -> None:
    lake = make_lake("date")
    times = [0, DAY_MS - 1, DAY_MS, 5 * DAY_MS, -1]
    lake.cluster.partitions["clicks", 0].append(build_batch([RecordData(time, None, b"x") for time in times]))
    lake.load(None)
    days = [row["date"] for row in lake.rows()]
    assert days == [date(1970, 1, 1), date(1970, 1, 1), date(1970, 1, 2), date(1970, 1, 6), None]


def test_many_values_with_few_open_files(make_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that returns after its file was finished gets another file; rows of a value stay in order."""
    monkeypatch.setattr(partitioned_writer, "MAX_OPEN_FILES", 3)
    monkeypatch.setattr("ottla.pipeline.sources.fetch.FETCH_BYTES", 1)
    lake = make_lake("n")
    for start in range(0, 60, 10):
        lake.produce(*(b'{"n":%d}' % (number % 7) for number in range(start, start + 10)))
    lake.load(JsonFormat(pa.schema([("n", pa.int64())])))
    assert Counter(row["n"] for row in lake.rows()) == Counter(number % 7 for number in range(60))
    files = [Path(path) for path in lake.table.files()]
    assert len(files) > 7
    assert {path.parent.name for path in files} == {f"n={number}" for number in range(7)}


def test_too_many_values_leave_nothing(make_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioned_writer, "MAX_OPEN_FILES", 3)
    monkeypatch.setattr(partitioned_writer, "MAX_FILES", 5)
    lake = make_lake("n")
    lake.produce(*(b'{"n":%d}' % number for number in range(6)))
    [row] = lake.load(JsonFormat())
    assert row.error_kind == "operator"
    assert "partition the table by a column with fewer values" in row.error
    assert not list(Path(lake.table.location).rglob("*.parquet"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("nothing",), "is not a column of its rows"),
        (("d",), "of type double"),
        (("timestamp",), "of type timestamp"),
        (("../up",), "directories"),
        (("topic", "date", "topic"), "by 'topic' twice"),
    ],
)
def test_invalid_partition_columns_are_refused(
    make_lake: Callable[..., Lake], columns: tuple[str, ...], message: str
) -> None:
    lake = make_lake(*columns)
    lake.produce(b'{"d":1.5,"../up":1}')
    with pytest.raises(OperatorError, match=message):
        lake.load(JsonFormat())
    assert not lake.table.exists()


@pytest.mark.parametrize("table_format", FORMATS)
def test_table_keeps_its_initial_partition_columns(make_lake: Callable[..., Lake], table_format: str) -> None:
    lake = make_lake("topic", "date", table_format=table_format)
    lake.produce(b"x")
    lake.load(None)
    columns: tuple[str, ...]
    for columns in ((), ("topic", "date")):
        table = open_table(lake.table.location, partition_by=columns)
        assert table.layout().partition_columns == ("topic", "date")
    others: tuple[str, ...]
    for others in (("date",), ("date", "topic"), ("topic", "date", "partition")):
        with pytest.raises(OperatorError, match=r"was created partitioned by topic, date.*leave --partition-by"):
            open_table(lake.table.location, partition_by=others)


def test_access_logs_by_status(make_lake: Callable[..., Lake]) -> None:
    from ottla.pipeline.model.events import page_views

    lines = list(page_views(300))
    lake = make_lake("status")
    lake.produce(*lines)
    lake.load(AccessLogFormat())
    assert Counter(row["status"] for row in lake.rows()) == Counter(int(line.split()[8]) for line in lines)


def test_a_field_called_date_keeps_its_type_beside_the_day(make_lake: Callable[..., Lake]) -> None:
    """Also in the second load, which takes the types from the table."""
    lake = make_lake("date")
    for _ in range(2):
        lake.produce(b'{"date":"mine"}')
        lake.load(JsonFormat())
    assert [row["value_date"] for row in lake.rows()] == ["mine", "mine"]
    assert lake.letters() == {}
