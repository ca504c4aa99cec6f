"""Names of the decoders; in a module of their own, as the help of a command needs no decoder."""

from __future__ import annotations

AUTO = "auto"
MSGPACK = "msgpack"
AVRO, PROTOBUF, REGISTRY = "avro", "protobuf", "registry"
GROUPS = "consumer-offsets"
TRANSACTIONS = "transaction-state"
VERBATIM = frozenset({"text", "json"})
"""Decoders whose text and names are in the bytes, apart from escapes."""
DECODERS = (
    *(AUTO, "text", "json", "integer", "int16", "int32", "int64", "float", "double", "uuid", "hex", "base64"),
    *(MSGPACK, AVRO, PROTOBUF, REGISTRY, GROUPS, TRANSACTIONS),
)
