"""Requests and responses over a raw socket with the codec of `kio`, independent of Ottla.

A body is a plain dictionary with kio's field names. A field that a version does not have is omitted; an absent field
gets the default of its schema. Durations are numbers of milliseconds. Responses are returned as plain values.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import io
import socket
import struct
import types
import typing
import uuid
from collections.abc import Mapping
from typing import Any

from kio.index import load_payload_module
from kio.schema.api_versions.v4 import request as api_versions_4
from kio.schema.api_versions.v4 import response as api_versions_4_response
from kio.schema.create_delegation_token.v3 import response as create_delegation_token
from kio.schema.describe_transactions.v0 import response as describe_transactions
from kio.schema.index import api_key_map, schema_name_map
from kio.schema.txn_offset_commit.v5 import request as txn_offset_commit_5
from kio.schema.txn_offset_commit.v5 import response as txn_offset_commit_5_response
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i32, i64

CLOSED = "the connection was closed"
SILENT = "no answer"
ANSWER_TIMEOUT_S = 60.0
CORRELATION_ID = 77

KEYS = {name: key for key, name in api_key_map.items()}

ApiVersionsRequest5 = dataclasses.make_dataclass(
    "ApiVersionsRequest5",
    [
        ("cluster_id", str | None, dataclasses.field(metadata={"kafka_type": "string"}, default=None)),
        ("node_id", i32, dataclasses.field(metadata={"kafka_type": "int32"}, default=i32(-1))),
    ],
    bases=(api_versions_4.ApiVersionsRequest,),
    frozen=True,
    slots=True,
    kw_only=True,
)
"""A request that kio does not support yet, in its terms (KIP-1242)."""


def _by_topic_id(cls: type) -> type:
    """Returns a TxnOffsetCommit of version 5, with topic ids instead of names."""
    entity: Any = cls
    inner = typing.get_args(typing.get_type_hints(cls)["topics"])[0]
    kept = ("__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")
    topic: Any = dataclasses.make_dataclass(
        f"{inner.__name__}6",
        [
            ("topic_id", uuid.UUID | None, dataclasses.field(metadata={"kafka_type": "uuid"})),
            ("partitions", typing.get_type_hints(inner)["partitions"]),
        ],
        namespace={name: getattr(inner, name) for name in kept},
        frozen=True,
        kw_only=True,
    )
    return _with_field(entity, "topics", tuple[topic, ...])


def _with_field(cls: Any, name: str, hint: Any, kafka_type: str | None = None) -> type:
    """Returns an entity with a different type for the field `name`."""
    field = dataclasses.field(metadata={} if kafka_type is None else {"kafka_type": kafka_type})
    return dataclasses.make_dataclass(
        f"{cls.__name__}Changed", [(name, hint, field)], bases=(cls,), frozen=True, slots=True, kw_only=True
    )


def _with_any_start_time() -> type:
    """DescribeTransactions of version 0: kio rejects -1, the start time if no transaction is open."""
    state: Any = _with_field(describe_transactions.TransactionState, "transaction_start_time", i64, "int64")
    return _with_field(describe_transactions.DescribeTransactionsResponse, "transaction_states", tuple[state, ...])


NEWER: Mapping[tuple[str, int], tuple[type, type]] = {
    ("api_versions", 5): (ApiVersionsRequest5, api_versions_4_response.ApiVersionsResponse),
    ("txn_offset_commit", 6): (
        _by_topic_id(txn_offset_commit_5.TxnOffsetCommitRequest),
        _by_topic_id(txn_offset_commit_5_response.TxnOffsetCommitResponse),
    ),
}
"""Requests of versions that kio does not support, with their responses."""


def _with_any_times() -> type:
    """CreateDelegationToken of version 3: the times of a refused token are -1."""
    response: Any = create_delegation_token.CreateDelegationTokenResponse
    for name in ("issue_timestamp", "expiry_timestamp", "max_timestamp"):
        response = _with_field(response, name, i64, "int64")
    return typing.cast(type, response)


RESPONSES = {
    ("describe_transactions", 0): _with_any_start_time(),
    ("create_delegation_token", 3): _with_any_times(),
}


class User(typing.NamedTuple):
    """Credentials for SASL/PLAIN, and the local address to connect from."""

    name: str
    password: str
    host: str = "127.0.0.1"


class Connection:
    """One connection, opened on demand and reopened after the broker closed it."""

    def __init__(self, port: int, user: User | None = None) -> None:
        """With a `user`, `port` is a listener with SASL/PLAIN."""
        self._port = port
        self._user = user
        self._socket: socket.socket | None = None

    def send(self, frame: bytes) -> None:
        """Write one frame."""
        if self._socket is None:
            self._open()
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)  # type: ignore[union-attr]

    def _open(self) -> None:
        address = None if self._user is None else (self._user.host, 0)
        self._socket = socket.create_connection(
            ("127.0.0.1", self._port), timeout=ANSWER_TIMEOUT_S, source_address=address
        )
        if self._user is None:
            return
        secret = f"\0{self._user.name}\0{self._user.password}".encode()
        for api, body in (("sasl_handshake", {"mechanism": "PLAIN"}), ("sasl_authenticate", {"auth_bytes": secret})):
            self.send(encode(api, 1, body))
            answer = self.receive()
            if answer is None or decode(api, 1, answer)["error_code"] != "none":
                raise RuntimeError(f"{self._user.name} is not let in")

    def receive(self) -> bytes | None:
        """Returns one frame; None when the broker closed the connection instead."""
        try:
            size = self._exactly(4)
            return None if size is None else self._exactly(struct.unpack(">i", size)[0])
        except ConnectionError:
            self.close()
            return None
        except TimeoutError:  # a late response must not be taken for the next one
            self.close()
            raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exactly(self, count: int) -> bytes | None:
        if self._socket is None:
            raise RuntimeError("nothing was sent on this connection")
        data = bytearray()
        while len(data) < count:
            chunk = self._socket.recv(count - len(data))
            if not chunk:
                self.close()
                return None
            data += chunk
        return bytes(data)


def versions_of(api: str) -> list[int]:
    """Returns the versions of `api` with a request class."""
    known = {version for version, kinds in schema_name_map[api].items() if EntityType.request in kinds}
    return sorted(known | {version for newer, version in NEWER if newer == api})


@functools.cache
def payload_class(api: str, version: int, response: bool) -> type:
    """Returns kio's class of a request or response."""
    if (api, version) in NEWER:
        return NEWER[api, version][response]
    if response and (api, version) in RESPONSES:
        return RESPONSES[api, version]
    kind = EntityType.response if response else EntityType.request
    module = load_payload_module(KEYS[api], version, kind)
    for found in vars(module).values():
        if getattr(found, "__type__", None) is kind:
            return typing.cast(type, found)
    raise LookupError(f"kio has no {kind.name} for {api} {version}")


