"""Error codes in a response, in every place where its declaration has them.

Counts every INT16 field named `error_code`, in the response itself and in nested structs of any depth, as Apache Kafka
does. The walk is compiled from the declaration, so no response can omit one and an item costs one comparison. Left out:
the versions of these fields, since a handler only sets those of its version.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from ottla.protocol.schema import INT16, ArrayType, Field, Primitive, schema_of
from ottla.protocol.source import Source

_NAME = "error_code"


def compile_error_codes(response: type) -> Callable[[Any], list[int]]:
    """Return a function from a message to its non-zero error codes, in field order."""
    return _compile(response, stepped=False)


def compile_stepped_error_codes(response: type) -> Callable[[Any], Generator[None, None, list[int]]]:
    """Return the same function in short steps, for large messages."""
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
