"""The most expensive legal requests of each API, built from the declarations of their messages.

A new API is in the table of `ottla.protocol.registry` before it can be served, so it is included automatically. A
request names as many objects as a broker accepts: `flat` in the list at its top, `deep` in the lists below one object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.protocol.registry import API, ApiSpec
from ottla.protocol.schema import ArrayType, Field, Primitive, schema_of

ELEMENTS = 19_000
"""Just below the limit of a small broker (`server.requests.request_limits`)."""


class Expensive(NamedTuple):
    """One request."""

    name: str
    api_key: int
    version: int
    message: Any


def expensive_requests(elements: int = ELEMENTS) -> Iterator[Expensive]:
    """Yields for each API in the table its plain request, and one for each of its lists."""
    for spec in sorted(API.values(), key=lambda each: each.key):
        yield Expensive(f"{spec.name}/plain", spec.key, spec.max_version, spec.request())
        for kind in ("flat", "same", "deep"):
            for field in _lists(spec.request, spec.max_version):
                message = _message(spec, field, kind, elements)
                if message is not None:
                    yield Expensive(f"{spec.name}/{field.name}/{kind}", spec.key, spec.max_version, message)


def _lists(cls: type, version: int) -> list[Field]:
    return [field for field in schema_of(cls).fields if isinstance(field.type, ArrayType) and version in field.versions]


def _message(spec: ApiSpec, field: Field, kind: str, elements: int) -> Any:
    message = spec.request()
    assert isinstance(field.type, ArrayType)
    item = field.type.item
    if kind == "deep":
        if isinstance(item, Primitive) or not _lists(item, spec.max_version):
            return None
        one = _item(item, 0, spec.max_version)
        for inner in _lists(item, spec.max_version):
            assert isinstance(inner.type, ArrayType)
            inner_item = inner.type.item
            setattr(one, inner.name, [_item(inner_item, number, spec.max_version) for number in range(elements)])
        setattr(message, field.name, [one])
    else:
        numbers = range(elements) if kind == "flat" else [0] * elements
        setattr(message, field.name, [_item(item, number, spec.max_version) for number in numbers])
    return message


def _item(item: Primitive | type, number: int, version: int) -> Any:
    if isinstance(item, Primitive):
        return _value(item, number)
    made = item()
    named = False
    for field in schema_of(item).fields:
        if version not in field.versions or not isinstance(field.type, Primitive):
            continue
        text = field.type.name == "string"
        if text or (not named and field.type.name in ("int32", "uuid")):
            setattr(made, field.name, _value(field.type, number))
            named = True
    return made


def _value(kind: Primitive, number: int) -> Any:
    if kind.name == "string":
        return f"name-{number}"
    if kind.code == "16s":
        return number.to_bytes(16, "big")
    if kind.size:
        return number % 100
    return b""
