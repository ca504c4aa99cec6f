"""Broker settings of delegation tokens (KIP-48).

All nodes of a cluster need the same secret, which signs the tokens. Without it delegation tokens are disabled.
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
        "Secret that signs delegation tokens, the same on all nodes of the cluster. If not set, delegation tokens "
        "are disabled.",
    ),
    ConfigKey(OLD_SECRET_KEY, ConfigType.PASSWORD, None, f"Older name of {SECRET_KEY}."),
    ConfigKey(
        "delegation.token.max.lifetime.ms",
        ConfigType.LONG,
        7 * 24 * _HOUR_MS,
        "Maximum lifetime of a delegation token, including renewals.",
        _TIME,
    ),
    ConfigKey(
        "delegation.token.expiry.time.ms",
        ConfigType.LONG,
        24 * _HOUR_MS,
        "Lifetime of a delegation token that is not renewed.",
        _TIME,
    ),
    ConfigKey(
        "delegation.token.expiry.check.interval.ms",
        ConfigType.LONG,
        _HOUR_MS,
        "Interval at which the active controller removes expired delegation tokens. Authentication rejects an "
        "expired token at once.",
        _TIME,
    ),
]


def token_secret(get: Callable[[str], str | None]) -> str:
    """Return the secret of this node from its settings, read through `get`; empty if not set."""
    return get(SECRET_KEY) or get(OLD_SECRET_KEY) or ""
