"""Strict reader for the JSON of a znode: writers to ZooKeeper are not trusted.

A znode is one object. Input is limited to the size of a znode, keys are unique, numbers are integers within their
range, and versions that Apache Kafka never wrote are rejected. Unread fields are ignored, as in Apache Kafka. Errors
name the znode and the field, never its contents: those may be a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ottla.common.errors import ProtocolError

MAX_ZNODE_BYTES = 0xFFFFF
"""ZooKeeper's default for a request and its data (`jute.maxbuffer`)."""
MAX_INT16, MAX_INT32, MAX_INT64 = 2**15 - 1, 2**31 - 1, 2**63 - 1
NONE = -1
"""No broker, no port, no epoch."""

_MAX_DIGITS = 20
_DECIMAL = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)


def encode(content: Mapping[str, Any]) -> bytes:
    """Encode an object as JSON without blanks, with keys in the given order."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def decimal(path: str, data: bytes | str, low: int = 0, high: int = MAX_INT64) -> int:
    """Decode an integer in plain text; raises ProtocolError otherwise, also for leading zeros or a plus sign."""
    try:
        text = data if isinstance(data, str) else data[: _MAX_DIGITS + 1].decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if _DECIMAL.fullmatch(text) and low <= int(text) <= high:
        return int(text)
    raise ProtocolError(f"znode {path} does not contain an integer from {low} to {high}")


def text_of(path: str, data: bytes) -> str:
    """Decode a znode of plain text; raises ProtocolError if it is not UTF-8 or larger than a znode."""
    if len(data) > MAX_ZNODE_BYTES:
        raise ProtocolError(f"znode {path} has {len(data)} bytes, more than {MAX_ZNODE_BYTES}")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"znode {path} is not UTF-8") from error


class Fields:
    """A JSON object with the path of its znode; every method raises ProtocolError for invalid fields."""

    __slots__ = ("_content", "_path")

    def __init__(self, path: str, content: Mapping[str, Any]) -> None:
        self._path = path
        self._content = content

    @classmethod
    def parsed(cls, path: str, data: bytes, versions: range | None) -> Fields:
        """Parse a znode with a `version` in `versions`; None ignores the version."""
        text = text_of(path, data)
        try:
            content = _DECODER.decode(text)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"znode {path} is not valid JSON") from error
        if type(content) is not dict:
            raise ProtocolError(f"znode {path} does not contain an object")
        fields = cls(path, content)
        if versions is not None and fields.number("version", NONE) not in versions:
            raise ProtocolError(f"znode {path} has an unknown version")
        return fields

    def wrong(self, key: str) -> ProtocolError:
        """Return the error for an invalid field."""
        return ProtocolError(f"znode {self._path} has no valid field {key!r}")

    def has(self, key: str) -> bool:
        """Return whether the field exists and is not null."""
        return self._content.get(key) is not None

    def number(self, key: str, low: int = 0, high: int = MAX_INT32) -> int:
        """Return an integer from `low` to `high`."""
        value = self._content.get(key)
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(key)
        return value

    def number_in_text(self, key: str, low: int = 0) -> int:
        """Return an integer that is written as a string, as Apache Kafka does for 64 bits."""
        return decimal(f"{self._path} in {key!r}", self.text(key), low)

    def text(self, key: str) -> str:
        """Return a string without lone surrogates."""
        value = self._content.get(key)
        if type(value) is not str or not _is_whole(value):
            raise self.wrong(key)
        return value

    def texts(self, key: str) -> list[str]:
        """Return a list of strings."""
        value = self._content.get(key)
        if type(value) is not list or not all(type(item) is str and _is_whole(item) for item in value):
            raise self.wrong(key)
        return value

    def broker_ids(self, key: str) -> tuple[int, ...]:
        """Return a list of broker ids without duplicates."""
        value = self._content.get(key)
        if type(value) is not list or not all(type(item) is int and 0 <= item <= MAX_INT32 for item in value):
            raise self.wrong(key)
        if len(set(value)) != len(value):
            raise self.wrong(key)
        return tuple(value)

    def inner(self, key: str) -> Fields:
        """Return an object."""
        value = self._content.get(key)
        if type(value) is not dict:
            raise self.wrong(key)
        return Fields(f"{self._path} in {key!r}", value)

    def inners(self, key: str) -> list[Fields]:
        """Return a list of objects."""
        value = self._content.get(key)
        if type(value) is not list or not all(type(item) is dict for item in value):
            raise self.wrong(key)
        return [Fields(f"{self._path} in {key!r}", item) for item in value]

    def names(self) -> list[str]:
        """Return the field names in document order."""
        if not all(map(_is_whole, self._content)):
            raise ProtocolError(f"znode {self._path} has an invalid name")
        return list(self._content)

    def partitions(self) -> list[int]:
        """Return the field names as partition numbers, ascending."""
        return sorted(decimal(self._path, key, high=MAX_INT32) for key in self._content)


def _is_whole(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name occurs twice")
    return content


def _bounded(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("a number is too long")
    return int(digits)


def _as_text(digits: str) -> str:
    """Fractions occur in no valid field; as text they fail every check."""
    return digits


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_bounded, parse_constant=_refused, parse_float=_as_text
)
