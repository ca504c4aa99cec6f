"""Znodes of settings, quotas and credentials of topics, brokers, users, clients and addresses, and notifications."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.protocol.znodes.fields import Fields, encode


def encode_config(values: Mapping[str, str]) -> bytes:
    """Encode settings by name; every value is a string."""
    return encode({"version": 1, "config": dict(values)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Inverse of `encode_config`; empty for a znode without data, which only exists for its children.

    Raises ProtocolError.
    """
    if not data:
        return {}
    named = Fields.parsed(path, data, range(1, 2)).inner("config")
    return {name: named.text(name) for name in named.names()}


def encode_change(entity_path: str) -> bytes:
    """Encode version 2: the path of the entity below `/config`, e.g. "users/ann/clients/app"."""
    return encode({"version": 2, "entity_path": entity_path})
