"""A value that a column can't hold is a dead letter with a reason, in every format; digits of a second are cut."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

import fastavro  # noqa: E402

from ottla.pipeline.transform.avro_decoder import AvroDecoder  # noqa: E402
from ottla.pipeline.transform.csv_decoder import CsvDecoder  # noqa: E402
from ottla.pipeline.transform.decoder import DecodedValues, Decoder  # noqa: E402
from ottla.pipeline.transform.json_decoder import JsonDecoder  # noqa: E402
from ottla.pipeline.transform.regex_decoder import RegexDecoder  # noqa: E402

DECIMAL = pa.decimal128(4, 2)
TYPE = f"its column of type {DECIMAL}"
MISFITS = {
    "123.4": f"with 3 digits before the point, and {TYPE} has 2",
    "-1234": f"with 4 digits before the point, and {TYPE} has 2",
    "1e3": f"with 4 digits before the point, and {TYPE} has 2",
    "1.234": f"with 3 digits after the point, and {TYPE} has 2",
}
FITS = ("12.34", "-99.990", "1E1", "0")


def decode(decoder: Decoder, *values: bytes) -> DecodedValues:
    result = decoder.decode(pa.array(values, pa.binary()))
    result.columns.validate(full=True)
    return result


def written(text: str, form: str) -> bytes:
    return {"csv": text, "regex": text, "json": f'{{"x":{text}}}', "quoted": f'{{"x":"{text}"}}'}[form].encode()


def decoder_of(form: str, type_: Any) -> Decoder:
    schema = pa.schema([("x", type_)])
    if form == "regex":
        return RegexDecoder("(?P<x>.*)", schema)
    return CsvDecoder(schema) if form == "csv" else JsonDecoder(schema)


@pytest.mark.parametrize("form", ["csv", "regex", "json", "quoted"])
def test_decimal_without_room_names_the_digits(form: str) -> None:
    decoder = decoder_of(form, DECIMAL)
    found = decode(decoder, *(written(text, form) for text in (*MISFITS, *FITS)))
    assert found.bad == list(range(len(MISFITS)))
    for reason, expected in zip(found.reasons, MISFITS.values(), strict=True):
        assert reason.startswith("the field 'x' is ")
        assert reason.endswith(expected)
    assert found.columns.column("x").drop_null().to_pylist() == [Decimal(text) for text in FITS]


@pytest.mark.parametrize("form", ["csv", "regex", "json"])
def test_number_beyond_a_float_is_bad_and_infinity_is_not(form: str) -> None:
    infinity = b'{"x":-Infinity}' if form == "json" else b"-inf"
    values = [infinity, *(written(text, form) for text in ("1e39", "-1e39", "3.4028235e38", "1" + "0" * 400))]
    found = decode(decoder_of(form, pa.float32()), *values)
    assert found.bad == [1, 2, 4]
    assert found.reasons[0].endswith("which its column of type float can't hold")
    assert decode(decoder_of(form, pa.float64()), *values).bad == [4]


@pytest.mark.parametrize("form", ["csv", "regex"])
def test_nanoseconds_in_text_are_cut(form: str) -> None:
    found = decode(decoder_of(form, pa.timestamp("us", tz="UTC")), b"2024-01-01T00:00:00.123456789Z", b"soon")
    assert found.columns.column("x")[0].as_py() == datetime(2024, 1, 1, 0, 0, 0, 123_456, UTC)
    assert found.reasons == ["the field 'x' is 'soon', which its column of type timestamp[us, tz=UTC] can't hold"]


def test_avro_numbers_that_a_narrower_table_does_not_hold() -> None:
    parts = [
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "l", "type": {"type": "array", "items": "double"}},
    ]
    writer = {"type": "record", "name": "R", "fields": parts}
    values = []
    for number, item in (("123.40", 1.0), ("12.34", 1e39), ("12.34", float("inf"))):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(writer), {"d": Decimal(number), "l": [0.5, item]})
        values.append(stream.getvalue())
    schema = pa.schema([("d", DECIMAL), ("l", pa.list_(pa.float32()))])
    found = decode(AvroDecoder(schema, json.dumps(writer)), *values)
    assert found.bad == [0, 1]
    assert found.reasons[0] == f"the field 'd' is 123.40, {MISFITS['123.4']}"
    assert found.reasons[1] == "the field 'l[]' is 1e+39, which its column of type float can't hold"
