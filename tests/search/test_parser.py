"""Queries that parse, and refusals with their position."""

from __future__ import annotations

from decimal import Decimal

import pytest

from ottla.search.parser import MAX_CHARS, MAX_DEPTH, MAX_DIGITS, MAX_NODES, parse_query
from ottla.search.syntax import (
    And,
    Compare,
    Has,
    Match,
    Node,
    Not,
    OffsetBound,
    OneOf,
    Or,
    Path,
    Quantifier,
    QueryError,
    Scopes,
    TextTest,
    TimeBound,
    Word,
)

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
A, B, C = Word("a"), Word("b"), Word("c")


def value(*segments: str | int | None) -> Path:
    return Path("value", segments)


FILTERS: list[tuple[str, Node]] = [
    ("timeout", Word("timeout")),
    ("10.0.0.1:9092/x?y#z", Word("10.0.0.1:9092/x?y#z")),
    ("key-1", Word("key-1")),
    ("valued", Word("valued")),
    ("has", Word("has")),
    ("in", Word("in")),
    ("true", Word("true")),
    ('"value == 1"', Word("value == 1")),
    (r"'it\'s \u00e9\n\x41'", Word("it's é\nA")),
    ("a b", And((A, B))),
    ("a && b c", And((A, B, C))),
    ("a b || c", Or((And((A, B)), C))),
    ("a (b || c)", And((A, Or((B, C))))),
    ("!a b", And((Not(A), B))),
    ("!!a", A),
    ("!(a || b)", Not(Or((A, B)))),
    ("value.user.id == 42", Compare(value("user", "id"), "==", 42)),
    ("value.id==9007199254740993", Compare(value("id"), "==", 9007199254740993)),
    ("value.id != -1", Compare(value("id"), "!=", -1)),
    ("value.x<=0.1", Compare(value("x"), "<=", Decimal("0.1"))),
    ("value.x > 1e3", Compare(value("x"), ">", Decimal(1000))),
    ("value.ok == true", Compare(value("ok"), "==", True)),
    ("value == null", Compare(value(), "==", None)),
    ('value["a b"][0][*].c == "x"', Compare(value("a b", 0, None, "c"), "==", "x")),
    ("value.contains == 1", Compare(value("contains"), "==", 1)),
    ('headers["env"] == "prod"', Compare(Path("headers", ("env",)), "==", "prod")),
    ("headers.env == 'prod'", Compare(Path("headers", ("env",)), "==", "prod")),
    ("headers[*] ~ /x/", Match(Path("headers", (None,)), "x")),
    ("partition in [0, 3]", OneOf(Path("partition"), (0, 3))),
    ('value.s in ["a",null]', OneOf(value("s"), ("a", None))),
    ("timestamp >= '2026-01-01T00:00:00Z'", Compare(Path("timestamp"), ">=", 1_767_225_600_000)),
    ("has(value.a)", Has(value("a"))),
    ("has( key )", Has(Path("key"))),
    ('key.startsWith("user-")', TextTest(Path("key"), "startsWith", "user-")),
    ('value.a.contains( "x" )', TextTest(value("a"), "contains", "x")),
    ('value.a.endsWith("x")', TextTest(value("a"), "endsWith", "x")),
    (r"key ~ /a\/b\d+/", Match(Path("key"), r"a/b\d+")),
    ("key ~ 'x y'", Match(Path("key"), "x y")),
    ('value.a.matches("^x")', Match(value("a"), "^x")),
    (
        'value.items.exists(i, i.sku == "x" && i.n > 3)',
        Quantifier(
            value("items"),
            "i",
            And((Compare(Path("i", ("sku",)), "==", "x"), Compare(Path("i", ("n",)), ">", 3))),
            is_all=False,
        ),
    ),
    ("value.items.all(i, i > 0)", Quantifier(value("items"), "i", Compare(Path("i"), ">", 0), is_all=True)),
    ("record.value.id == 1", Compare(value("id"), "==", 1)),
    ("record.timestampMs > 5", Compare(Path("timestamp"), ">", 5)),
    ("record.keyAsText.contains('x')", TextTest(Path("keyAsText"), "contains", "x")),
    ("record.partition == 0 && record.offset > 7", And((
        Compare(Path("partition"), "==", 0),
        Compare(Path("offset"), ">", 7),
    ))),
]  # fmt: skip

