"""Fields with characters that no table can have in a name: `_` takes their place, in every format, at every level."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.model.decode import SCHEMA  # noqa: E402
from ottla.pipeline.transform.decode_options import DecodeOptions  # noqa: E402
from ottla.pipeline.transform.json_decoder import JsonDecoder  # noqa: E402
from ottla.pipeline.transform.open_format import open_format  # noqa: E402
from ottla.pipeline.transform.schema_report import SchemaReport  # noqa: E402
from ottla.pipeline.transform.target_schema import settle_samples  # noqa: E402
from ottla.pipeline.transform.value_format import CsvFormat, JsonFormat  # noqa: E402

from .conftest import Lake  # noqa: E402

FIELDS = {
    "unit price": "unit_price",
    "size (cm)": "size__cm_",
    "a.b": "a.b",
    "x=1;y,{z}": "x_1_y__z_",
    "tab\there": "tab_here",
    "line\nend": "line_end",
}


@pytest.fixture(params=["delta", "iceberg", "parquet"])
def any_lake(request: pytest.FixtureRequest, make_lake: Callable[..., Lake]) -> Lake:
    if request.param == "iceberg":
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    return make_lake(table_format=request.param)


def without_offsets(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "offset"} for row in rows]


def document(names: Any, first: int) -> bytes:
    return json.dumps({name: first + number for number, name in enumerate(names)}).encode()


def test_fields_of_json_have_columns_in_each_format(any_lake: Lake) -> None:
    nested = {"in ner": [{"d,e": "x"}]}
    any_lake.produce(json.dumps({**dict.fromkeys(FIELDS, 1), "n n": nested}).encode())
    [row] = any_lake.load(JsonFormat())
    assert (row.rows, row.dead_rows, row.tally) == (1, 0, "")
    expected = {**dict.fromkeys(FIELDS.values(), 1), "n_n": {"in_ner": [{"d_e": "x"}]}}
    assert without_offsets(any_lake.rows()) == [expected]
    any_lake.produce(document(FIELDS.values(), 10), document(map(str.upper, FIELDS), 20))
    any_lake.load(JsonFormat())
    columns = list(FIELDS.values())
    assert [[row[name] for name in columns] for row in any_lake.rows()[1:]] == [
        list(range(10, 10 + len(FIELDS))),
        list(range(20, 20 + len(FIELDS))),
    ]
    assert any_lake.table.schema().names == [*SCHEMA.names, *columns, "n_n"]


def struct_file(path: Path, *names: str) -> Path:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in names]
    path.write_text(json.dumps({"type": "struct", "fields": fields}))
    return path


@pytest.mark.parametrize("name", ["unit price", "unit_price"])
def test_schema_and_hint_may_have_either_name(any_lake: Lake, tmp_path: Path, name: str) -> None:
    given = open_format(DecodeOptions("json", struct_file(tmp_path / "schema", name)))
    any_lake.produce(b'{"unit price":1}', b'{"unit_price":2}')
    any_lake.load(given)
    assert without_offsets(any_lake.rows()) == [{"unit_price": 1}, {"unit_price": 2}]
    hinted = open_format(DecodeOptions("json", types=(f"{name}: long",)))
    any_lake.produce(b'{"unit price":3}')
    any_lake.load(hinted)
    assert without_offsets(any_lake.rows())[2:] == [{"unit_price": 3}]


def test_fields_of_csv_have_columns(any_lake: Lake, tmp_path: Path) -> None:
    given = open_format(DecodeOptions("csv", struct_file(tmp_path / "schema", *FIELDS)))
    assert isinstance(given, CsvFormat)
    any_lake.produce(b"1,2,3,4,5,6")
    any_lake.load(given)
    assert without_offsets(any_lake.rows()) == [dict(zip(FIELDS.values(), range(1, 7), strict=True))]


def test_fields_of_a_schema_with_one_name_in_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"'a b' and 'A\(b', whose names are equal in a table"):
        open_format(DecodeOptions("csv", struct_file(tmp_path / "schema", "a b", "A(b")))


def test_renamed_fields_are_reported(any_lake: Lake) -> None:
    """A field without a column has its own name in the report, and is not counted twice."""
    values = pa.array([b'{"unit price":1,"n":{"in ner":1},"bad one":1}', b'{"bad one":"x"}'], pa.binary())
    report = SchemaReport()
    decoder = settle_samples(JsonFormat(), any_lake.table, {"clicks": values}, report=report)
    assert report.renamed == {"unit price": "unit_price", "n.in ner": "in_ner"}
    unknown = decoder.decoder.decode(values).unknown
    assert [(one["field"], one["values"]) for one in report.fields_without_column(unknown)] == [("bad one", 2)]


def test_value_is_read_alike_whatever_was_read_before() -> None:
    """A decoder remembers the spellings of the last values."""
    schema = pa.schema([("unit_price", pa.int64()), ("n", pa.struct([("in_ner", pa.int64())]))])
    values = [
        b'{"unit price":1,"n":{"in ner":2}}',
        b'{"unit_price":3,"unit price":4}',
        b'{"Unit(Price":5,"n":{"in_ner":6}}',
        b'{"unit\\u0020price":7}',
        b'{"unit price":"x"}',
        b'{"other":1,"unit_price":8}',
    ]
    decoder = JsonDecoder(schema)

    def read(*chosen: bytes, by: JsonDecoder) -> tuple[list[Any], list[int], dict[str, int]]:
        found = by.decode(pa.array(chosen, pa.binary()))
        return found.columns.to_pylist(), found.bad, dict(found.unknown)

    whole = read(*values, by=decoder)
    assert [row["unit_price"] for row in whole[0]] == [1, 3, 5, 7, None, 8]
    assert whole[1:] == ([4], {"other": 1})
    for one in (decoder, pickle.loads(pickle.dumps(decoder)), JsonDecoder(schema)):
        assert read(*values, by=one) == whole
        for value, row in zip(values, whole[0], strict=True):
            assert read(value, by=one)[0] == [row]
