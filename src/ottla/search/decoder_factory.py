"""Creation of decoders by name; those with optional packages are imported here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.search.decoder_names import AUTO, AVRO, MSGPACK, PROTOBUF, REGISTRY, VERBATIM
from ottla.search.decoders import (
    COORDINATOR_READERS,
    READERS,
    AutoDecoder,
    PlainDecoder,
    ValueDecoder,
    decode_json,
    decode_text,
)

if TYPE_CHECKING:
    from ottla.schemas.settings import SchemaSettings


def open_decoder(name: str, settings: SchemaSettings | None = None, *, is_key: bool = False) -> ValueDecoder:
    """The decoder of a name. Raises OperatorError if its schema or its package is missing."""
    if name in (AVRO, PROTOBUF, REGISTRY):
        from ottla.search.schema_decoders import open_schema_decoder  # imported here: its packages are optional

        return open_schema_decoder(name, settings, is_key=is_key)
    if name == AUTO:
        by_registry = None
        if settings is not None and settings.registry is not None:
            from ottla.search.schema_decoders import RegistryDecoder

            by_registry = RegistryDecoder(settings.registry, is_key=is_key)
        return AutoDecoder(_plain("json", decode_json), _plain("text", decode_text), by_registry)
    if name in COORDINATOR_READERS:
        read = COORDINATOR_READERS[name]
        return PlainDecoder(name, (lambda data, record: read(data, None)) if is_key else read)
    return _plain(name, _msgpack_reader() if name == MSGPACK else READERS[name])


def _plain(name: str, read: Callable[[bytes], object]) -> PlainDecoder:
    return PlainDecoder(name, lambda data, record: read(data), name in VERBATIM)


def _msgpack_reader() -> Callable[[bytes], object]:
    from ottla.search.msgpack_decoder import read_msgpack  # imported here: its package is optional

    return read_msgpack
