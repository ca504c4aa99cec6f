"""Semantics of filters on single records."""

from __future__ import annotations

from decimal import Decimal

import pytest

from ottla.search.decoder_names import DECODERS
from ottla.search.evaluation import compile_filter
from ottla.search.parser import parse_query
from ottla.search.subject import Decoders

from .records import decode, subject

ORDER = (
    b'{"id": 9007199254740993, "total": 0.1, "big": 1e400, "ok": true, "none": null, "s": "caf\\u00e9", "n": "7",'
    b' "user": {"name": "ann", "tags": ["a", "b"]}, "items": [{"sku": "x", "n": 2}, {"sku": "y", "n": 5}], "empty": []}'
)
HEADERS = [("env", b"prod"), ("env", b"dev"), ("trace", b'{"id": [1, 2]}'), ("raw", b"\xff"), ("null", None)]

MATCHING = [
    "",
    "ann",
    "user-1",
    "prod",
    "trace",
    "ann prod user-1",
    "ann || nothing",
    "!nothing",
    "value.id == 9007199254740993",
    "value.id != 9007199254740992",
    "value.id > 9007199254740992",
    "value.id < 9007199254740994.5",
    "value.total == 0.1",
    "value.total == 0.10",
    "value.total < 0.1000000000000000055",
    "value.big > 1e399",
    "value.big < 1e999999999",
    "value.ok == true",
    "value.ok != false",
    "value.none == null",
    "value.id != null",
    'value.s == "café"',
    r'value.s == "caf\u00e9"',
    'value.s > "caf"',
    'value["user"].name == "ann"',
    'value.user.tags[1] == "b"',
    'value.user.tags[*] == "b"',
    'value.items[*].sku == "y"',
    "value.items[*].n != 2",
    "value.user[*] != null",
    "value.id in [1, 9007199254740993]",
    'value.id in ["x", 9007199254740993]',
    "value.none in [null]",
    "has(value.none)",
    "has(value.user.name)",
    "has(key)",
    "has(headers.env)",
    "has(headers)",
    'value.s.contains("af")',
    'value.s.startsWith("c") && value.s.endsWith("é")',
    'value.contains("tags")',
    "value ~ /tags.*sku/",
    "value.user.name ~ /^a.n$/",
    "value.s ~ /é/",
    'value.user.name.matches("nn")',
    'key == "user-1"',
    'key.startsWith("user-")',
    "record.keyAsText.endsWith('1')",
    "record.valueAsText.contains('u00e9')",
    'headers["env"] == "prod"',
    'headers["env"] == "dev"',
    'headers["env"] != "prod"',
    "headers.null == null",
    "headers.trace.id[1] == 2",
    'headers.exists(h, h == "trace")',
    'value.items.exists(i, i.sku == "x" && i.n == 2)',
    "value.items.all(i, i.n > 1)",
    "value.empty.all(i, i == 1)",
    'value.user.exists(name, name == "tags")',
    'value.items.exists(i, i.n == 5 && value.user.tags.exists(t, t == "a"))',
    "value.items.exists(i, ann)",
    "partition == 3 && offset == 1000",
    "timestamp == '2026-01-01T00:00:00Z'",
    "size > 200 && size < 300",
    "producerId == 77",
]

OTHER = [
    "Ann",
    "ann nothing",
    "!ann",
    "value.id == 9007199254740992",
    "value.id == 9007199254740993.5",
    "value.missing == 1",
    "value.missing != 1",
    "value.missing.deeper < 1",
    "value.missing ~ /x/",
    'value.missing.contains("")',
    "value.missing in [1, null]",
    "value.missing == null",
    "value.missing.all(i, i == 1)",
    "has(value.missing)",
    "has(headers.missing)",
    "value.items[2].n == 1",
    'value.items["0"].n == 2',
    "value.user[0] == 1",
    "value.empty.exists(i, i == 1)",
    'value.items.exists(i, i.sku == "x" && i.n == 5)',
    "schemaId == 1",
    "partition == 4",
]

MISMATCHES = [
    ('value.id == "9007199254740993"', False, "value.id is a number, compared with text"),
    ("value.n == 7", False, "value.n is text, compared with a number"),
    ("value.n != 7", True, "value.n is text, compared with a number"),
    ("value.ok == 1", False, "value.ok is a boolean, compared with a number"),
    ("value.ok > false", False, "value.ok is a boolean, compared with a boolean"),
    ("value.user == 1", False, "value.user is an object, compared with a number"),
    ("value.items < 1", False, "value.items is a list, compared with a number"),
    ("value.none < 1", False, "value.none is null, compared with a number"),
    ("value.id in ['x', true]", False, "value.id is a number, compared with text"),
    ("value.id ~ /9/", False, "value.id is a number, tested as text"),
    ('value.user.contains("ann")', False, "value.user is an object, tested as text"),
    ("value.id.exists(i, i == 1)", False, "value.id is a number, used as a list"),
    ('headers[*] == "dev"', True, "headers[*] is undecoded bytes, compared with text"),
    ('headers.raw == "x"', False, "headers.raw is undecoded bytes, compared with text"),
]


