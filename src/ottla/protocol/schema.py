"""Declaration of Kafka messages: one class per struct for all of its versions.

A struct is a class with annotated attributes that have a field specification:

    @struct
    class CreatableTopicConfig:
        name: str = f(STRING, "0+")
        value: str | None = f(STRING, "0+", nullable="0+")

`@message` declares a top-level struct, which also has its versions and the first flexible version (KIP-482); nested
structs follow their message. The decorators build a class with `__slots__`, a keyword-only constructor in which every
field has a default, equality and a repr. They are not dataclasses: building several hundred dataclasses would cost a
tenth of the broker's start-up time, so constructors are compiled on first use.

Python types: integers int, floats float, strings str, uuids 16 bytes, bytes and records any buffer (when read: bytes,
and a view of the message's own bytes), arrays list.

This module only describes; `ottla.protocol.codec` reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from ottla.common.errors import InvariantError
from ottla.common.kafka.ids import ZERO_UUID

T = TypeVar("T")

LATEST = 1 << 15
"""The upper end of an open version range; API versions are 16-bit."""


class Versions(NamedTuple):
    """An inclusive range of versions; empty when `low > high`."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high


NO_VERSIONS = Versions(0, -1)


@cache
def parse_versions(text: str) -> Versions:
    """Parse Kafka's notation: "3", "1-4", "2+", and "" for none."""
    if not text:
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), LATEST)
    low, _, high = text.partition("-")
    return Versions(int(low), int(high or low))


class Primitive(NamedTuple):
    """A type without inner structure; `code` is its `struct` format, empty for a variable size."""

    name: str
    code: str
    size: int
    default: Any


BOOL = Primitive("bool", "?", 1, False)
INT8 = Primitive("int8", "b", 1, 0)
INT16 = Primitive("int16", "h", 2, 0)
UINT16 = Primitive("uint16", "H", 2, 0)
INT32 = Primitive("int32", "i", 4, 0)
INT64 = Primitive("int64", "q", 8, 0)
FLOAT64 = Primitive("float64", "d", 8, 0.0)
UUID = Primitive("uuid", "16s", 16, ZERO_UUID)
STRING = Primitive("string", "", 0, "")
BYTES = Primitive("bytes", "", 0, b"")
RECORDS = Primitive("records", "", 0, None)


class ArrayType(NamedTuple):
    """A list of primitives or of structs."""

    item: Primitive | type


def array(item: Primitive | type) -> ArrayType:
    """The type of an array field."""
    return ArrayType(item)


FieldType = Primitive | ArrayType | type
UNSET: Any = object()


class Field(NamedTuple):
    """One field of a struct in all its versions. `tag` is None if it is never a tagged field."""

    name: str
    type: FieldType
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    default: Any
    ignorable: bool

    def make_default(self) -> Any:
        """Return a new default: lists and structs are never shared between messages."""
        if self.default is not UNSET:
            return self.default
        if isinstance(self.type, ArrayType):
            return []
        if isinstance(self.type, Primitive):
            return self.type.default
        return self.type()


class _FieldSpec(NamedTuple):
    """A field specification before the field has a name."""

    type: FieldType
    versions: str
    nullable: str
    tag: int | None
    default: Any
    ignorable: bool

    def named(self, name: str) -> Field:
        """Return the field with that name."""
        return Field(
            name,
            self.type,
            parse_versions(self.versions),
            parse_versions(self.nullable),
            self.tag,
            parse_versions("" if self.tag is None else self.versions),
            self.default,
            self.ignorable,
        )


def f(
    type_: FieldType,
    versions: str,
    *,
    nullable: str = "",
    tag: int | None = None,
    default: Any = UNSET,
    ignorable: bool = False,
) -> Any:
    """Declare a field.

    `versions` and `nullable` are version ranges; a field with a `tag` is a tagged one in all of its versions.
    `ignorable`: a value that the written version can't represent is dropped silently instead of failing the write.
    """
    return _FieldSpec(type_, versions, nullable, tag, default, ignorable)