def encode(api: str, version: int, body: Mapping[str, Any], *, client_id: str | None = "differential") -> bytes:
    """Returns an encoded request without its size."""
    cls = payload_class(api, version, response=False)
    with io.BytesIO() as out:
        out.write(header(KEYS[api], version, client_id=client_id, flexible=bool(cls.__flexible__)))  # type: ignore[attr-defined]
        entity_writer(cls)(out, build(cls, body))
        return out.getvalue()


def header(key: int, version: int, *, client_id: str | None = "differential", flexible: bool) -> bytes:
    """Returns a request header of version 1 or 2."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    return struct.pack(">hhih", key, version, CORRELATION_ID, length) + name + (b"\0" if flexible else b"")


def decode(api: str, version: int, frame: bytes) -> Any:
    """Decodes a response into plain values; raises ValueError for trailing bytes."""
    cls = payload_class(api, version, response=True)
    flexible = cls.__flexible__ and api != "api_versions"  # type: ignore[attr-defined]
    start = 5 if flexible else 4
    if frame[:4] != struct.pack(">i", CORRELATION_ID):
        raise ValueError("a response with another correlation id")
    entity, size = entity_reader(cls)(frame, start)
    if start + size != len(frame):
        raise ValueError(f"{len(frame) - start - size} bytes are left over in a response of {api} {version}")
    return plain(entity)


def build(cls: type, values: Mapping[str, Any]) -> Any:
    """Builds an entity of kio from plain values."""
    hints = _hints(cls)
    arguments = {}
    for field in dataclasses.fields(cls):
        hint, optional = _unwrapped(hints[field.name])
        if field.name in values:
            arguments[field.name] = _field(hint, field.metadata.get("kafka_type"), values[field.name])
        elif field.default is dataclasses.MISSING:
            arguments[field.name] = None if optional else _zero(hint, field.metadata.get("kafka_type"))
    return cls(**arguments)


def plain(value: Any) -> Any:
    """Converts an entity of kio to dictionaries, lists, numbers, text and bytes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    return value


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _unwrapped(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        inner = [argument for argument in typing.get_args(hint) if argument is not type(None)]
        return inner[0], len(inner) < len(typing.get_args(hint))
    return hint, False


def _field(hint: Any, kafka_type: str | None, value: Any) -> Any:
    if value is None:
        return None
    if typing.get_origin(hint) is tuple:
        inner, _ = _unwrapped(typing.get_args(hint)[0])
        return tuple(_field(inner, kafka_type, item) for item in value)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), value)
    if kafka_type is not None and kafka_type.startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    return value


def _zero(hint: Any, kafka_type: str | None) -> Any:
    if typing.get_origin(hint) is tuple:
        return ()
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), {})
    if kafka_type is not None and kafka_type.startswith("timedelta"):
        return datetime.timedelta()
    if kafka_type == "uuid":
        return uuid.UUID(int=0)
    return {"string": "", "bool": False, "bytes": b"", "records": b""}.get(kafka_type or "", 0)
