"""JSON: columns equal the objects of `json.loads`; a bad value is found, gets a reason, and affects no other."""

from __future__ import annotations

import json
import math
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.transform import decoder as decoding  # noqa: E402
from ottla.pipeline.transform import json_inference  # noqa: E402
from ottla.pipeline.transform.json_decoder import JsonDecoder  # noqa: E402
from ottla.pipeline.transform.json_inference import MAX_FIELDS, infer_json, infer_json_schema  # noqa: E402

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("s", pa.string()),
        ("d", pa.float64()),
        ("b", pa.bool_()),
        ("n", pa.struct([("x", pa.int32()), ("l", pa.list_(pa.int64()))])),
        ("day", pa.date32()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("huge", pa.decimal128(38, 0)),
    ]
)
DECODER = JsonDecoder(SCHEMA)
EMPTY = dict.fromkeys(SCHEMA.names)


def decode(*values: bytes | None, decoder: JsonDecoder = DECODER) -> tuple[list[dict[str, Any]], dict[int, str]]:
    result = decoder.decode(pa.array(values, pa.binary()))
    assert result.columns.schema == decoder.schema
    assert result.columns.num_rows == len(values)
    result.columns.validate(full=True)
    return result.columns.to_pylist(), dict(zip(result.bad, result.reasons, strict=True))


def test_every_type_arrives() -> None:
    value = {
        "a": -(2**63), "s": "\u00e4\0\n", "d": 2, "b": False, "n": {"x": 7, "l": [1, None, 3], "other": 1},
        "day": "2024-02-29", "t": "2026-03-02T10:05:03.5Z", "huge": 2**70, "more": [{}],
    }  # fmt: skip
    rows, bad = decode(json.dumps(value, indent=2).encode(), b"{}", None, b' {"a" :1}\r\n')
    assert not bad
    assert rows[0] == {
        "a": -(2**63), "s": "\u00e4\0\n", "d": 2.0, "b": False, "n": {"x": 7, "l": [1, None, 3]},
        "day": date(2024, 2, 29), "t": datetime(2026, 3, 2, 10, 5, 3, 500_000, UTC), "huge": 2**70,
    }  # fmt: skip
    assert rows[1:] == [EMPTY, EMPTY, {**EMPTY, "a": 1}]


BAD = {
    b"": "not valid JSON",
    b"{": "not valid JSON",
    b'{"a":1': "not valid JSON",
    b"}{": "not valid JSON",
    b'{"a":1}{"a":2}': "not valid JSON",
    b'{"a":1}\n{"a":2}': "not valid JSON",
    b'{"a":1},{"a":2}': "not valid JSON",
    b"[1]": "an array, not an object",
    b"17": "a number, not an object",
    b"null": "not a JSON object",
    b"\xef\xbb\xbf": "not valid JSON",
    b"{\xef\xbb\xbf}": "not valid JSON",
    b'{"s":"\xff"}': "not UTF-8",
    b'{"other":"\xff"}': "not UTF-8",
    b'{"s":"\\udc00"}': "surrogate",
    b'{"s":"a\nb"}': "not valid JSON",
    b'{"a":1,"a":1}': "twice",
    b'{"a":9223372036854775808}': "'a' is 9223372036854775808, which its column of type int64 can't hold",
    b'{"a":1.0}': "'a' is 1.0",
    b'{"a":"1"}': "the field 'a' is text, and its column of type int64",
    b'{"a":true}': "'a' is true or false",
    b'{"a":' + b"9" * 5_000 + b"}": "int64",
    b'{"s":1}': "'s' is a number",
    b'{"n":{"x":3000000000}}': "'n.x' is 3000000000",
    b'{"n":{"l":[1,"x"]}}': "'n.l[]' is text",
    b'{"n":{"l":' + b"[" * 50_000 + b"]" * 50_000 + b"}}": "n/l",
    b'{"day":"2023-02-29"}': "2023-02-29",
    b'{"t":"soon"}': f"the field 't' is 'soon', which its column of type {SCHEMA.field('t').type} can't hold",
    b'{"d":1e999}': "'d' is 1E+999, which its column of type double can't hold",
    b'{"d":' + b"9" * 5_000 + b"}": "... (5000 characters), which its column of type double can't hold",
    b"\x1b[31m": "not valid JSON",
}


