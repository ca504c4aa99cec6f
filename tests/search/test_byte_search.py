"""Twins of the search for bytes, compared with each other and with Python's own search."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.errors import InvariantError
from ottla.search import _byte_search_py as pure
from ottla.search import byte_search

compiled: ModuleType = pytest.importorskip("ottla.search._byte_search", reason="the compiled module was not built")

TWINS = [pytest.param(compiled, id="compiled"), pytest.param(pure, id="pure")]
few_bytes = st.text("ab", max_size=100).map(str.encode)
numbers = st.lists(
    st.sampled_from(["1", "0.5", "-", "+", "e", "E", "e5", '"', ":", ",", "[", " ", "\n", "a", "\\", "\0"]), max_size=60
).map(lambda parts: "".join(parts).encode())


def test_compiled_twin_is_chosen():
    assert byte_search.find_bytes is compiled.find_bytes
    assert byte_search.has_exponent is compiled.has_exponent


@settings(max_examples=500, deadline=None)
@given(few_bytes, few_bytes, few_bytes.filter(bool), st.booleans())
def test_piece_is_found_where_python_finds_it(before, data, piece, is_cut):
    buffer = before + data + piece
    start, end = len(before), len(buffer) - is_cut
    expected = buffer.find(piece, start, end)
    for twin in (compiled, pure):
        assert twin.find_bytes(memoryview(buffer), start, end, piece) == expected


@pytest.mark.parametrize("twin", TWINS)
def test_piece_is_found_at_every_place_and_never_beyond_the_end(twin):
    for length in (1, 2, 17, 40):
        for at in range(130):
            buffer = b"." * at + b"x" * length + b"." * (130 - at)
            assert twin.find_bytes(buffer, 0, len(buffer), b"x" * length) == at
            assert twin.find_bytes(buffer, 0, at + length - 1, b"x" * length) == -1


@settings(max_examples=500, deadline=None)
@given(numbers, numbers)
def test_twins_agree_on_exponents(before, data):
    buffer = before + data
    start, end = len(before), len(buffer)
    for function in ("find_exponent", "has_exponent"):
        expected = getattr(pure, function)(buffer, start, end)
        assert getattr(compiled, function)(buffer, start, end) == expected


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("number", [b"4e1", b"4E+1", b"-4.25e-10", b"0.5e5"])
def test_numbers_with_an_exponent_are_found_anywhere(twin, number):
    for text in (b"%b", b"\0\0\0\0\1%b", b'{"a":%b}', b'{"a": %b, "b": 1}', b"[1,\n%b]", b'{"id": "5e3f", "a": %b}'):
        data = text % number
        for padding in (b"", b" " * 15, b" " * 31):
            assert twin.has_exponent(padding + data, len(padding), len(padding) + len(data)), data
            assert twin.find_exponent(data, 0, len(data)) >= 0


@pytest.mark.parametrize("twin", TWINS)
def test_words_and_plain_numbers_have_no_exponent(twin):
    for data in (b'{"uuid": "550e8400-e29b-41d4"}', b'{"a": 42.5, "b": "x4e1"}', b"e5", b"", b"[4]e", b"4 e1"):
        assert not twin.has_exponent(data, 0, len(data)), data


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize(("start", "end"), [(-1, 2), (2, 1), (0, 4), (4, 4)])
def test_range_outside_of_the_buffer_breaks_an_invariant(twin, start, end):
    for call in (lambda: twin.find_bytes(b"abc", start, end, b"a"), lambda: twin.has_exponent(b"abc", start, end)):
        with pytest.raises(InvariantError):
            call()


@pytest.mark.parametrize("twin", TWINS)
def test_empty_piece_breaks_an_invariant(twin):
    with pytest.raises(InvariantError):
        twin.find_bytes(b"abc", 0, 3, b"")
