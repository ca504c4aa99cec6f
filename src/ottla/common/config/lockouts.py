"""Dynamic settings that block all clients: rejected when they are set, ignored when they are already stored.

The operator can exclude other settings by name on the host (`ottla config recover`, `ignored_settings`). The stored
stay in the metadata, so that an operator can connect and remove them there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ottla.common.config.config_def import UpdateMode
from ottla.common.config.config_keys_broker import BROKER_CONFIGS
from ottla.common.config.ip_overrides import parse_ip_overrides
from ottla.common.config.listener_configs import CONNECTION_RATE, canonical, without_listener
from ottla.common.errors import ErrorCode, KafkaError, OperatorError

ALL = "all"
QUOTAS = "quotas"
"""Name for all quotas of clients, users and addresses."""
_PER_IP, _OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"
_ACCEPTING = frozenset({"max.connections", _PER_IP, CONNECTION_RATE})
"""Settings that refuse every connection if they are 0."""


def check_reachable(changes: Iterable[str], new: Mapping[str, str]) -> None:
    """Reject changed settings that block all clients; `new` has all dynamic settings of the resource.

    Raises KafkaError INVALID_CONFIG.
    """
    for name in changes:
        text = new.get(name)
        if text is not None and shuts_out(name, text, new):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Invalid value {text} for configuration {name}: no client could connect; set at least 1",
            )
    if _OVERRIDES in changes and shuts_out(_PER_IP, new.get(_PER_IP, "1"), new):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value for configuration {_OVERRIDES}: {_PER_IP} is 0 and no override is above 0",
        )


def shuts_out(name: str, text: str, given: Mapping[str, str]) -> bool:
    """Return whether no client could connect with this value; `given` may have overrides for single addresses."""
    base = without_listener(name)
    if base not in _ACCEPTING or not re.fullmatch(r"\s*[+-]?0+\s*", text):
        return False
    return base != _PER_IP or not any(parse_ip_overrides(given.get(_OVERRIDES, "")).values())


def is_ignored(name: str, ignored: frozenset[str]) -> bool:
    """Return whether the operator excluded this dynamic setting; `name` is canonical, and may be of one listener."""
    return bool(ignored) and not ignored.isdisjoint((ALL, name, without_listener(name)))


def ignorable(name: str, where: str) -> str:
    """Return the canonical form of a name that may be ignored. Raises OperatorError."""
    name = canonical(name)
    key = BROKER_CONFIGS.get(without_listener(name))
    if name in (ALL, QUOTAS) or (key is not None and key.update_mode is not UpdateMode.READ_ONLY):
        return name
    raise OperatorError(f"{where} names {name}, which is not a dynamic setting: name one, or {QUOTAS}, or {ALL}")
