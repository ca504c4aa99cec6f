"""Types of Kafka Connect and Debezium: columns for the fields of a row, and conversion of their values in JSON.

A field's schema names its logical type, such as `io.debezium.time.Date`. JSON has the stored value: a number of days,
milliseconds or microseconds, or bytes in base64. Fields of a row are converted; fields that are nested in them keep
the stored values, as do times of day and nanoseconds. A map has no column.

Sources: `JsonConverter` of Kafka Connect, and the tables of data type mappings of Debezium's connectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.transform.columns import MAX_LEVELS, table_name, usable_names
from ottla.pipeline.transform.connect_avro import ZONED_TIMESTAMP, ZONED_TYPE
from ottla.pipeline.transform.decoder import cell_count
from ottla.pipeline.transform.json_inference import MAX_FIELDS

Convert = Callable[[pa.Array, pa.DataType], tuple[pa.Array, npt.NDArray[np.bool_] | None]]
"""From an array of stored values to the type of a column. The flags are true for values that don't fit; None: all
fit."""

DECIMAL_DIGITS = 38
DECIMAL_BYTES = 16
MAX_MILLISECONDS = np.iinfo(np.int64).max // 1000

_LOCAL = pa.timestamp("us")
_STORED = {
    "int8": pa.int32(),
    "int16": pa.int32(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}


@dataclass(frozen=True, slots=True)
class ConnectField:
    """A field of a row: its name there, the type of its column, and the conversion from the type `stored` in JSON;
    None: JSON has the column's type."""

    name: str
    type: pa.DataType
    stored: pa.DataType
    convert: Convert | None = None


def connect_fields(schema: Any) -> list[ConnectField]:
    """The fields of a struct that have columns, from its schema as `JsonConverter` writes it.

    Raises ValueError for another value, and for more than MAX_FIELDS fields.
    """
    if not isinstance(schema, dict) or schema.get("type") != "struct" or not isinstance(schema.get("fields"), list):
        raise ValueError("it is not the schema of a struct")
    found: dict[str, ConnectField] = {}
    for part in schema["fields"]:
        if not isinstance(part, dict) or not isinstance(part.get("field"), str):
            raise ValueError("it has a field without a name")
        if (field := _field(part["field"], part)) is not None:
            found.setdefault(table_name(field.name), field)
    if sum(cell_count(field.type) for field in found.values()) > MAX_FIELDS:
        raise ValueError(f"it has more than {MAX_FIELDS:,} fields")
    return [found[name] for name in usable_names(found)]


def _field(name: str, schema: Mapping[str, Any]) -> ConnectField | None:
    kind, logical = schema.get("type"), schema.get("name")
    if kind == "bytes":
        type_ = _decimal_type(schema) if logical == "org.apache.kafka.connect.data.Decimal" else pa.binary()
        of_bytes: Convert = partial(_to_decimal, _scale(schema)) if pa.types.is_decimal(type_) else _to_binary
        return ConnectField(name, type_, pa.string(), of_bytes)
    if (kind, logical) in _LOGICAL:
        type_, convert = _LOGICAL[kind, logical]
        return ConnectField(name, type_, _STORED[str(kind)], convert)
    if (kind, logical) == ("string", ZONED_TIMESTAMP):
        return ConnectField(name, ZONED_TYPE, ZONED_TYPE)  # the reader of JSON casts text in ISO 8601
    nested = _nested_type(schema, MAX_LEVELS)
    return None if nested is None else ConnectField(name, nested, nested)


def _nested_type(schema: Any, levels: int) -> pa.DataType | None:
    """The type of values as JSON has them; None if they have no column."""
    if not isinstance(schema, dict) or not levels:
        return None
    kind = schema.get("type")
    if kind == "struct" and isinstance(schema.get("fields"), list):
        parts = {
            part["field"]: type_
            for part in schema["fields"]
            if isinstance(part, dict) and isinstance(part.get("field"), str)
            if (type_ := _nested_type(part, levels - 1)) is not None
        }
        names = usable_names(parts)
        return pa.struct([(name, parts[name]) for name in names]) if names else None
    if kind == "array":
        inner = _nested_type(schema.get("items"), levels - 1)
        return None if inner is None else pa.list_(inner)
    return pa.string() if kind == "bytes" else _STORED.get(str(kind))


def _scale(schema: Mapping[str, Any]) -> int:
    """The scale of a decimal; -1 if it has none."""
    parameters = schema.get("parameters")
    text = str(parameters.get("scale", "")) if isinstance(parameters, dict) else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < len(str(1 << 31)) else -1


def _decimal_type(schema: Mapping[str, Any]) -> pa.DataType:
    """Bytes for a scale that no column has, such as a negative one."""
    scale = _scale(schema)
    if not 0 <= scale <= DECIMAL_DIGITS:
        return pa.binary()
    digits = str(schema["parameters"].get("connect.decimal.precision", ""))
    precision = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= 2 else DECIMAL_DIGITS
    return pa.decimal128(min(max(precision, scale, 1), DECIMAL_DIGITS), scale)


# Conversion


