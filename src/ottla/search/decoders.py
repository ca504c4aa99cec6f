"""Decoders of keys, values and headers: bytes to text, numbers, lists and objects.

A failure never hides a record: the value is then the raw bytes, with the decoder's name and the reason. JSON numbers
stay exact: integers are int, all others Decimal.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import NamedTuple, NoReturn

AUTO = "auto"
SCHEMA_PREFIX_BYTES = 5
"""A zero byte and the schema id in 4 bytes, before a value that was written with a schema registry."""
_INTEGER_SIZES = (1, 2, 4, 8)
_UUID_BYTES = 16


class Undecodable(ValueError):
    """The message is the reason."""


class Decoded(NamedTuple):
    """A decoded value, or the raw bytes with the reason in `failure`; `decoder` is the decoder that was used."""

    value: object
    decoder: str
    failure: str | None


class Decoder(NamedTuple):
    """`decode` raises Undecodable. If `is_verbatim`, decoded text and names are in the bytes, apart from escapes."""

    decode: Callable[[bytes], object]
    is_verbatim: bool


def decode(name: str, data: bytes | None) -> Decoded:
    """The value of `data` by the decoder `name`; null stays null."""
    if data is None:
        return Decoded(None, name, None)
    used = _detected(data) if name == AUTO else name
    try:
        return Decoded(DECODERS[used].decode(data), used, None)
    except Undecodable as error:
        return Decoded(data, used, str(error))


def schema_id(data: bytes | None) -> int | None:
    """The id of the schema in a registry that a value names; None without one."""
    if data is None or len(data) < SCHEMA_PREFIX_BYTES or data[0]:
        return None
    return int.from_bytes(data[1:SCHEMA_PREFIX_BYTES], "big")


def decode_text(data: bytes) -> str:
    """UTF-8 text. Raises Undecodable."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Undecodable(f"byte {error.start} is not UTF-8") from None


def decode_json(data: bytes) -> object:
    """JSON, also behind the prefix of a schema registry. Raises Undecodable."""
    text = decode_text(data[SCHEMA_PREFIX_BYTES:] if data[:1] == b"\0" else data)
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise Undecodable(f"{error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise Undecodable("the JSON is nested too deeply") from None
    except (InvalidOperation, ValueError) as error:
        raise Undecodable(str(error) or "a number is out of range") from None


def _refuse_constant(name: str) -> NoReturn:
    raise Undecodable(f"{name} is not JSON")


def _detected(data: bytes) -> str:
    """JSON for an object or a list, otherwise text."""
    start = SCHEMA_PREFIX_BYTES if data[:1] == b"\0" else 0
    return "json" if data[start : start + 64].lstrip()[:1] in (b"{", b"[") else "text"


def _integer(data: bytes) -> int:
    if len(data) not in _INTEGER_SIZES:
        raise Undecodable(f"an integer has 1, 2, 4 or 8 bytes, not {len(data)}")
    return int.from_bytes(data, "big", signed=True)


def _uuid(data: bytes) -> str:
    if len(data) == _UUID_BYTES:
        return str(uuid.UUID(bytes=data))
    try:
        return str(uuid.UUID(decode_text(data)))
    except ValueError:
        raise Undecodable(f"a UUID has {_UUID_BYTES} bytes or its text form") from None


DECODERS: Mapping[str, Decoder] = {
    AUTO: Decoder(decode_text, is_verbatim=True),
    "text": Decoder(decode_text, is_verbatim=True),
    "json": Decoder(decode_json, is_verbatim=True),
    "integer": Decoder(_integer, is_verbatim=False),
    "uuid": Decoder(_uuid, is_verbatim=False),
    "hex": Decoder(bytes.hex, is_verbatim=False),
    "base64": Decoder(lambda data: base64.b64encode(data).decode(), is_verbatim=False),
}
"""All decoders by name; `auto` chooses JSON for objects and lists, otherwise text."""
