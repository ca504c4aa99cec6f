"""The error codes that a response carries, wherever its declaration has them.

Every INT16 field of the name `error_code` counts, of the response itself and of the structs in it at whatever depth, as
Apache Kafka counts them. The walk is compiled from the declaration, so a response can't forget one and an item costs
one comparison. Left out: which of the fields a version carries, since a handler sets those of its version only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from ottla.protocol.schema import INT16, ArrayType, Field, Primitive, schema_of
from ottla.protocol.source import Source

_NAME = "error_code"


def compile_error_codes(response: type) -> Callable[[Any], list[int]]:
    """A function from a message of this class to the error codes in it that are not 0, in the order of its fields."""
    return _compile(response, stepped=False)


def compile_stepped_error_codes(response: type) -> Callable[[Any], Generator[None, None, list[int]]]:
    """The same in short steps, for messages that are large."""
    return _compile(response, stepped=True)


def _compile(response: type, *, stepped: bool) -> Callable[[Any], Any]:
    source = Source({})
    source.line("def error_codes(message):")
    source.indent()
    source.line("found = []")
    _walk(source, response, "message", stepped)
    if stepped:
        source.line("yield")
    source.line("return found")
    return source.compile("error_codes", f"error codes of {response.__name__}")


def _walk(source: Source, cls: type, variable: str, stepped: bool) -> None:
    for field in schema_of(cls).fields:
        if field.name == _NAME and field.type is INT16:
            source.line(f"if {variable}.{_NAME}:")
            source.indent()
            source.line(f"found.append({variable}.{_NAME})")
            source.dedent()
            continue
        inner = _struct_of(field)
        if inner is None or not _has_error_codes(inner):
            continue
        nested = source.fresh("item")
        if isinstance(field.type, ArrayType):
            source.line(f"for {nested} in {variable}.{field.name} or ():")
        else:
            source.line(f"{nested} = {variable}.{field.name}")
            source.line(f"if {nested} is not None:")
        source.indent()
        _walk(source, inner, nested, stepped)
        if stepped:
            source.line("yield")
        source.dedent()


def _struct_of(field: Field) -> type | None:
    kind = field.type.item if isinstance(field.type, ArrayType) else field.type
    return None if isinstance(kind, Primitive) else kind


def _has_error_codes(cls: type) -> bool:
    for field in schema_of(cls).fields:
        inner = _struct_of(field)
        if field.name == _NAME or (inner is not None and _has_error_codes(inner)):
            return True
    return False