def _to_date(stored: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    return stored.cast(pa.date32()).cast(type_), None


def _from_milliseconds(stored: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    """A time beyond the range of the type becomes the last one, which is outside the years that tables have."""
    clipped = pc.max_element_wise(pc.min_element_wise(stored, MAX_MILLISECONDS), -MAX_MILLISECONDS)
    return _from_microseconds(pc.multiply(pc.if_else(stored.is_valid(), clipped, None), 1000), type_)


def _from_microseconds(stored: pa.Array, type_: pa.DataType) -> tuple[pa.Array, None]:
    return stored.view(_LOCAL).cast(pa.timestamp("us", tz=type_.tz)).cast(type_), None


def _to_binary(stored: pa.Array, type_: pa.DataType) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    found, bad = base64_bytes(stored)
    return found.cast(type_), bad


def _to_decimal(scale: int, stored: pa.Array, type_: pa.DataType) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    numbers, bad = base64_bytes(stored)
    found, large = big_endian_decimals(numbers, scale)
    try:
        return found.cast(type_), bad | large
    except pa.ArrowInvalid:
        fits = np.array([_fits(one, type_) for one in found])
        return pc.if_else(pa.array(fits), found, None).cast(type_), bad | large | ~fits


def _fits(number: pa.Scalar, type_: pa.DataType) -> bool:
    try:
        number.cast(type_)
    except pa.ArrowInvalid:
        return False
    return True


_SEXTETS = np.full(256, 255, np.uint8)
_SEXTETS[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)
_PADDING = ord("=")


def base64_bytes(text: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Bytes of texts in base64 (RFC 4648, with padding), and flags for texts that are not; these and nulls are
    null."""
    offsets, data = _contents(pc.fill_null(text.cast(pa.binary()), b""))
    bad = _not_base64(offsets, data)
    if bad.any():
        kept = pc.if_else(pa.array(bad), b"", pc.fill_null(text.cast(pa.binary()), b""))
        offsets, data = _contents(kept)
    starts, ends = offsets[:-1], offsets[1:]
    sextets = np.where(data == _PADDING, 0, _SEXTETS[data]).reshape(-1, 4).astype(np.uint32)
    quads = sextets @ np.array([1 << 18, 1 << 12, 1 << 6, 1], np.uint32)
    octets = quads.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:].reshape(-1)
    padded = [_at_end(data, starts, ends, place) for place in (1, 2)]
    kept_octets = np.ones(len(octets), np.bool_)
    for place, flags in enumerate(padded, 1):
        kept_octets[ends[flags] // 4 * 3 - place] = False
    sizes = (ends - starts) // 4 * 3 - padded[0] - padded[1]
    found = _binary(sizes, octets[kept_octets])
    return pc.if_else(pc.and_(text.is_valid(), pa.array(~bad)), found, None), bad


def _not_base64(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    starts, ends = offsets[:-1], offsets[1:]
    sums = np.concatenate([[0], np.cumsum(_SEXTETS[data] == 255)])
    last, second = (_at_end(data, starts, ends, place) for place in (1, 2))
    padding = np.where(last, 1 + (last & second), 0)
    bad: npt.NDArray[np.bool_] = ((ends - starts) % 4 != 0) | (sums[ends] - sums[starts] != padding)
    return bad


def _at_end(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], place: int
) -> npt.NDArray[np.bool_]:
    """True for texts whose last character but `place` - 1 is padding."""
    there = ends - starts >= place
    flags = np.zeros(len(starts), np.bool_)
    flags[there] = data[ends[there] - place] == _PADDING
    return flags


def big_endian_decimals(numbers: pa.Array, scale: int) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Decimals of 38 digits from unscaled values as Java's `BigInteger.toByteArray` returns them.

    The flags are true for values with more digits, or without bytes; these and nulls are null.
    """
    offsets, data = _contents(pc.fill_null(numbers, b"\0"))
    starts, ends = offsets[:-1], offsets[1:]
    sizes = ends - starts
    bad = (sizes == 0) | (sizes > DECIMAL_BYTES)
    for place in np.flatnonzero(sizes == DECIMAL_BYTES).tolist():
        number = int.from_bytes(data[starts[place] : ends[place]].tobytes(), "big", signed=True)
        bad[place] = abs(number) >= 10**DECIMAL_DIGITS
    places = np.arange(DECIMAL_BYTES)
    reversed_ = ends[:, None] - 1 - places
    digits = np.concatenate([data, [0]]).astype(np.uint8)
    found = digits[np.clip(reversed_, 0, len(data))]
    sign = np.where(digits[np.clip(starts, 0, len(data))] & 0x80, 0xFF, 0).astype(np.uint8)
    found = np.where(places < sizes[:, None], found, sign[:, None])
    whole = pa.Array.from_buffers(
        pa.decimal128(DECIMAL_DIGITS, scale), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(found))]
    )
    return pc.if_else(pc.and_(numbers.is_valid(), pa.array(~bad)), whole, None), bad


def _contents(array: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """(offsets from 0, bytes) of a binary array without nulls."""
    _, ends, data = array.buffers()
    if not len(array):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return offsets - offsets[0], content[offsets[0] : offsets[-1]]


def _binary(sizes: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


_LOGICAL: Mapping[tuple[Any, Any], tuple[pa.DataType, Convert]] = {
    ("int32", "io.debezium.time.Date"): (pa.date32(), _to_date),
    ("int32", "org.apache.kafka.connect.data.Date"): (pa.date32(), _to_date),
    ("int64", "io.debezium.time.Timestamp"): (_LOCAL, _from_milliseconds),
    ("int64", "io.debezium.time.MicroTimestamp"): (_LOCAL, _from_microseconds),
    ("int64", "org.apache.kafka.connect.data.Timestamp"): (ZONED_TYPE, _from_milliseconds),
}
"""(stored type, logical type) -> type of the column, and the conversion. Debezium's timestamps have no time zone."""