@pytest.mark.parametrize("value", BAD)
def test_a_bad_value_has_its_reason_alone_and_among_others(value: bytes) -> None:
    good = b'{"a":5}'
    rows, bad = decode(value)
    assert rows == [EMPTY]
    assert BAD[value] in bad[0]
    assert len(bad[0]) <= decoding.MAX_REASON_LENGTH
    assert bad[0].isprintable()
    rows, among = decode(good, value, good, None, value, good)
    assert among == {1: bad[0], 4: bad[0]}
    assert [row["a"] for row in rows] == [5, None, 5, None, None, 5]


def test_odd_values_are_bad_when_joined() -> None:
    """Two halves of an object are not an object, even if a third value contains two objects."""
    rows, bad = decode(b'{"a":1', b"}", b'{"a":2}{"a":3}', b'{"s":"', b'"}', b'{"a":4}')
    assert list(bad) == [0, 1, 2, 3, 4]
    assert rows[5]["a"] == 4


def test_not_a_number_and_infinity_are_numbers() -> None:
    rows, bad = decode(b'{"d":NaN}', b'{"d":-Infinity}', b'{"d":Inf}', b'{"a":NaN}')
    assert math.isnan(rows[0]["d"])
    assert [row["d"] for row in rows[1:3]] == [-math.inf, math.inf]
    assert list(bad) == [3]


def test_ignored_fields_may_be_nested_deeply() -> None:
    rows, bad = decode(b'{"more":' + b"[" * 100_000 + b"]" * 100_000 + b',"a":1}')
    assert (rows[0]["a"], bad) == (1, {})


def test_byte_order_mark_is_left_out() -> None:
    rows, bad = decode(b'\xef\xbb\xbf{"a":1,"s":"\xef\xbb\xbfx"}', b'{"a":2}')
    assert not bad
    assert [(row["a"], row["s"]) for row in rows] == [(1, "\ufeffx"), (2, None)]
    assert infer_json_schema([b'\xef\xbb\xbf{"a":1}']) == pa.schema([("a", pa.int64())])
    with_id = JsonDecoder(pa.schema([("a", pa.int64())]), has_ids=True)
    assert decode(b'\0\0\0\0\x07\xef\xbb\xbf{"a":1}', decoder=with_id) == ([{"a": 1}], {})


TIME = datetime(2024, 1, 1, 0, 0, 0, 123_456, UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-01T00:00:00.123456789Z", TIME),
        ("2024-01-01T02:00:00.1234567+02:00", TIME),
        ("2024-01-01 00:00:00.123456999", TIME),
        ("2024-01-01T00:00:00.123456Z", TIME),
        ("2024-01-01T00:00Z", TIME.replace(microsecond=0)),
        ("2024-01-01", TIME.replace(microsecond=0)),
        ("1969-12-31T23:59:59.999999999Z", datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
    ],
)
def test_instants_are_cut_to_the_units_of_columns(text: str, expected: datetime) -> None:
    nested = pa.struct([("l", pa.list_(pa.timestamp("us"))), ("ms", pa.timestamp("ms", tz="UTC"))])
    decoder = JsonDecoder(pa.schema([("t", pa.timestamp("us", tz="UTC")), ("n", nested)]))
    value = json.dumps({"t": text, "n": {"l": [None, text], "ms": text}}).encode()
    rows, bad = decode(b"{}", value, b'{"n":{"l":null}}', decoder=decoder)
    assert not bad
    milliseconds = expected.replace(microsecond=expected.microsecond // 1000 * 1000)
    assert rows[1] == {"t": expected, "n": {"l": [None, expected.replace(tzinfo=None)], "ms": milliseconds}}
    assert (rows[0], rows[2]) == ({"t": None, "n": None}, {"t": None, "n": {"l": None, "ms": None}})


def test_time_of_day() -> None:
    decoder = JsonDecoder(pa.schema([("t", pa.time64("us"))]))
    rows, bad = decode(b'{"t":"12:30:01.123456789"}', b'{"t":"24:00:00"}', decoder=decoder)
    assert (rows[0]["t"], list(bad)) == (time(12, 30, 1, 123_456), [1])


def test_no_columns_at_all() -> None:
    none = JsonDecoder(pa.schema([]))
    result = none.decode(pa.array([b"{}", b"x", None, b"{}{}", b'{"a":1}']))
    assert (result.columns.num_rows, result.bad) == (5, [1, 3])
    assert none.decode(pa.array([], pa.binary())).columns.num_rows == 0
    assert DECODER.decode(pa.array([], pa.binary())).columns.num_rows == 0


def test_a_large_input_is_parsed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MAX_PARSE_BYTES", 500)
    values = [b'{"a":%d}' % number if number % 7 else b"x" * number for number in range(300)]
    rows, bad = decode(*values)
    assert [row["a"] for row in rows] == [number if number % 7 else None for number in range(300)]
    assert list(bad) == list(range(0, 300, 7))


def test_decoder_is_picklable() -> None:
    again = pickle.loads(pickle.dumps(DECODER))
    assert again == DECODER
    assert again.decode(pa.array([b'{"a":1}'])).columns.column("a").to_pylist() == [1]


@pytest.mark.parametrize(
    "type_",
    [
        pa.map_(pa.int64(), pa.int64()),
        pa.map_(pa.string(), pa.list_(pa.int64())),
        pa.list_(pa.map_(pa.string(), pa.int64())),
    ],
)
def test_unsupported_json_types_are_refused(type_: Any) -> None:
    with pytest.raises(OperatorError, match="of type map"):
        JsonDecoder(pa.schema([("m", type_)]))


numbers = st.integers(-(2**63), 2**63 - 1)
record = st.fixed_dictionaries(
    {},
    optional={
        "a": st.none() | numbers,
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "d": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "b": st.none() | st.booleans(),
        "n": st.fixed_dictionaries({}, optional={"l": st.lists(st.none() | numbers)}),
        "other": st.recursive(st.none() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)),
    },
)


