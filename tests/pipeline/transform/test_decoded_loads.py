"""Loads of decoded values: columns beside Kafka's, growing schemas, dead letters for the rest."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import OperatorError
from ottla.pipeline.model.events import page_views

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.load.reading import find_reading  # noqa: E402
from ottla.pipeline.model.plan import PlanSettings  # noqa: E402
from ottla.pipeline.transform.decode_options import FORMATS, DecodeOptions  # noqa: E402
from ottla.pipeline.transform.open_format import open_format  # noqa: E402
from ottla.pipeline.transform.value_format import AccessLogFormat, CsvFormat, JsonFormat, RegexFormat  # noqa: E402

from .conftest import Lake  # noqa: E402

INFERRED = JsonFormat()


@pytest.mark.promise("P6")
def test_fields_are_columns_and_bad_values_dead_letters(lake: Lake) -> None:
    lake.produce(b'{"id":1,"name":"a","offset":7}', b"broken", None, b'{"id":2,"n":{"x":[1]}}')
    [row] = lake.load(INFERRED)
    assert (row.rows, row.dead_rows) == (3, 1)
    assert lake.rows() == [
        {"offset": 0, "id": 1, "name": "a", "value_offset": 7, "n": None},
        {"offset": 2, "id": None, "name": None, "value_offset": None, "n": None},
        {"offset": 3, "id": 2, "name": None, "value_offset": None, "n": {"x": [1]}},
    ]
    assert lake.letters() == {1: "the value is not valid JSON: Expecting value: line 1 column 1 (char 0)"}


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_fields_named_as_columns_of_others_have_their_own(make_lake: Callable[..., Lake], table_format: str) -> None:
    lake = make_lake(table_format=table_format)
    lake.produce(b'{"value_key":1,"value_value_key":"x"}')
    lake.load(INFERRED)
    lake.produce(b'{"key":2,"value_key":3,"Value_offset":true,"%s":1}' % (b"x" * 256))
    [row] = lake.load(INFERRED)
    assert (row.rows, row.dead_rows) == (1, 0)
    columns = ["value_value_key", "value_value_value_key", "value_key", "Value_offset"]
    assert [list(found.values()) for found in lake.rows()] == [[0, 1, "x", None, None], [1, 3, None, 2, True]]
    assert list(lake.rows()[0]) == ["offset", *columns]


def test_a_table_grows_with_its_records(lake: Lake) -> None:
    lake.produce(b'{"id":1,"n":{"x":1}}')
    lake.load(INFERRED)
    lake.produce(b'{"id":2,"new":"b","n":{"x":2,"y":true},"ID":5}', b'{"id":"text"}', b'{"id":3.5}')
    lake.load(INFERRED)
    lake.produce(b'{"new":"c"}', b'{"id":4}')
    lake.load(INFERRED)
    assert [(row["offset"], row["id"], row["new"]) for row in lake.rows()] == [
        (0, 1, None),
        (1, 2, "b"),
        (4, None, "c"),
        (5, 4, None),
    ]
    assert [row["n"] for row in lake.rows()[:2]] == [{"x": 1, "y": None}, {"x": 2, "y": True}]
    assert list(lake.letters()) == [2, 3]
    assert "'id' is text" in lake.letters()[2]
    assert "'id' is 3.5" in lake.letters()[3]


def test_a_table_of_raw_records_gets_columns_and_keeps_them(lake: Lake) -> None:
    lake.produce(b'{"id":1}')
    lake.load(None)
    lake.produce(b'{"id":2}')
    lake.load(INFERRED)
    lake.produce(b'{"id":3}')
    lake.load(None)
    assert [row["id"] for row in lake.rows()] == [None, 2, None]


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_later_load_decodes_otherwise(make_lake: Callable[..., Lake], table_format: str) -> None:
    """The table has the columns of both; a value that does not fit an existing column is a dead letter."""
    lake = make_lake(table_format=table_format)
    lake.produce(b'{"name":"a"}')
    lake.load(INFERRED)
    lake.produce(b"2,true", b"3,false")
    lake.load(CsvFormat())
    lake.produce(b"four,true")
    lake.load(CsvFormat())
    lake.produce(b"5 five")
    with pytest.raises(OperatorError, match=r"declares string for 'c0', but the table .* has int64"):
        lake.load(RegexFormat(r"(?P<c0>\d+) (?P<word>\w+)"))
    numbers = pa.schema([("c0", pa.int64()), ("word", pa.string())])
    lake.load(RegexFormat(r"(?P<c0>\d+) (?P<word>\w+)", numbers))
    assert lake.rows() == [
        {"offset": 0, "c0": None, "name": "a", "c1": None, "word": None},
        {"offset": 1, "c0": 2, "name": None, "c1": True, "word": None},
        {"offset": 2, "c0": 3, "name": None, "c1": False, "word": None},
        {"offset": 4, "c0": 5, "name": None, "c1": None, "word": "five"},
    ]
    assert list(lake.letters()) == [3]
    lake.produce(b'{"c0":6}')
    sentence = "has the column 'name' and 3 others, decoded by earlier loads and null in the new rows"
    cluster: Any = lake.cluster
    assert sentence in find_reading(["clicks"], lake.table, cluster.open, PlanSettings(), None).plan.notes[0]
    assert find_reading(["clicks"], lake.table, cluster.open, PlanSettings(), INFERRED).plan.notes == []


def test_only_bad_records(lake: Lake) -> None:
    lake.produce(b"x", b"y")
    lake.load(INFERRED)
    assert (lake.rows(), list(lake.letters())) == ([], [0, 1])
    lake.produce(b'{"id":1}')
    lake.load(INFERRED)
    assert lake.rows() == [{"offset": 2, "id": 1}]


def test_a_field_with_a_sample_of_both_kinds_has_no_column(lake: Lake) -> None:
    lake.produce(b'{"id":1,"mixed":1}', b'{"id":2,"mixed":"a"}')
    lake.load(INFERRED)
    assert lake.rows() == [{"offset": 0, "id": 1}, {"offset": 1, "id": 2}]


def test_incompatible_given_schema_is_refused_before_writes(lake: Lake) -> None:
    lake.produce(b'{"id":1}')
    lake.load(JsonFormat(pa.schema([("id", pa.int64())])))
    lake.produce(b'{"id":2}')
    version = lake.table.version()
    with pytest.raises(OperatorError, match=r"declares string for 'id', but the table .* has int64"):
        lake.load(JsonFormat(pa.schema([("new", pa.string()), ("id", pa.string())])))
    assert lake.table.version() == version
    lake.load(JsonFormat(pa.schema([("id", pa.int32())])))
    assert [row["id"] for row in lake.rows()] == [1, 2]


def test_access_logs_and_patterns(lake: Lake) -> None:
    lines = list(page_views(500))
    lake.produce(*lines, b"odd")
    lake.load(AccessLogFormat())
    assert [row["path"] for row in lake.rows()] == [line.split()[6].decode() for line in lines]
    assert list(lake.letters()) == [500]
    lake.produce(b"7 seven")
    lake.load(RegexFormat(r"(?P<number>\d+) (?P<word>\w+)"))
    assert [(row["number"], row["word"], row["path"]) for row in lake.rows()[500:]] == [("7", "seven", None)]


def test_csv(lake: Lake) -> None:
    lake.produce(b"1,a", b"2,b", b"3", None)
    lake.load(CsvFormat())
    assert [tuple(row.values()) for row in lake.rows()] == [(0, 1, "a"), (1, 2, "b"), (3, None, None)]
    assert list(lake.letters()) == [2]


def test_miscased_names_do_not_hide_fields(lake: Lake) -> None:
    """One record with another spelling, first of all, left all others without their field."""
    lake.produce(b'{"Id":0,"n":{"X":0}}', *(b'{"id":%d,"n":{"x":%d}}' % (number, number) for number in range(1, 200)))
    lake.load(INFERRED)
    lake.produce(b'{"ID":200,"N":{"X":200,"new":1}}')
    lake.load(INFERRED)
    assert list(lake.rows()[0]) == ["offset", "id", "n"]
    assert [(row["id"], row["n"]["x"]) for row in lake.rows()] == [(number, number) for number in range(201)]
    assert [row["n"]["new"] for row in lake.rows()[199:]] == [None, 1]
    assert lake.letters() == {}


def test_fields_anywhere_in_first_load_get_columns(lake: Lake) -> None:
    lake.produce(*(b'{"id":1}' for _ in range(2_000)), b'{"id":2,"rare":1}', *(b'{"id":3}' for _ in range(2_000)))
    lake.load(INFERRED)
    assert lake.rows()[2_000] == {"offset": 2_000, "id": 2, "rare": 1}


def test_integers_before_fractions_are_doubles_by_default(lake: Lake) -> None:
    default = open_format(DecodeOptions("json"))
    lake.produce(b'{"price":10,"id":9007199254740993}')
    lake.load(default)
    lake.produce(*(b'{"price":10.5}' for _ in range(20)))
    [row] = lake.load(default)
    assert (row.rows, row.dead_rows) == (20, 0)
    assert {name: str(lake.table.schema().field(name).type) for name in ("price", "id")} == {
        "price": "double",
        "id": "int64",
    }


def test_bad_values_are_kept_as_null_with_reason(lake: Lake) -> None:
    lake.produce(b'{"id":1}')
    lake.load(INFERRED, keeps_bad=True)
    lake.produce(b'{"id":"x"}', b"\xff", None)
    lake.load(INFERRED, keeps_bad=True)
    reasons = [
        {"reason": "the field 'id' is text, and its column of type int64", "text": '{"id":"x"}'},
        {"reason": "the value is not UTF-8: invalid start byte at byte 0", "text": "\\xff"},
    ]
    found = [(row["id"], row["_corrupt"]) for row in lake.rows()]
    assert found == [(1, None), (None, reasons[0]), (None, reasons[1]), (None, None)]
    lake.produce(b'{"id":2,"_corrupt":1}', b"odd")
    lake.load(INFERRED)
    assert [(row["id"], row["_corrupt"], row["value__corrupt"]) for row in lake.rows()[4:]] == [(2, None, 1)]
    assert list(lake.letters()) == [5]


def test_csv_width_of_table_stays_in_later_loads(lake: Lake) -> None:
    """Broken rows, even where most of a load is broken, do not decide which rows are read."""
    lake.produce(b"1,a,2.5", b"2,b,3")
    lake.load(CsvFormat())
    lake.produce(b"broken,x", b"3,c,4.5", b"broken,y")
    lake.load(CsvFormat())
    lake.produce(b"7,8")
    lake.load(CsvFormat())
    assert [tuple(row.values()) for row in lake.rows()] == [(0, 1, "a", 2.5), (1, 2, "b", 3.0), (3, 3, "c", 4.5)]
    assert [letter[:26] for letter in lake.letters().values()] == ["CSV parse error: Expected "] * 3


def write_schema(path: Path, *fields: tuple[str, str]) -> Path:
    described = [{"name": name, "type": kind, "nullable": False, "metadata": {}} for name, kind in fields]
    path.write_text(json.dumps({"type": "struct", "fields": described}))
    return path


def test_options_mean_formats(tmp_path: Path) -> None:
    schema = write_schema(tmp_path / "schema.json", ("id", "integer"), ("price", "decimal(10,2)"))
    fields = pa.schema([("id", pa.int32()), ("price", pa.decimal128(10, 2))])
    assert open_format(DecodeOptions("raw")) is None
    assert open_format(DecodeOptions("json", schema)) == JsonFormat(fields)
    assert open_format(DecodeOptions("csv", schema)) == CsvFormat(fields)
    assert open_format(DecodeOptions("regex", pattern="(?P<id>.)")) == RegexFormat("(?P<id>.)")
    assert all(pickle.loads(pickle.dumps(f)) == f for f in (JsonFormat(fields), AccessLogFormat()))
    assert {"raw", "json", "csv", "regex", "access-log"} <= set(FORMATS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (DecodeOptions("raw", Path("x")), "--schema has no effect with --decode raw"),
        (DecodeOptions("json", pattern="x"), "use it with --decode regex"),
        (DecodeOptions("regex"), "add --pattern REGEX"),
        (DecodeOptions("regex", pattern="("), "not a valid regular expression"),
        (DecodeOptions("json", Path("/nowhere/schema.json")), "can't be read: No such file"),
    ],
)
def test_conflicting_options_are_refused(options: DecodeOptions, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        open_format(options)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"type":"struct"}', "\0", '{"type":"struct","fields":[{"name":"a"}]}']
)
def test_invalid_schema_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "schema.json").write_text(text)
    with pytest.raises(OperatorError, match="is not a StructType in JSON"):
        open_format(DecodeOptions("json", tmp_path / "schema.json"))


@pytest.mark.parametrize("names", [("a\x01b",), ("",)])
def test_unusable_column_names_are_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    schema = write_schema(tmp_path / "schema.json", *((name, "long") for name in names))
    with pytest.raises(OperatorError, match="can't be a column"):
        open_format(DecodeOptions("json", schema))


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_conflicting_names_do_not_stop_load(make_lake: Callable[..., Lake], table_format: str) -> None:
    """One record with such a name would otherwise fail this load and all later ones."""
    pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    lake = make_lake(table_format=table_format)
    rounds: tuple[tuple[bytes, dict[str, Any]], ...] = (
        (b'{"s": {"a": 1}, "a.b": 1}', {"s": {"a": 1}, "a.b": 1}),
        (b'{"s": {"A": 2}, "a": {"b": 2}}', {"s": {"a": 2}, "a.b": None}),
        (b'{"s": {"a": 3, "A": 3}, "a": {"b": 3, "c": 3}}', {"s": {"a": 3}, "a.b": None, "a": {"c": 3}}),
    )
    for value, _ in rounds:
        lake.produce(value)
        assert not any(row.error for row in lake.load(JsonFormat()))
    assert lake.rows() == [{"offset": number, "a": None} | row for number, (_, row) in enumerate(rounds)]
    assert lake.letters() == {}


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("partition_by", [(), ("day",)])
def test_time_outside_years_is_dead_letter(
    make_lake: Callable[..., Lake], table_format: str, partition_by: tuple[str, ...]
) -> None:
    """Databases use such dates for missing ones; tables and their readers fail on the year 0."""
    pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    lake = make_lake(*partition_by, table_format=table_format)
    utc = pa.timestamp("us", tz="UTC")
    decoded = JsonFormat(
        pa.schema([("day", pa.date32()), ("at", utc), ("local", pa.timestamp("us")), ("n", pa.int64())])
    )
    good = [b'{"day":"0001-01-01","at":"0001-01-01T00:00:00Z"}', b'{"day":"9999-12-31","local":"9999-12-31T23:59:59"}']
    odd = [b'{"day":"0000-01-01"}', b'{"at":"0000-12-31T23:59:59Z"}', b'{"local":"0000-01-01T00:00:00"}', b'{"n":"x"}']
    lake.produce(good[0], *odd, None, good[1])
    assert not any(row.error for row in lake.load(decoded))
    assert [row["offset"] for row in lake.rows()] == [0, 5, 6]
    reasons = {1: "'day' has a time", 2: "'at' has a time", 3: "'local' has a time", 4: "'n' is text"}
    assert {offset: reason in lake.letters()[offset] for offset, reason in reasons.items()} == dict.fromkeys(
        reasons, True
    )
    assert len(lake.letters()) == 4


def test_nested_time_outside_years_is_dead_letter(lake: Lake) -> None:
    nested = pa.struct([("day", pa.date32()), ("l", pa.list_(pa.struct([("at", pa.timestamp("us", tz="UTC"))])))])
    lake.produce(
        b'{"n":{"day":"0000-12-31"}}',
        b'{"n":{"day":"9999-12-31","l":[{},{"at":"0000-12-31T23:59:59Z"}]}}',
        b'{"n":{"day":"9999-12-31","l":[{"at":"0001-01-01T00:00:00Z"}]}}',
    )
    lake.load(JsonFormat(pa.schema([("n", nested)])))
    assert [row["offset"] for row in lake.rows()] == [2]
    reason = "the column 'n' has a time that is not within the years 1 to 9999"
    assert lake.letters() == {0: reason, 1: reason}


@pytest.mark.parametrize("table_format", ["delta", "iceberg", "parquet"])
def test_small_integers_of_a_schema_have_columns_in_every_format(
    make_lake: Callable[..., Lake], table_format: str
) -> None:
    """Iceberg has no integers of less than 32 bits."""
    pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    small = pa.struct({"s": pa.int16(), "l": pa.list_(pa.int8())})
    lake = make_lake(table_format=table_format)
    for _ in range(2):
        lake.produce(b'{"b":1,"n":{"s":2,"l":[3]}}')
        assert [row.rows for row in lake.load(JsonFormat(pa.schema({"b": pa.int8(), "n": small})))] == [1]
    if table_format != "parquet":
        assert lake.rows() == [{"offset": number, "b": 1, "n": {"s": 2, "l": [3]}} for number in range(2)]
    assert lake.letters() == {}
