"""Schema ids in front of a key or value, or in a header of its record.

The wire format is that of Confluent's serializers. A zero byte and four more, big-endian, are an id of the registry; a
one and sixteen more are a GUID, which means the same schema in every registry. For Protobuf the indexes of the message
type in its file follow.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

KEY_HEADER = "__key_schema_id"
VALUE_HEADER = "__value_schema_id"
NUMBER_BYTES = 5
GUID_BYTES = 17
ID_LENGTHS = {0: NUMBER_BYTES, 1: GUID_BYTES}
"""Length of an id by its first byte."""
NO_ID = (
    "neither the value nor a header of its record begins with the id of a schema (a zero byte and four more, or a one "
    f"and sixteen more, in {VALUE_HEADER}), which --schema-registry requires"
)

SchemaId = int | UUID
IdLength = Callable[[bytes], int]
"""Number of bytes of the schema's id at the start of a value or a header, including the message indexes of Protobuf;
raises ValueError when it has no id."""


def id_length(value: bytes) -> int:
    """The `IdLength` of formats without anything besides the id. Raises ValueError."""
    length = ID_LENGTHS.get(value[0], 0) if value else 0
    if not 0 < length <= len(value):
        raise ValueError(NO_ID)
    return length


def schema_id(value: bytes) -> SchemaId:
    """The id at the start of a value. Raises ValueError when it has none."""
    start = value[1 : id_length(value)]
    return UUID(bytes=start) if len(start) == GUID_BYTES - 1 else int.from_bytes(start, "big")