@given(values=st.lists(st.one_of(record, st.none(), st.binary(max_size=8)), max_size=12), spaced=st.booleans())
def test_equals_json_loads(values: list[Any], spaced: bool) -> None:
    stored = [
        value if isinstance(value, bytes | None) else json.dumps(value, indent=1 if spaced else None).encode()
        for value in values
    ]
    rows, bad = decode(*stored)
    for number, (value, row) in enumerate(zip(values, rows, strict=True)):
        if isinstance(value, dict):
            nested = value.get("n")
            expected = {name: value.get(name) for name in SCHEMA.names} | {
                "n": None if nested is None else {"x": None, "l": nested.get("l")}
            }
            assert (row, number in bad) == (expected, False)
        else:
            assert (row, number in bad) == (EMPTY, value is not None)


def test_inference() -> None:
    found = infer_json_schema(
        [
            b'{"a":1,"d":1,"s":"x","n":{"q":[{"z":1},{"w":true}],"no":null},"mixed":1,"list":[],"nothing":{},"id":1}',
            b'{"d":1.5,"huge":18446744073709551615,"vast":1%s,"mixed":"x","ID":2,"a b":1,"time":"2026-01-01"}'
            % (b"0" * 40),
            b"not valid JSON",
            b"[" * 100_000,
            b"[1]",
            None,
        ]
    )
    assert found == pa.schema(
        [
            ("a", pa.int64()),
            ("d", pa.float64()),
            ("s", pa.string()),
            ("n", pa.struct([("q", pa.list_(pa.struct([("z", pa.int64()), ("w", pa.bool_())])))])),
            ("id", pa.int64()),
            ("huge", pa.decimal128(38, 0)),
            ("vast", pa.float64()),
            ("a_b", pa.int64()),
            ("time", pa.string()),
        ]
    )
    assert infer_json_schema([]) == pa.schema([])


ID = 2**53 + 1


@pytest.mark.parametrize(
    ("numbers", "type_"),
    [
        ((str(ID), "1.5"), pa.decimal128(38, 18)),
        (("0.1234567890123456789012", str(ID), "NaN"), pa.decimal128(38, 22)),
        (("1e-5", str(-(10**29) - 1)), pa.decimal128(38, 8)),
        ((str(2**53), "1.5"), pa.float64()),
        (("1e-30", str(ID)), pa.float64()),
        (("1.5", "1" + "0" * 38), pa.float64()),
    ],
)
def test_inference_of_ids_beside_fractions(numbers: tuple[str, ...], type_: Any) -> None:
    values = [b'{"n":[%s]}' % number.encode() for number in numbers]
    assert infer_json_schema(values).field("n").type.value_type == type_
    rows, bad = decode(*values, decoder=JsonDecoder(infer_json_schema(values), is_inferred=True))
    if pa.types.is_decimal(type_):
        whole = {place: [Decimal(number)] for place, number in enumerate(numbers) if number != "NaN"}
        assert {place: row["n"] for place, row in enumerate(rows) if place not in bad} == whole


