"""Search for bytes in a buffer, in Python: twin and reference of `_byte_search.pyx`.

All functions search `buffer[start:end]`, and raise InvariantError for a range outside of the buffer.
"""

from __future__ import annotations

import re

from ottla.common.errors import InvariantError
from ottla.common.platform.disk import Buffer

PREFIX_BYTES = 5
"""Bytes before the text of a value that a schema registry describes."""

_EXPONENT = re.compile(rb"[0-9]([eE])(?=[0-9+-])")
_OF_NUMBER = frozenset(b"0123456789.+-")
_BEFORE_NUMBER = frozenset(b":,[ \t\n\v\f\r")


def _check_range(buffer: Buffer, start: int, end: int) -> None:
    if not 0 <= start <= end <= len(buffer):
        raise InvariantError(f"{start} to {end} is outside of {len(buffer)} bytes")


def find_bytes(buffer: Buffer, start: int, end: int, piece: bytes) -> int:
    """Position of the first occurrence of `piece`, which is not empty; -1 without one."""
    _check_range(buffer, start, end)
    if not piece:
        raise InvariantError("an empty piece is everywhere")
    found = bytes(memoryview(buffer)[start:end]).find(piece)
    return found if found < 0 else start + found


def find_exponent(buffer: Buffer, start: int, end: int) -> int:
    """Position of the first `e` or `E` between a digit and a digit or sign, as in 4.2e1; -1 without one."""
    _check_range(buffer, start, end)
    match = _EXPONENT.search(buffer, start, end)
    return -1 if match is None else match.start(1)


def has_exponent(buffer: Buffer, start: int, end: int) -> bool:
    """True if the text of a JSON value may have a number with an exponent; false for those inside of words.

    Before a number in JSON is nothing, the prefix of a schema registry, white space, a colon, a comma or a bracket.
    """
    at = start
    while (at := find_exponent(buffer, at, end)) >= 0:
        first = at
        while first > start and buffer[first - 1] in _OF_NUMBER:
            first -= 1
        if first - start <= PREFIX_BYTES or buffer[first - 1] in _BEFORE_NUMBER:
            return True
    return False
