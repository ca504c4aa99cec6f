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

from ottla.common.kafka.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

AUTO = "auto"
GROUPS = "consumer-offsets"
TRANSACTIONS = "transaction-state"
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
    """`decode` takes the bytes and, for a value, the key of its record; it raises Undecodable.

    If `is_verbatim`, decoded text and names are in the bytes, apart from escapes.
    """

    decode: Callable[[bytes, bytes | None], object]
    is_verbatim: bool


def decode(name: str, data: bytes | None, key: bytes | None = None) -> Decoded:
    """The value of `data` by the decoder `name`; null stays null. `key` is given for the value of a record."""
    if data is None:
        return Decoded(None, name, None)
    used = _detected(data) if name == AUTO else name
    try:
        return Decoded(DECODERS[used].decode(data, key), used, None)
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
        return _JSON.decode(text)
    except json.JSONDecodeError as error:
        raise Undecodable(f"{error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise Undecodable("the JSON is nested too deeply") from None
    except (InvalidOperation, ValueError) as error:
        raise Undecodable(str(error) or "a number is out of range") from None


def _refuse_constant(name: str) -> NoReturn:
    raise Undecodable(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse_constant)


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


def _of_bytes(function: Callable[[bytes], object], *, is_verbatim: bool) -> Decoder:
    return Decoder(lambda data, key: function(data), is_verbatim)


def _of_coordinator(name: str) -> Decoder:
    def decode_record(data: bytes, key: bytes | None) -> object:
        from ottla.search import coordinator_log  # imported here: few searches read internal topics

        try:
            decoded: object = getattr(coordinator_log, name)(data, key)
        except coordinator_log.CoordinatorRecordRefused as error:
            raise Undecodable(str(error)) from None
        return decoded

    return Decoder(decode_record, is_verbatim=False)


DECODERS: Mapping[str, Decoder] = {
    AUTO: _of_bytes(decode_text, is_verbatim=True),
    "text": _of_bytes(decode_text, is_verbatim=True),
    "json": _of_bytes(decode_json, is_verbatim=True),
    "integer": _of_bytes(_integer, is_verbatim=False),
    "uuid": _of_bytes(_uuid, is_verbatim=False),
    "hex": _of_bytes(bytes.hex, is_verbatim=False),
    "base64": _of_bytes(lambda data: base64.b64encode(data).decode(), is_verbatim=False),
    GROUPS: _of_coordinator("decode_group_record"),
    TRANSACTIONS: _of_coordinator("decode_transaction_record"),
}
"""All decoders by name; `auto` chooses JSON for objects and lists, otherwise text."""
_OF_INTERNAL_TOPICS = {GROUP_METADATA_TOPIC: GROUPS, TRANSACTION_STATE_TOPIC: TRANSACTIONS}


def decoder_for(topic: str, name: str) -> str:
    """The decoder for `auto` in an internal topic of a coordinator, otherwise `name`."""
    return _OF_INTERNAL_TOPICS.get(topic, name) if name == AUTO else name