def test_inferred_double_refuses_ids_that_it_would_round() -> None:
    values = b'{"n":[0.5,%d]}' % ID, b'{"n":[%d,1e300,Infinity]}' % 2**53
    rows, bad = decode(*values, decoder=JsonDecoder(pa.schema([("n", pa.list_(pa.float64()))]), is_inferred=True))
    assert list(bad) == [0]
    assert f"'n[]' is {ID}, which its column of type double" in bad[0]
    assert rows[1] == {"n": [2.0**53, 1e300, math.inf]}
    given = JsonDecoder(pa.schema([("n", pa.list_(pa.float64()))]))
    assert decode(*values, decoder=given)[1] == {}


def test_data_as_field_names_is_bounded() -> None:
    found = infer_json_schema(b'{"k%d":1}' % number for number in range(3 * MAX_FIELDS))
    assert len(found) == MAX_FIELDS
    deep = infer_json_schema([b'{"a":' * 500 + b"1" + b"}" * 500, b'{"b":1}'])
    assert deep.names == ["b"]


def test_values_of_a_registry_are_read_behind_their_ids() -> None:
    decoder = JsonDecoder(pa.schema([("a", pa.int64())]), has_ids=True)
    rows, bad = decode(b'\0\0\0\0\x07{"a":1}', b'{"a":2}', b"\0\0\0", b"\0\0\0\0\x07{", decoder=decoder)
    assert rows[0] == {"a": 1}
    assert list(bad) == [1, 2, 3]
    assert "begins with the id of a schema" in bad[1] == bad[2]
    assert "not valid JSON" in bad[3]


def test_names_match_without_case_and_own_spelling_first() -> None:
    fields = pa.schema(
        [("id", pa.int64()), ("n", pa.struct([("X", pa.int64()), ("l", pa.list_(pa.struct([("a", pa.string())])))]))]
    )
    decoder = JsonDecoder(fields)
    values = (
        b'{"ID":0,"id":1,"Id":2,"other":1}',
        b'{"iD" : 2,"N":{"x":3,"L":[{"A":"s"},{"A":"t","a":"u"}]},"other":null}',
        b'{"id":null,"ID":"text"}',
        b'{"text":"\\"ID\\":7"}',
        b'{"Id":1,"Id":2}',
    )
    rows, bad = decode(*values, decoder=decoder)
    assert rows[:2] == [{"id": 1, "n": None}, {"id": 2, "n": {"X": 3, "l": [{"a": "s"}, {"a": "u"}]}}]
    assert [rows[3], list(bad)] == [{"id": None, "n": None}, [2, 4]]
    assert "'id' is text" in bad[2]
    assert decoder.decode(pa.array(values, pa.binary())).unknown == {"other": 2, "text": 1}


def test_spellings_in_each_other_are_bounded() -> None:
    """Each level would double the fields: 2**30 for 30 levels."""
    type_ = pa.int64()
    for _ in range(30):
        type_ = pa.struct([("a", type_)])
    nested = b'{"a":' * 28 + b'{"A":{"a":1}}' + b"}" * 28
    _, bad = decode(nested.replace(b"A", b"a"), nested, decoder=JsonDecoder(pa.schema(list(type_))))
    assert list(bad) == [1]
    assert "too many ways" in bad[1]


def test_many_spellings_in_many_values_are_read() -> None:
    spellings = {"".join(chars) for chars in product(*zip("abcdefgh", "ABCDEFGH", strict=True))}
    values = [b'{"%s":%d}' % (name.encode(), number) for number, name in enumerate(sorted(spellings))]
    rows, bad = decode(*values, decoder=JsonDecoder(pa.schema([("abcdefgh", pa.int64())])))
    assert ([row["abcdefgh"] for row in rows], bad) == (list(range(256)), {})


def test_inference_lists_fields_without_column() -> None:
    values = (
        b'{"mixed":1,"a\\u0001b":1,"Id":1,"none":null,"n":{"empty":[]},"ok":1}',
        b'{"mixed":"x","id":2,"ID":3,"none":null}',
        b'{"id":4,"list":[1,"x"]}',
    )
    found = infer_json(values, is_exact=False, exact_fields=frozenset(["ok"]))
    assert found.schema == pa.schema([("id", pa.float64()), ("ok", pa.int64())])
    left_out = {path: (one.values, one.why) for path, one in found.left_out.items()}
    assert left_out == {
        "mixed": (2, json_inference.UNION),
        "a\x01b": (1, json_inference.NAME),
        "none": (2, json_inference.EMPTY),
        "n.empty": (1, json_inference.EMPTY),
        "n": (1, json_inference.EMPTY),
        "list": (2, json_inference.UNION),
    }
    assert found.spellings == {"id": 1}
    assert infer_json([b'{"id":%d}' % 2**60], is_exact=False).schema == pa.schema([("id", pa.int64())])