SCOPES: list[tuple[str, Scopes]] = [
    ("", Scopes()),
    ("from:-2h", Scopes(start=TimeBound(NOW_MS - 7_200_000))),
    ("from:-1d12h until:-30m", Scopes(start=TimeBound(NOW_MS - DAY_MS * 3 // 2), until=TimeBound(NOW_MS - 1_800_000))),
    ("from:1234", Scopes(start=OffsetBound(1234))),
    ("until:2026-01-01T01:00:00+01:00", Scopes(until=TimeBound(1_767_225_600_000))),
    ("from:2026-01-01", Scopes(start=TimeBound(1_767_225_600_000))),
    ("partition:3,0,5-7", Scopes(partitions=(0, 3, 5, 6, 7))),
    (" limit:20  isolation:committed ", Scopes(limit=20, isolation="committed")),
]

REFUSALS: list[tuple[str, int, str]] = [
    ("value.id ==", 11, "text in quotes"),
    ("value.id == x", 12, "text in quotes"),
    ("value.id = 1", 9, "an operator"),
    ("value.id", 8, "an operator"),
    ("a key", 5, "an operator"),
    ("foo == 1", 0, "a path"),
    ('"foo" == 1', 0, "a path"),
    ("foo ~ /x/", 0, "a path"),
    ("42 > value.a", 0, "a path"),
    ("(a b", 4, '")"'),
    ("a b)", 3, "a word"),
    ("a || ", 5, "a word"),
    ("a & b", 2, "a word"),
    ("a , b", 2, "a word"),
    ("()", 1, "a word"),
    ("!", 1, "a word"),
    ('"open', 5, "the closing"),
    ("'bad \\q'", 5, "an escape"),
    ("'\\ud800'", 1, "an escape"),
    ("key ~ /x", 8, "the closing /"),
    ("key ~ /(/", 6, "a regular expression that RE2 accepts"),
    (r"key ~ /(a)\1/", 6, "a regular expression that RE2 accepts"),
    ("key ~ x", 6, "a regular expression between slashes"),
    ("key.contains(x)", 13, "text in quotes"),
    ("headers[0] == 1", 8, "a header name"),
    ("value[x] == 1", 6, "an index"),
    ("value[0 == 1", 8, '"]"'),
    ("value. == 1", 6, "a field name"),
    ("offset.x == 1", 6, "an operator"),
    ("record.foo == 1", 7, "a field of record"),
    ("has(foo)", 4, "a path"),
    ("has(value.a", 11, '")"'),
    ("value.a in 1", 11, '"["'),
    ("value.a in []", 12, "text in quotes"),
    ("value.a in [1", 13, '"," or "]"'),
    ("value.a.exists(value, b)", 15, "a variable"),
    ("value.a.exists(i b)", 17, '","'),
    ("timestamp > 'yesterday'", 12, "milliseconds or a time"),
    ("value.a == 1e9999999999", 11, "text in quotes"),
    ("from:yesterday", 5, "a time"),
    ("from:1960-01-01", 5, "a time"),
    ("from:-h", 5, "a time"),
    ("from:99999999999999999999", 5, "a time"),
    ("until:", 6, "a time"),
    ("partition:1-", 10, "partitions"),
    ("partition:3-1", 10, "partitions"),
    ("limit:0", 6, "a number"),
    ("isolation:dirty", 10, "committed or uncommitted"),
    ("limit:1 limit:2", 8, "one scope limit:"),
    ("a limit:2", 2, "scopes before"),
    ("a\udc80", 1, "valid UTF-8"),
]


@pytest.mark.parametrize(("text", "expected"), FILTERS)
def test_filter_parses_to_its_tree(text, expected):
    assert parse_query(text, NOW_MS).filter == expected


@pytest.mark.parametrize(("text", "expected"), SCOPES)
def test_scopes_parse_alone_and_before_a_filter(text, expected):
    assert parse_query(text, NOW_MS).scopes == expected
    assert parse_query(text, NOW_MS).filter is None
    assert parse_query(f"{text} a", NOW_MS).scopes == expected
    assert parse_query(f"{text} a", NOW_MS).filter == A


@pytest.mark.parametrize(("text", "position", "expected"), REFUSALS)
def test_refusal_has_its_position_and_the_missing_part(text, position, expected):
    with pytest.raises(QueryError) as refusal:
        parse_query(text, NOW_MS)
    assert (refusal.value.position, refusal.value.expected[: len(expected)]) == (position, expected)
    assert f"at character {position + 1}: expected {expected}" in str(refusal.value)


def test_nesting_is_bounded():
    parse_query("(" * (MAX_DEPTH - 1) + "a" + ")" * (MAX_DEPTH - 1), NOW_MS)
    with pytest.raises(QueryError, match="nested") as refusal:
        parse_query("(" * 2000 + "a" + ")" * 2000, NOW_MS)
    assert refusal.value.position == MAX_DEPTH


def test_number_of_nodes_is_bounded():
    parse_query("a " * (MAX_NODES - 1), NOW_MS)
    with pytest.raises(QueryError, match="at most"):
        parse_query("a " * (MAX_NODES + 1), NOW_MS)
    with pytest.raises(QueryError, match="at most"):
        parse_query(f"partition in [{','.join(['1'] * MAX_NODES)}]", NOW_MS)


def test_length_is_bounded():
    with pytest.raises(QueryError, match="the end of the query"):
        parse_query("a" * (MAX_CHARS + 1), NOW_MS)


@pytest.mark.parametrize("text", ["9" * 5_000, "0." + "9" * 5_000])
def test_length_of_numbers_is_bounded(text):
    parse_query(f"value == {text[:MAX_DIGITS]}", NOW_MS)
    with pytest.raises(QueryError, match="a number of at most"):
        parse_query(f"value == {text}", NOW_MS)
