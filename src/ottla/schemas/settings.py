"""Sources of schemas for keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.common.errors import OperatorError
from ottla.common.platform.files import read_file

if TYPE_CHECKING:
    from ottla.schemas.registry import SchemaRegistry

MAX_SCHEMA_FILE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """The content of a schema file: an Avro schema, or a descriptor set of protoc with the name of a message."""

    content: bytes
    message: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaSettings:
    """Where the schemas of keys and values come from; picklable, for other processes."""

    registry: SchemaRegistry | None = None
    key: SchemaFile | None = None
    value: SchemaFile | None = None


def read_schema_bytes(path: object) -> bytes:
    """Return the content of a schema file. Raises OperatorError."""
    try:
        return read_file(str(path), MAX_SCHEMA_FILE_BYTES)
    except OSError as error:
        raise OperatorError(f"the schema {path} can't be read: {error.strerror}") from error


def open_registry(url: str, authorities: object = None, *, is_interactive: bool = False) -> SchemaRegistry:
    """`authorities`: path of certificates in PEM. Raises OperatorError for an invalid URL or file."""
    from ottla.schemas.registry import SchemaRegistry  # imported here: most searches use no registry

    pem = None if authorities is None else read_schema_bytes(authorities).decode("ascii", "replace")
    return SchemaRegistry(url, pem, is_interactive)
