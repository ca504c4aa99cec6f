"""Decoders of Avro, Protobuf and JSON with the schemas of a registry or of a file.

The registry is asked once for each id. If it does not respond, it is not asked again by this search: all records that
need it are then undecoded, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

from ottla.common.errors import OperatorError
from ottla.common.extras import require_packages
from ottla.schemas.ids import KEY_HEADER, VALUE_HEADER, SchemaId, id_length, schema_id
from ottla.schemas.registry import RegistryUnreachable, SchemaRegistry
from ottla.schemas.settings import SchemaFile, SchemaSettings
from ottla.search.decoder_names import AVRO, PROTOBUF, REGISTRY
from ottla.search.decoders import (
    Decoded,
    PlainDecoder,
    RecordParts,
    Undecodable,
    ValueDecoder,
    decode_json,
    exact_double,
    exact_float,
)

EXTRA = "ottla[search]"
MAX_FIELDS_OF_VALUE = 1 << 20
"""Maximum fields of a decoded Protobuf message: an empty message in a list has two bytes, but all of its fields."""
MAX_KNOWN_SCHEMAS = 10_000
MAX_FAILURES = 200
"""Bound of the ids without a usable schema that a search requests; data could name ever new ones."""
_PACKAGES = {AVRO: {"fastavro": "fastavro"}, PROTOBUF: {"google.protobuf": "protobuf"}}
_JSON = "json"

Reader = Callable[[bytes, int], object]
"""Reads a value that begins at a position. Raises ValueError."""


def open_schema_decoder(name: str, settings: SchemaSettings | None, *, is_key: bool) -> ValueDecoder:
    """A decoder of `avro`, `protobuf` or `registry`. Raises OperatorError without a schema or a package."""
    settings = settings or SchemaSettings()
    file = settings.key if is_key else settings.value
    option = "--key-schema" if is_key else "--schema"
    if name != REGISTRY:
        _require(name)
    if name != REGISTRY and file is not None:
        read = _reader_of_file(name, file, option)
        return PlainDecoder(name, lambda data, record: _read(read, data, 0))
    if settings.registry is None:
        subject = "keys" if is_key else "values"
        from_file = "" if name == REGISTRY else f"{option} FILE, or "
        raise OperatorError(f"the decoder {name} needs the schema of {subject}: add {from_file}--schema-registry URL")
    return RegistryDecoder(settings.registry, is_key=is_key, kind=None if name == REGISTRY else name)


def _require(kind: str) -> None:
    require_packages(f"the decoder {kind} needs", _PACKAGES.get(kind, {}), EXTRA)


def _reader_of_file(kind: str, file: SchemaFile, option: str) -> Reader:
    try:
        if kind == AVRO:
            from ottla.schemas.avro import writer_of_text

            return _avro_reader(writer_of_text(file.content.decode("utf-8", "replace")))
        from ottla.schemas.protobuf import message_of_file

        return _protobuf_reader(message_of_file(file.content, file.message))
    except ValueError as error:
        raise OperatorError(f"the schema of {option} can't be used: {error}") from error


class RegistryDecoder:
    """Decodes by the schema whose id is in front of the data or in a header of its record."""

    is_verbatim = False

    def __init__(self, registry: SchemaRegistry, *, is_key: bool, kind: str | None = None) -> None:
        """`kind`: the only type of schema to accept."""
        self._registry = registry
        self._header = KEY_HEADER if is_key else VALUE_HEADER
        self._kind = kind
        self._kinds: dict[SchemaId, str] = {}
        self._readers: dict[tuple[SchemaId, tuple[int, ...]], Reader] = {}
        self._failures: dict[object, str] = {}
        self._outage: str | None = None

    def has_id(self, data: bytes, record: RecordParts) -> bool:
        """See `RegisteredDecoder`."""
        try:
            return bool(id_length(self._front(data, record)))
        except ValueError:
            return False

    def decode(self, data: bytes, record: RecordParts) -> Decoded:
        """See `ValueDecoder`."""
        front = self._front(data, record)
        used, shown = self._kind or REGISTRY, None
        try:
            number = schema_id(front)
            shown = number if isinstance(number, int) else str(number)
            used = self._kind_of(number)
            indexes, start = _indexes(front) if used == PROTOBUF else ((), id_length(front))
            reader = self._reader(used, number, indexes)
            return Decoded(_read(reader, data, start if front is data else 0), used, None, shown)
        except ValueError as error:
            return Decoded(data, used, str(error), shown)

    def _front(self, data: bytes, record: RecordParts) -> bytes:
        """The bytes that begin with the id: the last header of the name, otherwise the data."""
        for name, value in reversed(record.headers):
            if name == self._header and value is not None:
                return value
        return data

    def _kind_of(self, number: SchemaId) -> str:
        found = self._kinds.get(number)
        if found is None:
            found = self._known(number, lambda: self._registry.schema(number)).kind.lower()
            if self._kind is not None and found != self._kind:
                raise Undecodable(f"schema {number} in the registry is of type {found}, not {self._kind}")
            if found != _JSON and found not in _PACKAGES:
                raise Undecodable(f"schema {number} in the registry is of type {found}, which is unknown")
            _keep(self._kinds, number, found)
        return found

    def _reader(self, kind: str, number: SchemaId, indexes: tuple[int, ...]) -> Reader:
        key = number, indexes
        found = self._readers.get(key)
        if found is None:
            found = self._known(key, lambda: self._opened(kind, number, indexes))
            _keep(self._readers, key, found)
        return found

    def _opened(self, kind: str, number: SchemaId, indexes: tuple[int, ...]) -> Reader:
        if kind == _JSON:
            return lambda data, start: decode_json(data[start:])
        _require(kind)
        if kind == AVRO:
            from ottla.schemas.avro import texts_of_registered, writer_of_text

            return _avro_reader(writer_of_text(*texts_of_registered(self._registry, self._registry.schema(number))))
        from ottla.schemas.protobuf import registered_message

        return _protobuf_reader(registered_message(self._registry, number, indexes))

    def _known(self, key: object, find: Callable[[], Any]) -> Any:
        """The result of `find`, which uses the registry. Raises Undecodable, at once if it failed before."""
        failure = self._outage or self._failures.get(key)
        if failure is None and len(self._failures) >= MAX_FAILURES:
            failure = f"{MAX_FAILURES} other ids have no usable schema, so no more schemas are requested"
        if failure is not None:
            raise Undecodable(failure)
        try:
            return find()
        except RegistryUnreachable as error:
            self._outage = failure = error.reason
        except (ValueError, OperatorError) as error:
            failure = str(error)
            self._failures[key] = failure
        raise Undecodable(failure)


def _keep(known: dict[Any, Any], key: object, value: object) -> None:
    """Cache a value; data could name ever new ids."""
    if len(known) >= MAX_KNOWN_SCHEMAS:
        known.clear()
    known[key] = value


def _indexes(front: bytes) -> tuple[tuple[int, ...], int]:
    _require(PROTOBUF)
    from ottla.schemas.protobuf import message_indexes

    return message_indexes(front, id_length(front))


def _read(read: Reader, data: bytes, start: int) -> object:
    try:
        return read(data, start)
    except RecursionError:
        raise Undecodable("the value is nested too deeply") from None
    except (ValueError, OverflowError) as error:
        raise Undecodable(str(error)) from None


# Avro


def _avro_reader(writer: Any) -> Reader:
    return lambda data, start: _plain_avro(writer.read(data, start))


def _plain_avro(value: Any) -> object:
    if isinstance(value, dict):
        return {name: _plain_avro(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain_avro(each) for each in value]
    if isinstance(value, float):
        return exact_double(value)
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, date) else value  # datetime is a date


# Protobuf


def _protobuf_reader(message: Any) -> Reader:
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    from ottla.schemas.protobuf import require_few_in_row

    require_few_in_row(message)
    make = GetMessageClass(message)

    def read(data: bytes, start: int) -> object:
        try:
            found = make.FromString(data[start:])
        except DecodeError as error:
            raise Undecodable(f"the value is not a message of {message.full_name}: {error}") from None
        return _MessageReader().plain(found)

    return read


class _MessageReader:
    """Converts one message: fields with presence only if present, others with their default."""

    def __init__(self) -> None:
        self._fields = 0

    def plain(self, message: Any) -> dict[str, object]:
        self._fields += len(message.DESCRIPTOR.fields)
        if self._fields > MAX_FIELDS_OF_VALUE:
            raise Undecodable(f"its messages have more than {MAX_FIELDS_OF_VALUE:,} fields, absent ones too")
        return {
            field.name: self._field(field, getattr(message, field.name))
            for field in message.DESCRIPTOR.fields
            if not field.has_presence or message.HasField(field.name)
        }

    def _field(self, field: Any, value: Any) -> object:
        from ottla.schemas.protobuf import is_map

        if is_map(field):
            inner = field.message_type.fields_by_name["value"]
            return {str(key): self._single(inner, value[key]) for key in value}
        if field.is_repeated:
            return [self._single(field, each) for each in value]
        return self._single(field, value)

    def _single(self, field: Any, value: Any) -> object:
        if field.message_type is not None:
            if field.message_type.full_name == "google.protobuf.Timestamp":
                return value.ToJsonString()
            if field.message_type.file.name == "google/protobuf/wrappers.proto":
                return self._single(field.message_type.fields_by_name["value"], value.value)
            return self.plain(value)
        if field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            return str(value) if known is None else known.name
        if isinstance(value, float):
            return exact_float(value) if field.cpp_type == field.CPPTYPE_FLOAT else exact_double(value)
        return value.hex() if isinstance(value, bytes) else value
