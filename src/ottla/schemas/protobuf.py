"""Protobuf message types, from descriptor sets and registries, by the protobuf package."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from ottla.schemas.ids import SchemaId, id_length, schema_id
from ottla.schemas.protobuf_imports import known_imports
from ottla.schemas.registry import RegisteredSchema, SchemaRegistry

MAX_TYPES_IN_ROW = 250
"""Maximum message types that each contain the next: protobuf creates their classes recursively, with two calls for a
class, and Python permits 1,000 calls in each other."""
MAX_INDEXES = 100
"""Maximum levels of nested message types that the indexes in front of a value may name."""


class ProtobufSchemaError(ValueError):
    """The schema can't decode values; the message contains the reason."""


class LargeMessageError(ProtobufSchemaError):
    """The message type is too large."""


class SchemaAsTextError(ProtobufSchemaError):
    """The registry returns `.proto` text even if a file descriptor is requested; there is no compiler for it here."""


def message_of_file(descriptor_set: bytes, name: str | None) -> Descriptor:
    """The message type of a descriptor set (`protoc --include_imports --descriptor_set_out`).

    Without a name, the only one at the top of the set's last file. Raises ProtobufSchemaError.
    """
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file
    except DecodeError as error:
        raise ProtobufSchemaError("it is not a set of file descriptors") from error
    if not files:
        raise ProtobufSchemaError("it is an empty set of file descriptors")
    pool = _pool(files)
    if name is None:
        found = list(pool.FindFileByName(files[-1].name).message_types_by_name.values())
        if len(found) != 1:
            names = ", ".join(sorted(message.full_name for message in found)) or "none"
            raise ProtobufSchemaError(f"it has several messages; select that of the values with --message: {names}")
        return found[0]
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError as error:
        raise ProtobufSchemaError(f"it has no message {name!r}") from error


def _pool(files: Iterable[Any]) -> DescriptorPool:
    """Raises ProtobufSchemaError unless each file comes after the files that it imports; OperatorError for a missing
    package."""
    pool = DescriptorPool()
    given = {file.name: file for file in files}
    try:
        for file in (*known_imports(given.values()), *given.values()):
            pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, KeyError, ValueError) as error:
        raise ProtobufSchemaError(f"its files are inconsistent: {error}") from error
    return pool


def require_few_in_row(message: Descriptor) -> None:
    """Raise LargeMessageError for message types in a row that can't have classes."""
    known = {message.full_name}
    path = [iter(message.fields)]
    while path:
        if len(path) > MAX_TYPES_IN_ROW:
            raise LargeMessageError(
                f"its message {message.full_name} has more than {MAX_TYPES_IN_ROW} message types that each contain "
                "the next"
            )
        part = next(path[-1], None)
        if part is None:
            path.pop()
        elif part.message_type is not None and part.message_type.full_name not in known:
            known.add(part.message_type.full_name)
            path.append(iter(part.message_type.fields))


def is_map(part: FieldDescriptor) -> bool:
    """True for a map, which is a list of entries on the wire."""
    return bool(part.message_type is not None and part.message_type.GetOptions().map_entry)


def registered_message(registry: SchemaRegistry, number: SchemaId, indexes: tuple[int, ...]) -> Descriptor:
    """The message type of an id. Raises UnknownSchemaError, ProtobufSchemaError; OperatorError for an unreachable
    registry."""
    return message_of(registry, registry.schema(number), f"schema-{number}.proto", indexes)


def message_of(registry: SchemaRegistry, found: RegisteredSchema, name: str, indexes: tuple[int, ...]) -> Descriptor:
    """The message in a registry's schema, with `name` as its file. Raises as `registered_message` does."""
    if found.kind != "PROTOBUF":
        raise ProtobufSchemaError(f"the schema in the registry is one of {found.kind}, not of PROTOBUF")
    files = [_file(schema, reference.name) for reference, schema in registry.references(found)]
    file = _pool([*files, _file(found, name)]).FindFileByName(name)
    messages = list(file.message_types_by_name.values())
    message = None
    for index in indexes:
        if index >= len(messages):
            break
        message = messages[index]
        messages = list(message.nested_types)
    else:
        if message is not None:
            return message
    raise ProtobufSchemaError(f"its schema in the registry has no message at {list(indexes)}")


def _file(schema: RegisteredSchema, name: str) -> Any:
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except (binascii.Error, ValueError, DecodeError) as error:
        raise SchemaAsTextError(
            "the registry returns it as text only, not as a file descriptor (format=serialized); add a descriptor "
            "set of protoc with --schema"
        ) from error
    file.name = name
    return file


def message_of_value(value: bytes) -> tuple[SchemaId, tuple[int, ...], int]:
    """The id of a value's schema, the indexes of its message type, and the start of the message. Raises ValueError."""
    number = schema_id(value)
    return number, *message_indexes(value, id_length(value))


def indexed_id_length(value: bytes) -> int:
    """The `IdLength` of Protobuf: the message indexes belong to the id, in a header too. Raises ValueError."""
    return message_of_value(value)[2]


def message_indexes(value: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Indexes of a value's message type in its file, and the start of the message; zigzag varints, of which a lone zero
    means the first type. Raises ValueError."""
    count, position = _zigzag(value, position)
    if count == 0:
        return (0,), position
    if not 0 < count <= MAX_INDEXES:
        raise ValueError("the value has invalid message indexes")
    indexes = []
    for _ in range(count):
        index, position = _zigzag(value, position)
        if index < 0:
            raise ValueError("the value has invalid message indexes")
        indexes.append(index)
    return tuple(indexes), position


def _zigzag(value: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if position >= len(value):
            raise ValueError("the value ends within the message indexes, which follow the schema id of the registry")
        byte = value[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise ValueError("the value has invalid message indexes")
