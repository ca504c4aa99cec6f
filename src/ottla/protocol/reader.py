"""Compiles a flat reader function for one message class and version.

Invariants of the emitted code:

- `data` contains exactly the readable bytes, so `struct` and indexing fail at its end. Every length and count is
  compared with the remaining bytes before a slice or a list is created from it.
- `budget` limits the elements and tagged fields of one message, so that a small frame can't become many objects or
  much work (CVE-2026-111108, CVE-2026-111115). Unknown tagged fields are skipped, never stored.
- A null in a field that is not nullable is an error.

Nested structs are inlined: Kafka has no recursive ones.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import Struct, unpack_from
from typing import Any

from ottla.common.errors import ProtocolError
from ottla.protocol.schema import UNSET, ArrayType, Field, Primitive, schema_of
from ottla.protocol.source import Source, minimum_size, runs, tagged, untagged
from ottla.protocol.writer import MAX_STRING_BYTES
from ottla.record.varint import read_unsigned_varint

Reader = Callable[[bytes, int], tuple[Any, int]]
"""Takes the bytes and the element budget, returns the message and the number of consumed bytes."""
SteppedReader = Callable[[bytes, int], Generator[None, None, tuple[Any, int]]]
InPlaceReader = Callable[[memoryview, int], tuple[Any, int]]

MAX_STRUCT_TAGGED_FIELDS = 10_000
"""Limit for the tag section of one struct, as in Apache Kafka from 4.4 on; the budget limits those of a whole
message."""


def _null(name: str) -> ProtocolError:
    return ProtocolError(f"{name} is null, which this version does not allow")


def _exceeds(name: str) -> ProtocolError:
    return ProtocolError(f"the length of {name} exceeds the remaining bytes")


def _too_long(name: str) -> ProtocolError:
    return ProtocolError(f"{name} is longer than {MAX_STRING_BYTES} bytes")


def _exhausted() -> ProtocolError:
    return ProtocolError("the message has more elements than allowed")


def compile_reader(cls: type, version: int) -> Reader:
    """Return the reader of a message class at one version."""
    return _compile(cls, version)


def compile_in_place_reader(cls: type, version: int) -> InPlaceReader:
    """Return the reader of a view, whose records are views of the same memory."""
    return _compile(cls, version, in_place=True)


def compile_stepped_reader(cls: type, version: int) -> SteppedReader:
    """Return the reader as a generator, which pauses after each element of an array."""
    return _compile(cls, version, stepped=True)


def _compile(cls: type, version: int, *, stepped: bool = False, in_place: bool = False) -> Callable[..., Any]:
    flexible = version >= schema_of(cls).flexible_from
    namespace: dict[str, Any] = {
        "unpack_from": unpack_from,
        "uvarint": read_unsigned_varint,
        "null": _null,
        "exceeds": _exceeds,
        "too_long": _too_long,
        "exhausted": _exhausted,
        "ProtocolError": ProtocolError,
    }
    compiler = _ReaderCompiler(Source(namespace), version, flexible, stepped, in_place)
    source = compiler.source
    source.line("def read(data, budget):")
    source.indent()
    source.line("end = len(data)")
    source.line("p = 0")
    target = compiler.emit_struct(cls)
    if stepped:
        source.line("yield")
    source.line(f"return {target}, p")
    return source.compile("read", f"reader of {cls.__name__} v{version}")


class _ReaderCompiler:
    """Emits statements that advance `p`."""

    __slots__ = ("flexible", "in_place", "source", "stepped", "version")

    def __init__(self, source: Source, version: int, flexible: bool, stepped: bool, in_place: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.stepped = stepped
        self.in_place = in_place
        """Whether `data` is a memoryview, otherwise it is bytes."""

    def emit_struct(self, cls: type) -> str:
        """Read a struct; return the variable that contains it."""
        source = self.source
        fields = schema_of(cls).fields
        target = source.fresh("m")
        name = source.constant("cls", cls)
        source.line(f"{target} = {name}.__new__({name})")
        in_body = untagged(fields, self.version)
        for field in fields:
            if field not in in_body:
                source.line(f"{target}.{field.name} = {self._default(field)}")
        for run in runs(in_body):
            if isinstance(run[0].type, Primitive) and run[0].type.size:
                self._emit_fixed(run, target)
            else:
                self._emit_variable(run[0], f"{target}.{run[0].name}")
        if self.flexible:
            self._emit_tags(fields, target)
        return target

    def _default(self, field: Field) -> str:
        if field.default is UNSET and isinstance(field.type, ArrayType):
            return "[]"
        if field.default is UNSET and not isinstance(field.type, Primitive):
            return f"{self.source.constant('cls', field.type)}()"
        return self.source.constant("default", field.make_default())

    def _emit_fixed(self, run: list[Field], target: str) -> None:
        """Read adjacent fields of fixed size by one `struct` call, which fails at the end of data."""
        layout = Struct(">" + "".join(field.type.code for field in run if isinstance(field.type, Primitive)))
        unpack = self.source.constant("unpack", layout.unpack_from)
        names = ", ".join(f"{target}.{field.name}" for field in run)
        self.source.line(f"{names}{',' if len(run) == 1 else ''} = {unpack}(data, p)")
        self.source.line(f"p += {layout.size}")

    def _emit_variable(self, field: Field, target: str) -> None:
        nullable = self.version in field.nullable
        if isinstance(field.type, ArrayType):
            self._emit_array(field, field.type.item, target, nullable)
        elif isinstance(field.type, Primitive):
            self._emit_bytes(field.type, field.name, target, nullable)
        elif nullable:
            self._emit_nullable_struct(field.type, target, tagged=field.tag is not None)
        else:
            self.source.line(f"{target} = {self.emit_struct(field.type)}")

    def _emit_nullable_struct(self, cls: type, target: str, *, tagged: bool) -> None:
        """A marker byte before the struct: negative for null (KIP-893), zero for null in a tagged field."""
        source = self.source
        source.line("p += 1")
        source.line("if data[p - 1] == 0:" if tagged else "if data[p - 1] > 127:")
        source.line(f"    {target} = None")
        source.line("else:")
        source.indent()
        source.line(f"{target} = {self.emit_struct(cls)}")
        source.dedent()

    def _emit_uvarint(self, variable: str) -> None:
        """Read an unsigned varint; the one-byte case is inline, because it is the usual one."""
        source = self.source
        source.line(f"{variable} = data[p]")
        source.line("p += 1")
        source.line(f"if {variable} > 127:")
        source.line(f"    {variable}, p = uvarint(data, p - 1, end)")

    def _emit_length(self, variable: str, code: str, string: str = "") -> None:
        """Read a length or count; null becomes a negative number, also in the compact form.

        `string` is the name of a string field: the compact form could exceed the maximum length, which Apache Kafka's
        reader rejects too.
        """
        if self.flexible:
            self._emit_uvarint(variable)
            if string:
                # In the branch for lengths of several bytes: one-byte lengths cost nothing.
                self.source.line(f"    if {variable} > {MAX_STRING_BYTES + 1}:")
                self.source.line(f"        raise too_long({string!r})")
            self.source.line(f"{variable} -= 1")
        else:
            layout = Struct(">" + code)
            unpack = self.source.constant("unpack", layout.unpack_from)
            self.source.line(f"{variable}, = {unpack}(data, p)")
            self.source.line(f"p += {layout.size}")

    def _emit_null_case(self, variable: str, name: str, target: str, nullable: bool) -> None:
        """Emit the branch for a negative length; the caller continues after `else:`."""
        source = self.source
        source.line(f"if {variable} < 0:")
        if nullable:
            source.line(f"    {target} = None")
        else:
            source.line(f"    raise null({name!r})")
        source.line("else:")

    def _emit_bytes(self, type_: Primitive, name: str, target: str, nullable: bool) -> None:
        source = self.source
        size = source.fresh("n")
        is_string = type_.name == "string"
        self._emit_length(size, "h" if is_string else "i", name if is_string else "")
        self._emit_null_case(size, name, target, nullable)
        source.indent()
        source.line(f"q = p + {size}")
        source.line("if q > end:")
        source.line(f"    raise exceeds({name!r})")
        # Records are most of their message and are not copied again: a view of bytes never changes.
        if self.in_place:
            piece = {"string": "str(data[p:q], 'utf-8')", "records": "data[p:q]"}.get(type_.name, "bytes(data[p:q])")
        else:
            piece = {"string": "data[p:q].decode()", "records": "memoryview(data)[p:q]"}.get(type_.name, "data[p:q]")
        source.line(f"{target} = {piece}")
        source.line("p = q")
        source.dedent()

    def _emit_array(self, field: Field, item: Primitive | type, target: str, nullable: bool) -> None:
        source = self.source
        count, items = source.fresh("n"), source.fresh("a")
        self._emit_length(count, "i")
        self._emit_null_case(count, field.name, target, nullable)
        source.indent()
        smallest = minimum_size(item, self.version, flexible=self.flexible)
        source.line(f"if {count} * {smallest} > end - p:")
        source.line(f"    raise exceeds({field.name!r})")
        source.line(f"budget -= {count}")
        source.line("if budget < 0:")
        source.line("    raise exhausted()")
        if isinstance(item, Primitive) and item.size:
            uuid = "bytes(data[q : q + 16])" if self.in_place else "data[q : q + 16]"
            source.line(
                f'{target} = list(unpack_from(f">{{{count}}}{item.code}", data, p)) if {count} else []'
                if item.code != "16s"
                else f"{target} = [{uuid} for q in range(p, p + {count} * 16, 16)]"
            )
            source.line(f"p += {count} * {item.size}")
        else:
            source.line(f"{target} = {items} = []")
            source.line(f"for _ in range({count}):")
            source.indent()
            if isinstance(item, Primitive):
                element = source.fresh("v")
                self._emit_bytes(item, field.name, element, nullable=False)
            else:
                element = self.emit_struct(item)
            source.line(f"{items}.append({element})")
            if self.stepped:
                source.line("yield")
            source.dedent()
        source.dedent()

    def _emit_tags(self, fields: tuple[Field, ...], target: str) -> None:
        """The tag section: known fields must fill their announced size exactly, unknown ones are skipped."""
        source = self.source
        count, tag, stop = source.fresh("n"), source.fresh("t"), source.fresh("q")
        self._emit_uvarint(count)
        source.line(f"if {count}:")
        source.indent()
        source.line(f"if {count} * 2 > end - p or {count} > {MAX_STRUCT_TAGGED_FIELDS}:")
        source.line("    raise exceeds('the tagged fields')")
        source.line(f"budget -= {count}")
        source.line("if budget < 0:")
        source.line("    raise exhausted()")
        source.line(f"for _ in range({count}):")
        source.indent()
        self._emit_uvarint(tag)
        self._emit_uvarint(stop)
        source.line(f"{stop} += p")
        source.line(f"if {stop} > end:")
        source.line("    raise exceeds('a tagged field')")
        keyword = "if"
        for field in tagged(fields, self.version):
            source.line(f"{keyword} {tag} == {field.tag}:")
            source.indent()
            if isinstance(field.type, Primitive) and field.type.size:
                self._emit_fixed([field], target)
            else:
                self._emit_variable(field, f"{target}.{field.name}")
            source.line(f"if p != {stop}:")
            source.line(f"    raise ProtocolError({f'the tagged field {field.name} has the wrong size'!r})")
            source.dedent()
            keyword = "elif"
        source.line(f"p = {stop}")
        source.dedent()
        source.dedent()
