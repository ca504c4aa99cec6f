"""Literals that every match contains."""

from __future__ import annotations

import pytest

from ottla.search.literals import Clause, required_clauses
from ottla.search.parser import parse_query
from ottla.search.subject import Decoders, open_decoders

CLAUSES = [
    ("timeout", [(("timeout",), False)]),
    ("a 'b c'", [(("a",), False), (("b c",), False)]),
    ("a || b", [(("a", "b"), False)]),
    ("(a longest) || b", [(("longest", "b"), False)]),
    ("a || value.x == 1", [(("a", "x"), True)]),
    ("a || value == 12", [(("a", "12"), False, True)]),
    ("a || !b", []),
    ("!a", []),
    ("offset == 1", []),
    ("value == 1", [(("1",), False, True)]),
    ("value == -4.50", [(("-4.5",), False, True)]),
    ("value == 1.5e3", [(("1500",), False, True)]),
    ("value == 100", [(("100",), False, True)]),
    ("value == -0.0", [(("0",), False, True)]),
    ("value == 1e-65", []),
    ("value == true", [(("true",), False, False)]),
    ("value == null", []),
    ("value in [1, null]", []),
    ("value == 'x'", [(("x",), True)]),
    ("value.ab.c > 1", [(("ab",), True), (("c",), True)]),
    ("value.a != 'x'", [(("a",), True)]),
    ("value.a > 'x'", [(("a",), True)]),
    ("value.a in ['x', 'y']", [(("a",), True), (("x", "y"), True)]),
    ("value.a in ['x', 1]", [(("a",), True), (("x", "1"), True, True)]),
    ("value.a ~ /x/", [(("a",), True)]),
    ("value.a.contains('x')", [(("a",), True), (("x",), True)]),
    ("value.a.contains('')", [(("a",), True)]),
    ("has(value[0].a[*])", [(("a",), True)]),
    ("headers.env == 'prod'", [(("env",), False), (("prod",), False)]),
    ("headers.trace.id == 'x'", [(("trace",), False), (("id",), True), (("x",), True)]),
    ("record.valueAsText.contains('x')", [(("x",), False)]),
    ("value.a.exists(i, i.b == 'x')", [(("a",), True), (("b",), True), (("x",), True)]),
    ("value.a.all(i, i.b == 'x')", [(("a",), True)]),
    ("'\ufffd' 'a\ufffd'", []),
]


@pytest.mark.parametrize(("query", "expected"), CLAUSES)
def test_clauses_of_a_filter(query, expected):
    clauses = [Clause(tuple(each.encode() for each in texts), *forms) for texts, *forms in expected]
    assert list(required_clauses(parse_query(query, 0).filter, open_decoders(Decoders()))) == clauses


@pytest.mark.parametrize("decoder", ["integer", "uuid", "hex", "base64"])
def test_decoders_that_change_text_yield_no_clauses(decoder):
    parsed = parse_query("key == '0aff' && value.a == 'x'", 0).filter
    assert required_clauses(parsed, open_decoders(Decoders(decoder, decoder))) == ()


def test_backslash_prevents_ruling_out_decoded_text():
    decoded, raw = Clause((b"blue",), or_escaped=True), Clause((b"blue",), or_escaped=False)
    assert not decoded.rules_out(rb'{"color": "\u0062lue"}')
    assert raw.rules_out(rb"\u0062lue")
    assert decoded.rules_out(b"red")
    assert not decoded.rules_out(b"a blue one")


def test_exponent_prevents_ruling_out_a_number():
    clause = Clause((b"42",), or_escaped=False, or_exponent=True)
    assert not clause.rules_out(b'{"a": 4.2e1}')
    assert not clause.rules_out(b'{"a": 42.0}')
    assert clause.rules_out(b'{"a": 4.2, "b": "\\u0034"}')
