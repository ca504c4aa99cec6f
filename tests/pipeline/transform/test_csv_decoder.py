"""CSV: columns equal the rows of Python's csv module, one value one row."""

from __future__ import annotations

import csv
import io
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.transform.csv_decoder import CsvDecoder, infer_csv_schema  # noqa: E402

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
TEXT = CsvDecoder(pa.schema([("x", pa.string()), ("y", pa.string())]))
TYPED = CsvDecoder(pa.schema([("n", pa.int64()), ("s", pa.string()), ("d", pa.float64()), ("day", pa.date32())]))


def decode(decoder: CsvDecoder, *values: bytes | None) -> tuple[list[dict[str, Any]], dict[int, str]]:
    result = decoder.decode(pa.array(values, pa.binary()))
    assert result.columns.schema == decoder.schema
    assert result.columns.num_rows == len(values)
    result.columns.validate(full=True)
    return result.columns.to_pylist(), dict(zip(result.bad, result.reasons, strict=True))


def test_types_quotes_and_nulls() -> None:
    rows, bad = decode(TYPED, b'1,"a,""b""\nc",2.5,2026-03-02', b',"",,', b",,,\r\n", None, b"2,plain,NaN,")
    assert not bad
    assert rows[0] == {"n": 1, "s": 'a,"b"\nc', "d": 2.5, "day": date(2026, 3, 2)}
    assert [row["s"] for row in rows[1:]] == ["", None, None, "plain"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "the value is empty, and the schema has 4 columns"),
        (b"\r\n", "the value is empty"),
        (b"1,2", "Expected 4 columns, got 2"),
        (b"1,2,3,,5", "Expected 4 columns, got 5"),
        (b"x,,,", "the field 'n' is 'x', which its column of type int64 can't hold"),
        (b"1,,x,", "double"),
        (b",,,2023-02-29", "date32"),
        (b"9223372036854775808,,,", "int64"),
        (b"0x1A,,,", "the field 'n' is '0x1A', which its column of type int64 can't hold"),
        (b",,,\n,,,", "several rows"),
        (b',"open,,', "not closed"),
        (b",\xff,,", "UTF8"),
    ],
)
def test_a_bad_row_has_its_reason_alone_and_among_others(value: bytes, reason: str) -> None:
    _, alone = decode(TYPED, value)
    assert reason in alone[0]
    rows, bad = decode(TYPED, b"5,,,", value, b'6,"",,', None, value)
    assert bad == {1: alone[0], 4: alone[0]}
    assert [row["n"] for row in rows] == [5, None, 6, None, None]


def test_row_never_extends_into_next() -> None:
    """Joined naively, each of these would absorb its neighbour, or count as several rows."""
    rows, bad = decode(TEXT, b'1,"', b'2,"', b'a"b,"c', b'x,y",z"', b"p,q\nr,s", b"\xef\xbb\xbfu,v", b"w,\xef\xbb\xbf")
    assert list(bad) == [0, 1, 2, 3, 4]
    assert rows[5:] == [{"x": "u", "y": "v"}, {"x": "w", "y": "\ufeff"}]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@given(rows=st.lists(st.tuples(TEXTS, TEXTS), max_size=10))
def test_decoded_records_equal_written_ones(rows: list[tuple[str, str]], quoting: Any) -> None:

    values = []
    for row in rows:
        line = io.StringIO()
        csv.writer(line, quoting=quoting).writerow(row)
        values.append(line.getvalue().encode())
    found, bad = decode(TEXT, *values)
    for number, row in enumerate(rows):
        if number not in bad:
            assert tuple(text or "" for text in found[number].values()) == row
        else:
            assert any(code in text for text in row for code in ("\0", "\ufeff"))


def test_one_column() -> None:
    rows, bad = decode(CsvDecoder(pa.schema([("x", pa.string())])), b"", b"a", None, b'""')
    assert ([row["x"] for row in rows], bad) == ([None, "a", None, ""], {})


def test_inference() -> None:
    sample = [b"1,a,2.5,true,", b'2,"b,c",3,false,', b"odd", None, b"-1,,,,", b"\xff", b'"open']
    found = infer_csv_schema(pa.array(sample, pa.binary()))
    types = (pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.string())
    assert found == pa.schema([(f"c{number}", type_) for number, type_ in enumerate(types)])
    assert infer_csv_schema(pa.array([None, b'"'], pa.binary())) == pa.schema([])


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ((b"02134", b"10115"), pa.string()),
        ((b"00.5", b"1.5"), pa.string()),
        ((b"+4930123", b"1"), pa.string()),
        ((b"0x1A", b"0x1B"), pa.string()),
        ((b"nan", b"1.5"), pa.string()),
        ((b"inf", b"-inf"), pa.string()),
        ((b"1_000", b"2"), pa.string()),
        ((b"12E4", b"5"), pa.string()),
        ((b" 7", b"8"), pa.string()),
        ((b"-0", b"1"), pa.string()),
        ((b"1.", b".5"), pa.string()),
        ((b"1", b"true"), pa.string()),
        ((b"1.9", b"1.10"), pa.string()),
        ((b"1" + b"0" * 5_000, b"1"), pa.string()),
        ((b"2.50", b"10.00", b"3"), pa.float64()),
        ((b"1.0", b"0.25"), pa.float64()),
        ((b"18446744073709551615", b"1"), pa.string()),
        ((b"9007199254740993", b"1.5"), pa.string()),
        ((b"0.1234567890123456789", b"1.5"), pa.string()),
        ((b"-9223372036854775808", b"0"), pa.int64()),
        ((b"9007199254740992", b"-0.50"), pa.float64()),
        ((b"True", b"False"), pa.bool_()),
    ],
)
def test_inference_keeps_codes_as_text(values: tuple[bytes, ...], type_: Any) -> None:
    assert infer_csv_schema(pa.array(values, pa.binary())).field("c0").type == type_


def test_inferred_columns_refuse_later_codes() -> None:
    types = pa.schema([("n", pa.int64()), ("d", pa.float64()), ("b", pa.bool_()), ("s", pa.string())])
    inferred = CsvDecoder(types, is_inferred=True)
    rows, bad = decode(inferred, b"7,1.5e-07,True,007", b"007,,,", b"0x1A,,,", b",nan,,", b",,1,", b'"",,,', None)
    assert list(bad) == [1, 2, 3, 4]
    assert "'n' has the type int64 by a sample" in bad[1]
    assert rows[0] == {"n": 7, "d": 1.5e-07, "b": True, "s": "007"}


def test_unsupported_csv_schemas_are_refused() -> None:
    with pytest.raises(OperatorError, match="at least one column"):
        CsvDecoder(pa.schema([]))
    with pytest.raises(OperatorError, match="'l' of type list"):
        CsvDecoder(pa.schema([("l", pa.list_(pa.int64()))]))
