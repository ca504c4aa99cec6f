"""Named types of inferred columns, and objects with data as names, which are maps."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.transform.decode_options import DecodeOptions  # noqa: E402
from ottla.pipeline.transform.json_decoder import JsonDecoder  # noqa: E402
from ottla.pipeline.transform.json_inference import infer_json  # noqa: E402
from ottla.pipeline.transform.open_format import open_format  # noqa: E402
from ottla.pipeline.transform.type_hints import parse_hints, with_hints  # noqa: E402

TAGS = pa.map_(pa.string(), pa.string())


def test_hints_replace_inferred_types_and_add_columns() -> None:
    json_format = open_format(DecodeOptions("json", types=("Price: decimal(10,2)", "tags: map<string, string>")))
    assert json_format is not None
    values = {"clicks": pa.array([b'{"price":1,"id":2}'], pa.binary())}
    expected = pa.schema([("price", pa.decimal128(10, 2)), ("id", pa.float64()), ("tags", TAGS)])
    assert json_format.fields(pa.schema([]), values) == expected
    with pytest.raises(OperatorError, match="'Price', but the table has double"):
        json_format.fields(pa.schema([("price", pa.float64())]), values)
    csv_format = open_format(DecodeOptions("csv", types=("c1: double",)))
    assert csv_format is not None
    row = {"clicks": pa.array([b"1,2"], pa.binary())}
    assert csv_format.fields(pa.schema([]), row) == pa.schema([("c0", pa.int64()), ("c1", pa.float64())])


@pytest.mark.parametrize(
    "text", ["price", "price double", "a\x01b: long", ": long", "x: map<int,string>", "x: decimal(50,2)", "x: varchar"]
)
def test_invalid_hints_are_refused(text: str) -> None:
    with pytest.raises(OperatorError, match="is not NAME: TYPE"):
        parse_hints([text])


def test_hints_without_inference_are_refused() -> None:
    for options, sentence in (
        (DecodeOptions("avro", types=("a: long",)), "--type has no effect with --decode avro"),
        (DecodeOptions("json", Path("x"), types=("a: long",)), "--type and --map-keys apply to inferred fields"),
    ):
        with pytest.raises(OperatorError, match=sentence):
            open_format(options)
    with pytest.raises(OperatorError, match="twice"):
        parse_hints(["a b: long", "A_B: double"])
    assert with_hints(pa.schema([]), pa.schema([]), pa.schema([])) == pa.schema([])


def test_object_with_many_names_of_one_type_is_map() -> None:
    wide = b'{"o":{%s},"plain":{"a":1,"b":2}}' % b",".join(b'"k%d":%d' % (number, number) for number in range(20))
    plain = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    counts = pa.map_(pa.string(), pa.int64())
    assert infer_json([wide], map_keys=10).schema == pa.schema([("o", counts), ("plain", plain)])
    mixed = infer_json([wide, b'{"o":{"k1":"x"}}'], map_keys=10).schema
    assert pa.types.is_struct(mixed.field("o").type)
    assert pa.types.is_struct(infer_json([wide], map_keys=20).schema.field("o").type)


def test_maps_are_read_and_their_names_are_not_unknown() -> None:
    decoder = JsonDecoder(pa.schema([("id", pa.int64()), ("tags", TAGS)]))
    values = [
        b'{"id":1,"Tags":{"a":"x","b":"y"},"other":1}',
        b'{"id":2,"tags":{"a":5}}',
        b'{"id":3,"tags":["a"]}',
        b'{"id":"x","tags":{}}',
        b'{"id":4,"tags":{}}',
        None,
    ]
    found = decoder.decode(pa.array(values, pa.binary()))
    assert [row["tags"] for row in found.columns.to_pylist()] == [[("a", "x"), ("b", "y")], None, None, None, [], None]
    assert [found.bad, dict(found.unknown)] == [[1, 2, 3], {"other": 1}]
    assert "'tags' has an item that its column" in found.reasons[0]
    assert "'tags' is not an object" in found.reasons[1]
    assert "'id' is text" in found.reasons[2]
