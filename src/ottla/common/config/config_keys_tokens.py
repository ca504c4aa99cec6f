"""Broker settings of delegation tokens (KIP-48).

All nodes of a cluster need the same secret: each makes the passwords of tokens out of it. Without one there are none.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.config.config_def import ConfigKey, ConfigType, Range

SECRET_KEY, OLD_SECRET_KEY = "delegation.token.secret.key", "delegation.token.master.key"
_HOUR_MS = 3_600_000
_TIME = Range(1, 2**63 - 1)


TOKEN_CONFIGS = [
    ConfigKey(
        SECRET_KEY,
        ConfigType.PASSWORD,
        None,
        "Out of it, which all nodes of the cluster have, the passwords of delegation tokens are made; without it there "
        "are no tokens.",
    ),
    ConfigKey(OLD_SECRET_KEY, ConfigType.PASSWORD, None, f"Older name of {SECRET_KEY}."),
    ConfigKey(
        "delegation.token.max.lifetime.ms",
        ConfigType.LONG,
        7 * 24 * _HOUR_MS,
        "How long a delegation token lasts at most, however often it is renewed.",
        _TIME,
    ),
    ConfigKey(
        "delegation.token.expiry.time.ms",
        ConfigType.LONG,
        24 * _HOUR_MS,
        "How long a delegation token lasts unless it is renewed.",
        _TIME,
    ),
    ConfigKey(
        "delegation.token.expiry.check.interval.ms",
        ConfigType.LONG,
        _HOUR_MS,
        "How often the active controller removes delegation tokens that are over; they let nobody in before.",
        _TIME,
    ),
]


def token_secret(get: Callable[[str], str | None]) -> str:
    """The secret of this node by its settings, of which `get` gives one; empty where it has none."""
    return get(SECRET_KEY) or get(OLD_SECRET_KEY) or ""
