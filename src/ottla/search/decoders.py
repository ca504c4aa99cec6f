"""Decoders of keys, values and headers: bytes to text, numbers, lists and objects.

A failure never hides a record: the value is then the raw bytes, with the decoder's name and the reason. Numbers stay
exact: integers are int, all others Decimal. Bytes inside of objects are hexadecimal text, times are ISO 8601 text.

`search.decoder_factory` creates the decoder of a name. Decoders of schemas are in `search.schema_decoders`.
"""

from __future__ import annotations

import base64
import json
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import NamedTuple, NoReturn, Protocol

from ottla.common.kafka.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.schemas.ids import NUMBER_BYTES
from ottla.search.decoder_names import AUTO, GROUPS, TRANSACTIONS

_INTEGER_SIZES = (1, 2, 4, 8)
_UUID_BYTES = 16
_MAX_FLOAT32_DIGITS = 9

Headers = tuple[tuple[str, bytes | None], ...]


class Undecodable(ValueError):
    """The message is the reason."""


class Decoded(NamedTuple):
    """A decoded value, or the raw bytes with the reason in `failure`.

    `decoder` is the decoder that was used, `schema` the id of the schema in a registry, a number or a GUID.
    """

    value: object
    decoder: str
    failure: str | None
    schema: int | str | None = None


DECODED_NULL = Decoded(None, "null", None)
"""A key or a value that is null."""


class RecordParts(Protocol):
    """The parts of a record that decoders use besides the decoded bytes."""

    @property
    def key(self) -> bytes | None:
        """The raw key."""

    @property
    def headers(self) -> Headers:
        """Names and raw values."""


class ValueDecoder(Protocol):
    """Decodes keys or values.

    Implementations: `search.decoders.PlainDecoder`, `search.decoders.AutoDecoder` and
    `search.schema_decoders.RegistryDecoder`.
    """

    @property
    def is_verbatim(self) -> bool:
        """True if decoded text and names are in the bytes, apart from escapes."""

    def decode(self, data: bytes, record: RecordParts) -> Decoded:
        """Never raises for any data."""


@dataclass(frozen=True, slots=True)
class PlainDecoder:
    """`read` raises Undecodable."""

    name: str
    read: Callable[[bytes, RecordParts], object]
    is_verbatim: bool = False

    def decode(self, data: bytes, record: RecordParts) -> Decoded:
        try:
            return Decoded(self.read(data, record), self.name, None)
        except Undecodable as error:
            return Decoded(data, self.name, str(error))


@dataclass(frozen=True, slots=True)
class AutoDecoder:
    """JSON for objects and lists, otherwise text; with `by_registry`, data with a schema id by its schema."""

    json: PlainDecoder
    text: PlainDecoder
    by_registry: RegisteredDecoder | None = None

    @property
    def is_verbatim(self) -> bool:
        return self.by_registry is None

    def decode(self, data: bytes, record: RecordParts) -> Decoded:
        if self.by_registry is not None and self.by_registry.has_id(data, record):
            return self.by_registry.decode(data, record)
        start = NUMBER_BYTES if data[:1] == b"\0" else 0
        is_json = data[start : start + 64].lstrip()[:1] in (b"{", b"[")
        return (self.json if is_json else self.text).decode(data, record)


class RegisteredDecoder(ValueDecoder, Protocol):
    """A decoder for data with the id of a schema. Implementation: `search.schema_decoders.RegistryDecoder`."""

    def has_id(self, data: bytes, record: RecordParts) -> bool:
        """True if the data or a header has the form of a schema id."""


def schema_id(data: bytes | None) -> int | None:
    """The id of the schema in a registry that a value names; None without one."""
    if data is None or len(data) < NUMBER_BYTES or data[0]:
        return None
    return int.from_bytes(data[1:NUMBER_BYTES], "big")


def decode_text(data: bytes) -> str:
    """UTF-8 text. Raises Undecodable."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Undecodable(f"byte {error.start} is not UTF-8") from None


def decode_json(data: bytes) -> object:
    """JSON, also behind the prefix of a schema registry. Raises Undecodable."""
    text = decode_text(data[NUMBER_BYTES:] if data[:1] == b"\0" else data)
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


def _integer(data: bytes) -> int:
    if len(data) not in _INTEGER_SIZES:
        raise Undecodable(f"an integer has 1, 2, 4 or 8 bytes, not {len(data)}")
    return int.from_bytes(data, "big", signed=True)


def _fixed(name: str, form: str, convert: Callable[[int | float], object]) -> Callable[[bytes], object]:
    """A number in the encoding of Kafka's serializers."""
    layout = struct.Struct(form)

    def read(data: bytes) -> object:
        if len(data) != layout.size:
            raise Undecodable(f"{name} has {layout.size} bytes, not {len(data)}")
        return convert(layout.unpack(data)[0])

    return read


def exact_double(number: float) -> Decimal | str:
    """The shortest decimal that is this double; text for NaN and infinities."""
    return Decimal(repr(number)) if isfinite(number) else str(number)


def exact_float(number: float) -> Decimal | str:
    """The shortest decimal that is this 32-bit float; text for NaN and infinities."""
    if not isfinite(number):
        return str(number)
    for digits in range(6, _MAX_FLOAT32_DIGITS):
        text = f"{number:.{digits}g}"
        try:
            if struct.unpack("f", struct.pack("f", float(text)))[0] == number:
                return Decimal(text)
        except OverflowError:
            continue
    return Decimal(f"{number:.{_MAX_FLOAT32_DIGITS}g}")


def _uuid(data: bytes) -> str:
    if len(data) == _UUID_BYTES:
        return str(uuid.UUID(bytes=data))
    try:
        return str(uuid.UUID(decode_text(data)))
    except ValueError:
        raise Undecodable(f"a UUID has {_UUID_BYTES} bytes or its text form") from None


def _of_coordinator(name: str) -> Callable[[bytes, RecordParts | None], object]:
    def read(data: bytes, record: RecordParts | None) -> object:
        from ottla.search import coordinator_log  # imported here: few searches read internal topics

        try:
            decoded: object = getattr(coordinator_log, name)(data, None if record is None else record.key)
        except coordinator_log.CoordinatorRecordRefused as error:
            raise Undecodable(str(error)) from None
        return decoded

    return read


READERS: Mapping[str, Callable[[bytes], object]] = {
    "text": decode_text,
    "json": decode_json,
    "integer": _integer,
    "int16": _fixed("an int16", ">h", int),
    "int32": _fixed("an int32", ">i", int),
    "int64": _fixed("an int64", ">q", int),
    "float": _fixed("a float", ">f", exact_float),
    "double": _fixed("a double", ">d", exact_double),
    "uuid": _uuid,
    "hex": bytes.hex,
    "base64": lambda data: base64.b64encode(data).decode(),
}
"""Readers of bytes by the name of their decoder. They raise Undecodable."""
COORDINATOR_READERS = {
    GROUPS: _of_coordinator("decode_group_record"),
    TRANSACTIONS: _of_coordinator("decode_transaction_record"),
}
_OF_INTERNAL_TOPICS = {GROUP_METADATA_TOPIC: GROUPS, TRANSACTION_STATE_TOPIC: TRANSACTIONS}


def decoder_for(topic: str, name: str) -> str:
    """The decoder for `auto` in an internal topic of a coordinator, otherwise `name`."""
    return _OF_INTERNAL_TOPICS.get(topic, name) if name == AUTO else name