def order():
    return subject(ORDER, b"user-1", HEADERS, producer_id=77)


def matches(query, record):
    return compile_filter(parse_query(query, 0).filter)(record)


@pytest.mark.parametrize("query", MATCHING)
def test_record_matches_without_mismatch(query):
    record = order()
    assert matches(query, record)
    assert not record.batch.tally.mismatches


@pytest.mark.parametrize("query", OTHER)
def test_record_does_not_match(query):
    record = order()
    assert not matches(query, record)
    assert not record.batch.tally.mismatches


@pytest.mark.parametrize(("query", "expected", "description"), MISMATCHES)
def test_type_mismatch_is_counted(query, expected, description):
    record = order()
    assert matches(query, record) is expected
    assert record.batch.tally.mismatches == {description: 1}


def test_tombstone_has_a_null_value_and_no_text():
    for query in ("value == null", "!has(value)", "!has(value.a)", "has(key)", "size == 1"):
        assert matches(query, subject(None, b"k")), query
    for query in ("value != null", "value.a == null", "value ~ /./", 'value.contains("")'):
        assert not matches(query, subject(None, b"k")), query


def test_undecodable_value_is_found_by_its_bytes():
    record = subject(b"\xff\xfeneedle")
    assert matches("needle", record)
    assert record.batch.tally.undecodable == 0
    assert matches('value.contains("needle")', record)
    assert not matches("value.a == 1", record)
    assert record.batch.tally.undecodable == 1


def test_schema_id_is_read_from_the_prefix():
    record = subject(b'\0\0\0\x01\x02{"a": 1}')
    assert matches("schemaId == 258 && value.a == 1", record)
    assert not matches("schemaId == 258", subject(b"\0\0\0"))


@pytest.mark.parametrize(
    ("decoder", "data", "value"),
    [
        ("auto", b' [1, "x"]', [1, "x"]),
        ("auto", b"42", "42"),
        ("json", b"42", 42),
        ("json", b'"x"', "x"),
        ("text", b"{}", "{}"),
        ("integer", b"\xff\xfe", -2),
        ("integer", b"\0\0\0\0\0\0\x01\0", 256),
        ("int16", b"\xff\xfe", -2),
        ("int32", b"\0\0\1\0", 256),
        ("int64", b"\x80" + bytes(7), -(2**63)),
        ("float", b"\x3d\xcc\xcc\xcd", Decimal("0.1")),
        ("float", b"\x7f\xc0\0\0", "nan"),
        ("float", b"\x7f\x7f\xff\xff", Decimal("3.4028235e+38")),
        ("double", b"\x3f\xb9\x99\x99\x99\x99\x99\x9a", Decimal("0.1")),
        ("uuid", bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ("uuid", b"00010203-0405-0607-0809-0A0B0C0D0E0F", "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ("hex", b"\x0a\xff", "0aff"),
        ("base64", b"\x0a\xff", "Cv8="),
    ],
)
def test_decoder_returns_the_value(decoder, data, value):
    decoded = decode(decoder, data)
    assert decoded.failure is None
    assert (decoded.value, type(decoded.value)) == (value, type(value))


@pytest.mark.parametrize(
    ("decoder", "data", "reason"),
    [
        ("auto", b"\xff", "byte 0 is not UTF-8"),
        ("auto", b"{", "Expecting property name enclosed in double quotes at character 2"),
        ("json", b"[NaN]", "NaN is not JSON"),
        ("json", b"[" * 100_000, "the JSON is nested too deeply"),
        ("json", b"9" * 5_000, "Exceeds the limit"),
        ("json", b"1e99999999999999999999", ""),
        ("integer", b"abc", "an integer has 1, 2, 4 or 8 bytes, not 3"),
        ("int32", b"abc", "an int32 has 4 bytes, not 3"),
        ("uuid", b"x", "a UUID has 16 bytes or its text form"),
        ("uuid", b"\xff", "a UUID has 16 bytes or its text form"),
    ],
)
def test_decoder_failure_has_a_reason_and_the_bytes(decoder, data, reason):
    decoded = decode(decoder, data)
    assert decoded.value == data
    assert decoded.failure
    assert decoded.failure.startswith(reason)


@pytest.mark.parametrize("decoder", sorted(set(DECODERS) - {"avro", "protobuf", "registry", "msgpack"}))
def test_null_stays_null_in_every_decoder(decoder):
    assert subject(None, decoders=Decoders(value=decoder)).decoded_value.value is None
    assert matches("value == null", subject(None, decoders=Decoders(value=decoder)))
