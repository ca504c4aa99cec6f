"""Decoding options of a command line; in a module of their own, since the decoders import Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FORMATS = ("raw", "json", "avro", "protobuf", "csv", "regex", "access-log")
ENVELOPES = ("debezium", "maxwell")
NUMBERS = ("double", "exact")
DEFAULT_MAP_KEYS = 500


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """As given: `decode` is one of FORMATS, the others are None if they were not given."""

    decode: str
    schema: Path | None = None
    pattern: str | None = None
    message: str | None = None
    schema_registry: str | None = None
    schema_registry_ca: Path | None = None
    numbers: str | None = None
    """One of NUMBERS."""
    types: tuple[str, ...] | None = None
    """Types of columns, such as `price: double`."""
    envelope: str | None = None
    """One of ENVELOPES."""
    map_keys: int | None = None
    """Number of names beyond which an object is a map, 0 for none."""
