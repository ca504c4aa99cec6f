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
    ("a || !b", []),
    ("!a", []),
    ("offset == 1", []),
    ("value == 1", []),
    ("value == 'x'", [(("x",), True)]),
    ("value.ab.c == 1", [(("ab",), True), (("c",), True)]),
    ("value.a != 'x'", [(("a",), True)]),
    ("value.a > 'x'", [(("a",), True)]),
    ("value.a in ['x', 'y']", [(("a",), True), (("x", "y"), True)]),
    ("value.a in ['x', 1]", [(("a",), True)]),
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
    clauses = [Clause(tuple(each.encode() for each in texts), escaped) for texts, escaped in expected]
    assert list(required_clauses(parse_query(query, 0).filter, open_decoders(Decoders()))) == clauses


@pytest.mark.parametrize("decoder", ["integer", "uuid", "hex", "base64"])
def test_decoders_that_change_text_yield_no_clauses(decoder):
    parsed = parse_query("key == '0aff' && value.a == 'x'", 0).filter
    assert required_clauses(parsed, open_decoders(Decoders(decoder, decoder))) == ()


def rules_out(clause: Clause, data: bytes) -> bool:
    return clause.rules_out(data, 0, len(data))


def test_backslash_prevents_ruling_out_decoded_text():
    decoded, raw = Clause((b"blue",), or_escaped=True), Clause((b"blue",), or_escaped=False)
    assert not rules_out(decoded, rb'{"color": "\u0062lue"}')
    assert rules_out(raw, rb"\u0062lue")
    assert rules_out(decoded, b"red")
    assert not rules_out(decoded, b"a blue one")
    assert decoded.rules_out(rb"blue \ red blue", 7, 10)
