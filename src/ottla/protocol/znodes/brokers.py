"""Znodes of broker registrations, the controller and its epoch, cluster id, features, producer ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.common.errors import ProtocolError
from ottla.common.platform.endpoint import BRACKETED_HOST, Endpoint
from ottla.protocol.znodes.fields import MAX_INT16, MAX_INT32, MAX_INT64, NONE, Fields, decimal, encode

SECURITY_PROTOCOLS = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})

_ENDPOINT = re.compile(rf"([^:/]{{1,249}})://(?:{BRACKETED_HOST}|([^:\[\]/]{{0,255}})):([0-9]{{1,5}})", re.ASCII)
_CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{1,22}", re.ASCII)


class BrokerRegistration(NamedTuple):
    """A broker's registration. `features`: (lowest, highest) supported level by name (KIP-584)."""

    endpoints: tuple[Endpoint, ...]
    rack: str | None
    features: Mapping[str, tuple[int, int]]
    timestamp_ms: int
    jmx_port: int = NONE


def encode_broker(broker: BrokerRegistration) -> bytes:
    """Encode version 5; `host` and `port` are those of the first listener without security, for clients before 0.9."""
    plain = next((each for each in broker.endpoints if each.security_protocol == "PLAINTEXT"), None)
    content = {
        "features": {name: {"min_version": low, "max_version": high} for name, (low, high) in broker.features.items()},
        "listener_security_protocol_map": {
            endpoint.listener_name: endpoint.security_protocol for endpoint in broker.endpoints
        },
        "endpoints": [f"{endpoint.listener_name}://{endpoint.address}" for endpoint in broker.endpoints],
        **({} if broker.rack is None else {"rack": broker.rack}),
        "jmx_port": broker.jmx_port,
        "port": plain.port if plain else NONE,
        "host": plain.host if plain else None,
        "version": 5,
        "timestamp": str(broker.timestamp_ms),
    }
    return encode(content)


def decode_broker(path: str, data: bytes) -> BrokerRegistration:
    """Decode versions 1 to 5: endpoints since 2, rack since 3, listener names since 4, features since 5.

    Raises ProtocolError, also for a registration without any address.
    """
    fields = Fields.parsed(path, data, range(1, 6))
    if fields.has("endpoints"):
        protocols = {}
        if fields.has("listener_security_protocol_map"):
            named = fields.inner("listener_security_protocol_map")
            protocols = {name: named.text(name) for name in named.names()}
        endpoints = tuple(_endpoint(fields, text, protocols) for text in fields.texts("endpoints"))
    else:
        endpoints = (Endpoint("PLAINTEXT", "PLAINTEXT", fields.text("host"), fields.number("port", 0, 65535)),)
    if not endpoints or len({endpoint.listener_name for endpoint in endpoints}) != len(endpoints):
        raise fields.wrong("endpoints")
    features = {}
    if fields.has("features"):
        inner = fields.inner("features")
        features = {name: _levels(inner.inner(name)) for name in inner.names()}
    return BrokerRegistration(
        endpoints=endpoints,
        rack=fields.text("rack") if fields.has("rack") else None,
        features=features,
        timestamp_ms=fields.number_in_text("timestamp", NONE) if fields.has("timestamp") else NONE,
        jmx_port=fields.number("jmx_port", NONE, 65535) if fields.has("jmx_port") else NONE,
    )


def _endpoint(fields: Fields, text: str, protocols: Mapping[str, str]) -> Endpoint:
    """Without a listener map the listener names are security protocols."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match[4]) > 65535:
        raise fields.wrong("endpoints")
    protocol = protocols.get(match[1]) if protocols else match[1]
    if protocol not in SECURITY_PROTOCOLS:
        raise fields.wrong("listener_security_protocol_map")
    return Endpoint(match[1], protocol, match[2] or match[3], int(match[4]))


def _levels(fields: Fields) -> tuple[int, int]:
    low = fields.number("min_version", 0, MAX_INT16)
    return low, fields.number("max_version", low, MAX_INT16)


class ControllerClaim(NamedTuple):
    """The broker that is the controller, and the time of its election."""

    broker_id: int
    timestamp_ms: int
    kraft_controller_epoch: int = NONE
    """Above -1 after a quorum has taken over (KIP-866): then no broker may claim it."""


def encode_controller(claim: ControllerClaim) -> bytes:
    """Encode version 2."""
    return encode(
        {
            "version": 2,
            "brokerid": claim.broker_id,
            "timestamp": str(claim.timestamp_ms),
            "kraftControllerEpoch": claim.kraft_controller_epoch,
        }
    )


def decode_controller(path: str, data: bytes) -> ControllerClaim:
    """Decode versions 1 and 2; raises ProtocolError."""
    fields = Fields.parsed(path, data, range(1, 3))
    has_epoch = fields.has("kraftControllerEpoch")
    return ControllerClaim(
        fields.number("brokerid"),
        fields.number_in_text("timestamp", NONE),
        fields.number("kraftControllerEpoch", NONE) if has_epoch else NONE,
    )


def encode_controller_epoch(controller_epoch: int) -> bytes:
    """Encode as plain digits, not JSON."""
    return str(controller_epoch).encode()


def decode_controller_epoch(path: str, data: bytes) -> int:
    """Inverse of `encode_controller_epoch`; raises ProtocolError."""
    return decimal(path, data, high=MAX_INT32)


def encode_cluster_id(cluster_id: str) -> bytes:
    """Encode the cluster id; the only znode with a string as version."""
    return encode({"version": "1", "id": cluster_id})


def decode_cluster_id(path: str, data: bytes) -> str:
    """Decode at most 22 characters of URL-safe base64; raises ProtocolError."""
    fields = Fields.parsed(path, data, None)
    cluster_id = fields.text("id")
    if not _CLUSTER_ID.fullmatch(cluster_id):
        raise fields.wrong("id")
    return cluster_id


def encode_features(features: Mapping[str, int]) -> bytes:
    """Encode finalized levels in version 2, with status 1: enabled (KIP-584)."""
    levels = {name: {"max_version_level": level} for name, level in features.items()}
    return encode({"features": levels, "version": 2, "status": 1})


def decode_features(path: str, data: bytes) -> dict[str, int]:
    """Decode versions 1 and 2; empty if the status disables features. Raises ProtocolError."""
    fields = Fields.parsed(path, data, range(1, 3))
    inner = fields.inner("features")
    levels = {name: inner.inner(name).number("max_version_level", 1, MAX_INT16) for name in inner.names()}
    return levels if fields.number("status", 0, 1) else {}


class ProducerIdBlock(NamedTuple):
    """The last assigned block of producer ids, both ends inclusive, and its broker."""

    broker_id: int
    first: int
    last: int


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    """Encode version 1; the ids are strings."""
    return encode(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_ids(path: str, data: bytes) -> ProducerIdBlock:
    """Decode a block. Raises ProtocolError, also for a block that ends before it begins."""
    fields = Fields.parsed(path, data, range(1, 2))
    block = ProducerIdBlock(
        fields.number("broker", NONE), fields.number_in_text("block_start"), fields.number_in_text("block_end")
    )
    if not block.first <= block.last < MAX_INT64:
        raise ProtocolError(f"znode {path} contains a block of producer ids that ends before it begins")
    return block
