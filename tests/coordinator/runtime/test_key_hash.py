"""Java's string hash for any string of any length."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.runtime.key_hash import partition_for, string_hash

LONGEST = 32_767
"""UTF-8 bytes of a string that is not compact; compact ones may be longer."""


def of_java(string: str) -> int:
    """`String.hashCode` by its documentation, one unit after the other."""
    hashed = 0
    units = string.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[at : at + 2], "big")) % 2**32
    return hashed


@pytest.mark.parametrize(
    ("key", "hash_code"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", -1906497762),
        ("console-consumer-12345", 158455506),
        ("polygenelubricants", -(2**31)),
        ("zażółć", -701064989),
        ("zażółć gęślą jaźń", 481240412),
        ("\0\0a\0", 3007),
        ("\U0001f600", 1772899),
        ("\U0001f600\ud83d", 55015226),
        ("\U0001f600" * 1001, 2029902107),
        ("a" * 7 + "\uffff" * 70, 1318700769),
        ("\uffff" * LONGEST, -199722017),
        ("abcdefgh" * 4096, -2019016704),
    ],
)
def test_the_hash_and_the_partition_of_java(key: str, hash_code: int) -> None:
    assert string_hash(key) == of_java(key) == hash_code % 2**32
    expected = 0 if hash_code == -(2**31) else abs(hash_code)
    assert partition_for(key, 50) == expected % 50
    assert partition_for(key, 2**31) == expected


@given(st.text(st.characters(), max_size=200))
def test_any_string_has_the_hash_of_java(string: str) -> None:
    assert string_hash(string) == of_java(string)


@given(st.text(st.characters(), min_size=1, max_size=5), st.integers(0, 20_000))
def test_a_long_string_has_the_hash_of_java(string: str, length: int) -> None:
    long = (string * (length // len(string) + 1))[:length]
    assert string_hash(long) == of_java(long)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
@pytest.mark.parametrize("units", [4, 8, 16, 64, 2048, 4096, 8192, 65_536])
@pytest.mark.parametrize("unit", ["\uffff", "\0", "x"])
def test_lanes_and_chunks_that_are_just_full(unit: str, units: int, beyond: int) -> None:
    string = unit * (units + beyond)
    assert string_hash(string) == of_java(string)


def test_hash_takes_no_step_per_character() -> None:
    steps = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        string_hash("x" * LONGEST)
    finally:
        sys.settrace(before)
    assert 0 < steps < LONGEST / 5
