"""Compiles a flat writer function for one message class and version, which appends to a bytearray.

A tagged field is written when it differs from its default. A field that the version lacks must have its default unless
it is declared ignorable: dropping it would change the meaning of the message (Kafka's rule). Both that and a null that
the version can't represent raise KafkaError UNSUPPORTED_VERSION. Values of a wrong Python type are errors of the caller
and raise any exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct, pack
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.schema import UNSET, ArrayType, Field, Primitive, schema_of
from ottla.protocol.source import Source, runs, tagged, untagged
from ottla.record.varint import write_unsigned_varint

Writer = Callable[[Any, bytearray], None]
SteppedWriter = Callable[[Any, bytearray], Iterator[None]]

MAX_STRING_BYTES = 0x7FFF
"""Maximum string length that Kafka writes, even in the compact form, which could be longer."""


def _unsupported(name: str, version: int) -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{name} can't be set in version {version}")


def _null(name: str, version: int) -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{name} can't be null in version {version}")


def _too_long(name: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is longer than {MAX_STRING_BYTES} bytes")


def _cut(encoded: bytes) -> bytes:
    """Return the longest prefix that fits a string and ends between two characters."""
    return encoded[:MAX_STRING_BYTES].decode(errors="ignore").encode()


def compile_writer(cls: type, version: int) -> Writer:
    """Return the writer of a message class at one version."""
    return _compile(cls, version, stepped=False)


def compile_stepped_writer(cls: type, version: int) -> SteppedWriter:
    """Return the writer as an iterator, which pauses after each struct of an array: the message must not change
    meanwhile."""
    return _compile(cls, version, stepped=True)


def _compile(cls: type, version: int, *, stepped: bool) -> Callable[..., Any]:
    flexible = version >= schema_of(cls).flexible_from
    namespace: dict[str, Any] = {
        "pack": pack,
        "uvarint": write_unsigned_varint,
        "unsupported": _unsupported,
        "null": _null,
        "too_long": _too_long,
        "cut": _cut,
    }
    compiler = _WriterCompiler(Source(namespace), version, flexible, stepped)
    source = compiler.source
    source.line("def write(m, out):")
    source.indent()
    compiler.emit_struct(cls, "m", "out")
    if stepped:
        source.line("yield")
    source.line("return None")
    return source.compile("write", f"writer of {cls.__name__} v{version}")


class _WriterCompiler:
    """Emits statements that extend a bytearray variable."""

    __slots__ = ("flexible", "source", "stepped", "version")

    def __init__(self, source: Source, version: int, flexible: bool, stepped: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.stepped = stepped

    def emit_struct(self, cls: type, value: str, out: str) -> None:
        fields = schema_of(cls).fields
        for field in fields:
            if self.version not in field.versions and not field.ignorable:
                self.source.line(f"if {self._differs(field, f'{value}.{field.name}')}:")
                self.source.line(f"    raise unsupported({field.name!r}, {self.version})")
        for run in runs(untagged(fields, self.version)):
            if isinstance(run[0].type, Primitive) and run[0].type.size:
                self._emit_fixed(run, value, out)
            else:
                self._emit_variable(run[0], f"{value}.{run[0].name}", out)
        if self.flexible:
            self._emit_tags(fields, value, out)

    def _differs(self, field: Field, value: str) -> str:
        """Return a condition that is true when `value` is not the default of the field."""
        if field.default is UNSET and isinstance(field.type, ArrayType):
            return value
        default = field.make_default()
        if default is None:
            return f"{value} is not None"
        return f"{value} != {self.source.constant('default', default)}"

    def _emit_fixed(self, run: list[Field], value: str, out: str) -> None:
        layout = Struct(">" + "".join(field.type.code for field in run if isinstance(field.type, Primitive)))
        packer = self.source.constant("pack", layout.pack)
        self.source.line(f"{out} += {packer}({', '.join(f'{value}.{field.name}' for field in run)})")

    def _emit_variable(self, field: Field, value: str, out: str) -> None:
        nullable = self.version in field.nullable
        source = self.source
        variable = source.fresh("v")
        source.line(f"{variable} = {value}")
        if not isinstance(field.type, ArrayType | Primitive):
            self._emit_nested(field.type, variable, out, nullable, 255 if field.tag is None else 0)
            return
        width = "h" if isinstance(field.type, Primitive) and field.type.name == "string" else "i"
        source.line(f"if {variable} is None:")
        if nullable:
            absent = b"\0" if self.flexible else pack(">" + width, -1)
            source.line(f"    {out} += {absent!r}")
        else:
            source.line(f"    raise null({field.name!r}, {self.version})")
        source.line("else:")
        source.indent()
        if isinstance(field.type, ArrayType):
            self._emit_array(field, field.type.item, variable, out)
        else:
            self._emit_bytes(field.type, field.name, variable, out)
        source.dedent()

    def _emit_nested(self, cls: type, value: str, out: str, nullable: bool, absent: int) -> None:
        """Write a nested struct; null is the byte `absent`: -1, or zero in a tagged field (see `reader`)."""
        source = self.source
        if not nullable:
            self.emit_struct(cls, value, out)
            return
        source.line(f"if {value} is None:")
        source.line(f"    {out}.append({absent})")
        source.line("else:")
        source.indent()
        source.line(f"{out}.append(1)")
        self.emit_struct(cls, value, out)
        source.dedent()

    def _emit_length(self, size: str, code: str, out: str) -> None:
        source = self.source
        if self.flexible:
            source.line(f"if {size} < 127:")
            source.line(f"    {out}.append({size} + 1)")
            source.line("else:")
            source.line(f"    uvarint({out}, {size} + 1)")
        else:
            packer = source.constant("pack", Struct(">" + code).pack)
            source.line(f"{out} += {packer}({size})")

    def _emit_bytes(self, type_: Primitive, name: str, value: str, out: str) -> None:
        source = self.source
        size = source.fresh("n")
        if type_.name == "string":
            encoded = source.fresh("b")
            source.line(f"{encoded} = {value}.encode()")
            source.line(f"{size} = len({encoded})")
            source.line(f"if {size} > {MAX_STRING_BYTES}:")
            if name.endswith("error_message"):
                source.line(f"    {encoded} = cut({encoded})")
                source.line(f"    {size} = len({encoded})")
            else:
                source.line(f"    raise too_long({name!r})")
            self._emit_length(size, "h", out)
            source.line(f"{out} += {encoded}")
        else:
            source.line(f"{size} = len({value})")
            self._emit_length(size, "i", out)
            source.line(f"{out} += {value}")

    def _emit_array(self, field: Field, item: Primitive | type, value: str, out: str) -> None:
        source = self.source
        size, element = source.fresh("n"), source.fresh("e")
        source.line(f"{size} = len({value})")
        self._emit_length(size, "i", out)
        if isinstance(item, Primitive) and item.size and item.code != "16s":
            source.line(f'{out} += pack(f">{{{size}}}{item.code}", *{value})')
            return
        source.line(f"for {element} in {value}:")
        source.indent()
        if not isinstance(item, Primitive):
            self.emit_struct(item, element, out)
            if self.stepped:
                source.line("yield")
        elif item.size:
            source.line(f"{out} += {element}")
        else:
            self._emit_bytes(item, field.name, element, out)
        source.dedent()

    def _emit_tags(self, fields: tuple[Field, ...], value: str, out: str) -> None:
        """The tag section: count, then tag, size and value of every field that differs from its default."""
        source = self.source
        present = tagged(fields, self.version)
        if not present:
            source.line(f"{out}.append(0)")
            return
        count, section = source.fresh("k"), source.fresh("s")
        source.line(f"{count} = 0")
        source.line(f"{section} = bytearray()")
        for field in present:
            body = source.fresh("o")
            source.line(f"if {self._differs(field, f'{value}.{field.name}')}:")
            source.indent()
            source.line(f"{count} += 1")
            source.line(f"{body} = bytearray()")
            if isinstance(field.type, Primitive) and field.type.size:
                self._emit_fixed([field], value, body)
            else:
                self._emit_variable(field, f"{value}.{field.name}", body)
            source.line(f"uvarint({section}, {field.tag})")
            source.line(f"uvarint({section}, len({body}))")
            source.line(f"{section} += {body}")
            source.dedent()
        source.line(f"uvarint({out}, {count})")
        source.line(f"{out} += {section}")
