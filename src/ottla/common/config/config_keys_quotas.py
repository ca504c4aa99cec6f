"""Broker settings of client quotas and connection limits: names and defaults of Apache Kafka 4.4, texts our own."""

from __future__ import annotations

from ottla.common.config.config_def import MAX_INT, ConfigKey, ConfigType, Importance, UpdateMode, at_least
from ottla.common.config.config_keys_bounds import BOUND_CONFIGS
from ottla.common.config.ip_overrides import IpOverrides


def _window(name: str, default: int, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, default, doc, at_least(1), Importance.LOW, UpdateMode.READ_ONLY)


QUOTA_CONFIGS = [
    ConfigKey(
        "max.connection.creation.rate",
        ConfigType.INT,
        MAX_INT,
        "New connections per second over all listeners, or of one listener with the prefix `listener.name.<name>.`; "
        "further connections wait to be accepted (KIP-612).",
        at_least(0),
        Importance.MEDIUM,
        UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        ConfigType.STRING,
        "",
        "Overrides of `max.connections.per.ip` for single hosts, as host:count, separated by commas.",
        IpOverrides(),
        Importance.MEDIUM,
        UpdateMode.CLUSTER_WIDE,
    ),
    _window(
        "quota.window.num",
        11,
        "Number of windows of client quotas; a burst may use the quota of all windows but one.",
    ),
    _window("quota.window.size.seconds", 1, "Length of a window of client quotas."),
    _window(
        "controller.quota.window.num",
        11,
        "Number of windows of partition mutation quotas; a burst may use the quota of all of them.",
    ),
    _window("controller.quota.window.size.seconds", 1, "Length of a window of partition mutation quotas."),
    *BOUND_CONFIGS,
]