class Schema:
    """Declaration of a struct for the compilers; `flexible_from` and `versions` apply to messages only.

    `readers`, `writers` and their stepped forms belong to `ottla.protocol.codec`: compiled functions by version.
    """

    __slots__ = (
        "_fields",
        "_names",
        "_specs",
        "api_key",
        "flexible_from",
        "readers",
        "stepped_readers",
        "stepped_writers",
        "versions",
        "writers",
    )

    def __init__(
        self,
        names: tuple[str, ...],
        specs: tuple[_FieldSpec, ...],
        versions: Versions,
        flexible_from: int,
        api_key: int | None,
    ) -> None:
        self._names = names
        self._specs = specs
        self._fields: tuple[Field, ...] | None = None
        self.versions = versions
        self.flexible_from = flexible_from
        self.api_key = api_key
        self.readers: dict[int, Callable[[bytes, int], tuple[Any, int]]] = {}
        self.writers: dict[int, Callable[[Any, bytearray], None]] = {}
        self.stepped_readers: dict[int, Callable[[bytes, int], Generator[None, None, tuple[Any, int]]]] = {}
        self.stepped_writers: dict[int, Callable[[Any, bytearray], Iterator[None]]] = {}

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields in declaration order; created on first use, since a start needs those of few messages."""
        if self._fields is None:
            self._fields = tuple(spec.named(name) for name, spec in zip(self._names, self._specs, strict=True))
        return self._fields


class _Struct:
    """Base of the built classes."""

    __slots__: tuple[str, ...] = ()
    __schema__: Schema

    def __init__(self, **values: Any) -> None:
        """Compile the constructor of this class, then run it."""
        cls = type(self)
        constructor = _compile_constructor(cls.__schema__.fields)
        cls.__init__ = constructor  # type: ignore[method-assign]
        constructor(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"


def _compile_constructor(fields: tuple[Field, ...]) -> Callable[..., None]:
    """Compile an `__init__` with one keyword parameter for each field; mutable defaults are created at each call."""
    namespace: dict[str, Any] = {"UNSET": UNSET}
    parameters = ["self"]
    body = []
    for index, field in enumerate(fields):
        name = field.name
        if field.default is UNSET and not isinstance(field.type, Primitive):
            namespace[f"make_{index}"] = list if isinstance(field.type, ArrayType) else field.type
            parameters.append(f"{name}=UNSET")
            body.append(f"    self.{name} = make_{index}() if {name} is UNSET else {name}")
        else:
            namespace[f"default_{index}"] = field.make_default()
            parameters.append(f"{name}=default_{index}")
            body.append(f"    self.{name} = {name}")
    if fields:
        parameters.insert(1, "*")
    source = f"def __init__({', '.join(parameters)}):\n" + "\n".join(body or ["    pass"])
    exec(source, namespace)
    constructor: Callable[..., None] = namespace["__init__"]
    return constructor


def _build(cls: type[T], versions: str, flexible: str, api_key: int | None) -> type[T]:
    names = tuple(cls.__annotations__)
    specs = []
    for name in names:
        spec = cls.__dict__.get(name)
        if not isinstance(spec, _FieldSpec):
            raise InvariantError(f"{cls.__name__}.{name} has no field specification")
        specs.append(spec)
    flexible_range = parse_versions(flexible)
    flexible_from = flexible_range.low if flexible else LATEST + 1
    schema = Schema(names, tuple(specs), parse_versions(versions), flexible_from, api_key)
    attributes = {
        "__slots__": names,
        "__schema__": schema,
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
    }
    built: Any = type(cls.__name__, (_Struct,), attributes)
    return built  # type: ignore[no-any-return]


@dataclass_transform(kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Build the class of a nested struct."""
    return _build(cls, "", "", None)


@dataclass_transform(kw_only_default=True)
def message(versions: str, *, flexible: str = "", api_key: int | None = None) -> Callable[[type[T]], type[T]]:
    """Build the class of a top-level message with its `versions`, `flexible` from some version on ("9+").

    `api_key` is given for metadata-log records only, which have it in their own framing.
    """
    return lambda cls: _build(cls, versions, flexible, api_key)


def schema_of(cls: type) -> Schema:
    """Return the schema of a declared class; raises InvariantError for any other class."""
    schema = getattr(cls, "__schema__", None)
    if not isinstance(schema, Schema):
        raise InvariantError(f"{cls.__name__} is not a declared struct")
    return schema
