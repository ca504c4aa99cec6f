"""Strategies that build any declared message from its schema, for every test of this directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.list_offsets import KEY_TAG
from ottla.protocol.schema import ArrayType, Field, Primitive, schema_of

MessageStrategy = Callable[[type, int], st.SearchStrategy[Any]]

KIO_CODES = frozenset(code.value for code in KioErrorCode)
"""Codes that kio reads; it doesn't know those of Apache Kafka 4.4."""

_TOKEN_TIMES = {f"{which}_timestamp{unit}" for which in ("issue", "expiry", "max") for unit in ("", "_ms")}
"""Times of delegation tokens, which kio stores as datetimes, and none before 1970."""
_DURATIONS = frozenset(
    {"expiry_time_period_ms", "max_lifetime_ms", "renew_period_ms", "retention_time_ms", "session_lifetime_ms"}
)
"""Fields that kio stores as a timedelta, which loses milliseconds in very long times."""
_INTEGERS = {"int8": (8, True), "int16": (16, True), "uint16": (16, False), "int32": (32, True), "int64": (64, True)}


def _primitive(type_: Primitive) -> st.SearchStrategy[Any]:
    if type_.name in _INTEGERS:
        bits, signed = _INTEGERS[type_.name]
        low = -(1 << bits - 1) if signed else 0
        return st.one_of(st.integers(-1 if signed else 0, 3), st.integers(low, low + (1 << bits) - 1))
    if type_.name == "float64":
        return st.floats(allow_nan=False)
    if type_.name == "bool":
        return st.booleans()
    if type_.name == "uuid":
        return st.binary(min_size=16, max_size=16)
    if type_.name == "string":
        return st.one_of(st.text(max_size=8), st.sampled_from(["topic", "a" * 126, "b" * 127, "ü" * 100, "c" * 300]))
    return st.one_of(st.binary(max_size=40), st.sampled_from([b"r" * 126, b"r" * 127, b"r" * 20000]))


def _field(field: Field, version: int) -> st.SearchStrategy[Any]:
    if isinstance(field.type, ArrayType):
        item = field.type.item
        element = _primitive(item) if isinstance(item, Primitive) else _struct(item, version)
        values: st.SearchStrategy[Any] = st.lists(element, max_size=3)
    elif field.name.endswith("error_code"):
        values = st.sampled_from([code.value for code in ErrorCode if code in KIO_CODES])
    elif field.name == "log_append_time_ms":
        values = st.one_of(st.just(-1), st.integers(0, 4_000_000_000).map(lambda seconds: seconds * 1000))
    elif field.name == "transaction_start_time_ms" or field.name in _TOKEN_TIMES:
        values = st.integers(0, 4_000_000_000).map(lambda seconds: seconds * 1000)
    elif field.name in _DURATIONS:
        values = st.integers(-1, 1 << 45)
    elif isinstance(field.type, Primitive):
        values = _primitive(field.type)
    else:
        values = _struct(field.type, version)
    return st.one_of(st.none(), values) if version in field.nullable else values


def _struct(cls: type, version: int) -> st.SearchStrategy[Any]:
    present = {
        f.name: _field(f, version)
        for f in schema_of(cls).fields
        if version in f.versions and (f.tag is None or f.tag < KEY_TAG)  # other packages do not know Ottla's own tags
    }
    return st.fixed_dictionaries({}, optional=present).map(lambda values: cls(**values))


@pytest.fixture(scope="session")
def message_of() -> MessageStrategy:
    """`message_of(cls, version)`: messages that this version can represent, with any subset of fields set."""
    return _struct
