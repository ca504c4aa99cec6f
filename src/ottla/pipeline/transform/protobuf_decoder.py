"""Values that are Protobuf messages, by the protobuf package: of one given message type, or of types in a registry.

Fields without presence have their default, others are null where the message has none. Unsigned 64-bit
integers are decimals of 20 digits, enums the names of their values; timestamps and wrappers of google.protobuf have
the types that they represent. Inside a message, fields of the same message type at any depth have no column. So message
types that contain each other have many fields: a message type with more than MAX_FIELDS of them is refused. Nesting of
values is bounded by protobuf itself (100 levels).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf import wrappers_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from ottla.pipeline.transform.columns import MAX_LEVELS, usable_names
from ottla.pipeline.transform.decoder import MAX_CELLS, DecodedValues
from ottla.pipeline.transform.rows import decode_rows, most_cells
from ottla.schemas.bounds import MAX_FIELDS, FieldCount, TooManyFieldsError
from ottla.schemas.ids import SchemaId
from ottla.schemas.protobuf import (
    LargeMessageError,
    ProtobufSchemaError,
    is_map,
    message_of_file,
    message_of_value,
    registered_message,
    require_few_in_row,
)
from ottla.schemas.registry import SchemaRegistry

_TYPES = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}
_TIMESTAMP = "google.protobuf.Timestamp"
_WITH_LESS = (
    "add a descriptor set with --schema that lacks the fields that no column needs, which are skipped then, or use "
    "--decode raw"
)
_WRAPPERS = frozenset(message.full_name for message in wrappers_pb2.DESCRIPTOR.message_types_by_name.values())

Convert = Callable[[Any], Any]


def message_fields(message: Descriptor) -> pa.Schema:
    """The fields that have columns. Raises LargeMessageError for too many."""
    _require_few_in_row(message)
    try:
        type_ = _struct_type(message, frozenset(), FieldCount())
    except TooManyFieldsError as error:
        raise LargeMessageError(
            f"its message {message.full_name} has more than {MAX_FIELDS:,} fields of all levels, counted wherever a "
            f"message is inside another; {_WITH_LESS}"
        ) from error
    return pa.schema(list(type_)) if type_ is not None else pa.schema([])


def _require_few_in_row(message: Descriptor) -> None:
    """Raise LargeMessageError for message types in a row that can't have classes."""
    try:
        require_few_in_row(message)
    except LargeMessageError as error:
        raise LargeMessageError(f"{error}; {_WITH_LESS}") from error


def _has_no_columns(message: Descriptor, entered: frozenset[str]) -> bool:
    """True inside a message of the same type, and inside too many."""
    return message.full_name in entered or len(entered) >= MAX_LEVELS


def _struct_type(message: Descriptor, entered: frozenset[str], count: FieldCount) -> pa.DataType | None:
    if _has_no_columns(message, entered):
        return None
    inside = entered | {message.full_name}
    found = {part.name: type_ for part in message.fields if (type_ := _field_type(part, inside, count)) is not None}
    names = usable_names(found)
    return pa.struct([(name, found[name]) for name in names]) if names else None


def _field_type(part: FieldDescriptor, entered: frozenset[str], count: FieldCount) -> pa.DataType | None:
    count.add()
    if is_map(part):
        key, value = (_single_type(part.message_type.fields_by_name[name], entered, count) for name in ("key", "value"))
        return None if value is None else pa.map_(key, value)
    type_ = _single_type(part, entered, count)
    return pa.list_(type_) if part.is_repeated and type_ is not None else type_


def _single_type(part: FieldDescriptor, entered: frozenset[str], count: FieldCount) -> pa.DataType | None:
    if part.type == FieldDescriptor.TYPE_BYTES:
        return pa.binary()
    if part.message_type is None:
        return _TYPES[part.cpp_type]
    if part.message_type.full_name == _TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    if part.message_type.full_name in _WRAPPERS:
        return _single_type(part.message_type.fields_by_name["value"], entered, count)
    return _struct_type(part.message_type, entered, count)


