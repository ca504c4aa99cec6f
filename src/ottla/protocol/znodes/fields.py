"""The JSON of a znode, read strictly: whoever may write to ZooKeeper is not believed.

A znode is one object. What is read is bounded by the size of a znode, keys stand once, numbers are whole and in their
range, and a version that Apache Kafka never wrote is refused. Fields that are not asked for are passed over, as Apache
Kafka does. Errors name the znode and the field, and nothing of what it holds: that may be a secret.
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
    """The JSON of an object without blanks, its keys in the order given."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def decimal(path: str, data: bytes | str, low: int = 0, high: int = MAX_INT64) -> int:
    """A whole number as plain text; raises ProtocolError for any other, also for one with leading zeros or a sign."""
    try:
        text = data if isinstance(data, str) else data[: _MAX_DIGITS + 1].decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if _DECIMAL.fullmatch(text) and low <= int(text) <= high:
        return int(text)
    raise ProtocolError(f"znode {path} holds no whole number from {low} to {high}")


def text_of(path: str, data: bytes) -> str:
    """What lies in a znode of plain text; raises ProtocolError unless it is UTF-8 and no larger than a znode."""
    if len(data) > MAX_ZNODE_BYTES:
        raise ProtocolError(f"znode {path} has {len(data)} bytes, more than {MAX_ZNODE_BYTES}")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"znode {path} is not UTF-8") from error


class Fields:
    """An object of JSON with the path of its znode; every method raises ProtocolError for what does not fit."""

    __slots__ = ("_content", "_path")

    def __init__(self, path: str, content: Mapping[str, Any]) -> None:
        self._path = path
        self._content = content

    @classmethod
    def parsed(cls, path: str, data: bytes, versions: range | None) -> Fields:
        """The content of a znode whose `version` is one of `versions`; None: which is not asked for."""
        text = text_of(path, data)
        try:
            content = _DECODER.decode(text)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"znode {path} is not valid JSON") from error
        if type(content) is not dict:
            raise ProtocolError(f"znode {path} holds no object")
        fields = cls(path, content)
        if versions is not None and fields.number("version", NONE) not in versions:
            raise ProtocolError(f"znode {path} has a version that is not known")
        return fields

    def wrong(self, key: str) -> ProtocolError:
        """The error for a field that is not what it has to be."""
        return ProtocolError(f"znode {self._path} has no valid field {key!r}")

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self._content.get(key) is not None

    def number(self, key: str, low: int = 0, high: int = MAX_INT32) -> int:
        """A whole number from `low` to `high`."""
        value = self._content.get(key)
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(key)
        return value

    def number_in_text(self, key: str, low: int = 0) -> int:
        """A whole number that is written as a string, as Apache Kafka does with 64 bits."""
        return decimal(f"{self._path} in {key!r}", self.text(key), low)

    def text(self, key: str) -> str:
        """A string without a character that stands for half of another."""
        value = self._content.get(key)
        if type(value) is not str or not _is_whole(value):
            raise self.wrong(key)
        return value

    def texts(self, key: str) -> list[str]:
        """A list of strings."""
        value = self._content.get(key)
        if type(value) is not list or not all(type(item) is str and _is_whole(item) for item in value):
            raise self.wrong(key)
        return value

    def broker_ids(self, key: str) -> tuple[int, ...]:
        """A list of brokers, each of them once."""
        value = self._content.get(key)
        if type(value) is not list or not all(type(item) is int and 0 <= item <= MAX_INT32 for item in value):
            raise self.wrong(key)
        if len(set(value)) != len(value):
            raise self.wrong(key)
        return tuple(value)

    def inner(self, key: str) -> Fields:
        """An object."""
        value = self._content.get(key)
        if type(value) is not dict:
            raise self.wrong(key)
        return Fields(f"{self._path} in {key!r}", value)

    def inners(self, key: str) -> list[Fields]:
        """A list of objects."""
        value = self._content.get(key)
        if type(value) is not list or not all(type(item) is dict for item in value):
            raise self.wrong(key)
        return [Fields(f"{self._path} in {key!r}", item) for item in value]

    def names(self) -> list[str]:
        """Names of the fields in the order in which they stand."""
        if not all(map(_is_whole, self._content)):
            raise ProtocolError(f"znode {self._path} has a name that is not valid")
        return list(self._content)

    def partitions(self) -> list[int]:
        """Names of the fields as numbers of partitions, ascending."""
        return sorted(decimal(self._path, key, high=MAX_INT32) for key in self._content)


def _is_whole(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name stands twice")
    return content


def _bounded(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("a number is too long")
    return int(digits)


def _kept(digits: str) -> str:
    """No field is a fraction; as text it takes part in nothing."""
    return digits


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_bounded, parse_constant=_refused, parse_float=_kept)
