"""Decoder of the records in `__consumer_offsets` and `__transaction_state`: objects with the fields of Kafka's schemas.

A key has the field `type`, a value the field `version`. Names are in camel case, as `kafka-dump-log` prints them. Bytes
are hexadecimal text, and topic ids have their usual form.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Any

from ottla.common.errors import KafkaError, ProtocolError
from ottla.common.kafka.ids import uuid_to_string
from ottla.protocol.codec import MAX_RESPONSE_ELEMENTS, read_message
from ottla.protocol.messages.coordinator_records import COORDINATOR_RECORDS
from ottla.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from ottla.protocol.schema import UUID, ArrayType, FieldType, Primitive, schema_of

_INT16 = Struct(">h")
_TRANSACTION_RECORDS: dict[int, tuple[type, type]] = {0: (TransactionLogKey, TransactionLogValue)}
_UNDERSCORE = re.compile(r"_([a-z])")


class CoordinatorRecordRefused(ValueError):
    """The bytes are not a record of this log; the message is the reason."""


def decode_group_record(data: bytes, key: bytes | None) -> object:
    """A key of `__consumer_offsets`, or the value of `key`. Raises CoordinatorRecordRefused."""
    return _decode(COORDINATOR_RECORDS, data, key)


def decode_transaction_record(data: bytes, key: bytes | None) -> object:
    """A key of `__transaction_state`, or the value of `key`. Raises CoordinatorRecordRefused."""
    return _decode(_TRANSACTION_RECORDS, data, key)


def _decode(records: dict[int, tuple[type, type]], data: bytes, key: bytes | None) -> object:
    kind = _number(data if key is None else key)
    if kind not in records:
        raise CoordinatorRecordRefused(f"record type {kind} is unknown")
    cls = records[kind][0 if key is None else 1]
    version = 0 if key is None else _number(data)
    message: Any
    try:
        message, position = read_message(cls, version, data, _INT16.size, len(data), MAX_RESPONSE_ELEMENTS)
    except (KafkaError, ProtocolError) as error:
        raise CoordinatorRecordRefused(f"{cls.__name__} of version {version}: {error}") from None
    if position != len(data):
        raise CoordinatorRecordRefused(f"{cls.__name__} has {len(data) - position} trailing bytes")
    first: dict[str, object] = {"type": cls.__name__.removesuffix("Key")} if key is None else {"version": version}
    return {**first, **_object(message)}


def _number(data: bytes) -> int:
    if len(data) < _INT16.size:
        raise CoordinatorRecordRefused(f"{len(data)} bytes are too short")
    number: int = _INT16.unpack_from(data)[0]
    return number


def _object(message: Any) -> dict[str, object]:
    fields = schema_of(type(message)).fields
    return {_camel_case(field.name): _plain(getattr(message, field.name), field.type) for field in fields}


def _plain(value: Any, kind: FieldType) -> object:
    if value is None:
        return None
    if isinstance(kind, ArrayType):
        return [_plain(each, kind.item) for each in value]
    if not isinstance(kind, Primitive):
        return _object(value)
    if kind is UUID:
        return uuid_to_string(bytes(value))
    return bytes(value).hex() if isinstance(value, (bytes, bytearray, memoryview)) else value


def _camel_case(name: str) -> str:
    return _UNDERSCORE.sub(lambda match: match[1].upper(), name)