class _Room:
    """Budget for the fields of one value: an empty message in a list takes two bytes, and a cell for each field."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = 0

    def clear(self) -> None:
        """Reset the budget for another value."""
        self._left = MAX_CELLS

    def take(self, fields: int) -> None:
        """Raises ValueError when the budget is exhausted."""
        self._left -= fields
        if self._left < 0:
            raise ValueError(f"its messages have more than {MAX_CELLS:,} fields, absent ones too")


def _reader(message: Descriptor, type_: pa.DataType, room: _Room, entered: frozenset[str] = frozenset()) -> Convert:
    """From a message to a dictionary of the fields of a struct, empty for another type, which it does not fit.

    The struct bounds it, not the message type. `entered`: the messages around it, as in `_struct_type`, so that both
    skip the same fields of messages that contain themselves.
    """
    plan = []
    inside = entered | {message.full_name}
    for column in type_ if pa.types.is_struct(type_) else ():
        part = message.fields_by_name.get(column.name)
        if part is not None and not _is_skipped(part, inside):
            plan.append((column.name, part.has_presence, _converter(part, column.type, room, inside)))

    def read(found: Message) -> dict[str, Any]:
        room.take(len(plan))
        return {
            name: convert(getattr(found, name)) if not has_presence or found.HasField(name) else None
            for name, has_presence, convert in plan
        }

    return read


def _is_skipped(part: FieldDescriptor, entered: frozenset[str]) -> bool:
    one = part.message_type.fields_by_name["value"] if is_map(part) else part
    return one.message_type is not None and _has_no_columns(one.message_type, entered)


def _converter(part: FieldDescriptor, type_: pa.DataType, room: _Room, entered: frozenset[str]) -> Convert:
    """For a column of that type, or of another one, which the result does not fit."""
    if is_map(part):
        inner = type_.item_type if pa.types.is_map(type_) else type_
        value = _single_converter(part.message_type.fields_by_name["value"], inner, room, entered)
        return lambda found: [(key, value(found[key])) for key in found]
    if part.is_repeated:
        inner = type_.value_type if pa.types.is_list(type_) or pa.types.is_large_list(type_) else type_
        single = _single_converter(part, inner, room, entered)
        return lambda found: [single(one) for one in found]
    return _single_converter(part, type_, room, entered)


def _single_converter(part: FieldDescriptor, type_: pa.DataType, room: _Room, entered: frozenset[str]) -> Convert:
    if part.enum_type is not None:
        names = {number: value.name for number, value in part.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    if part.message_type is None:
        return lambda found: found
    if part.message_type.full_name == _TIMESTAMP:
        return lambda found: found.ToDatetime()
    if part.message_type.full_name in _WRAPPERS:
        return lambda found: found.value
    return _reader(part.message_type, type_, room, entered)


@dataclass(slots=True)
class ProtobufDecoder:
    """`descriptor_set` and `message`: the type of all values; without them the registry has the type of each."""

    schema: pa.Schema
    descriptor_set: bytes | None = None
    message: str | None = None
    registry: SchemaRegistry | None = None

    def most_cells(self, values: pa.Array) -> int:
        return most_cells(values, self.schema)

    def decode(self, values: pa.Array) -> DecodedValues:
        """See `Decoder`. Raises OperatorError if the registry does not respond."""
        return decode_rows(values, self.schema, _Reader(self).read)


class _Reader:
    """Message types known in one call of `decode`; they are not picklable."""

    def __init__(self, decoder: ProtobufDecoder) -> None:
        self._decoder = decoder
        self._known: dict[tuple[SchemaId, tuple[int, ...]], tuple[Any, Convert]] = {}
        self._room = _Room()

    def read(self, value: bytes) -> dict[str, Any]:
        number: SchemaId = 0
        indexes: tuple[int, ...] = ()
        start = 0
        if self._decoder.registry is not None:
            number, indexes, start = message_of_value(value)
        known = self._known.get((number, indexes))
        if known is None:
            message = self._find(number, indexes)
            _require_few_in_row(message)
            struct = pa.struct(list(self._decoder.schema))
            known = self._known[number, indexes] = (GetMessageClass(message), _reader(message, struct, self._room))
        make, convert = known
        self._room.clear()
        try:
            return convert(make.FromString(value[start:]))  # type: ignore[no-any-return]
        except (DecodeError, ValueError, OverflowError) as error:
            raise ValueError(f"the value is not a message of its type: {error}") from error

    def _find(self, number: SchemaId, indexes: tuple[int, ...]) -> Descriptor:
        if self._decoder.descriptor_set is not None:
            return message_of_file(self._decoder.descriptor_set, self._decoder.message)
        if self._decoder.registry is None:
            raise ProtobufSchemaError("its schema is missing: neither a descriptor set nor a registry is given")
        return registered_message(self._decoder.registry, number, indexes)
