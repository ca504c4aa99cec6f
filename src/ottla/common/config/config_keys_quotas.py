"""The broker settings of quotas of clients: names, types and defaults of Apache Kafka 4.4, texts our own."""

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
        "New connections a second, over all listeners, or with `listener.name.<name>.` before it to that one; above it "
        "the others wait to be accepted (KIP-612).",
        at_least(0),
        Importance.MEDIUM,
        UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        ConfigType.STRING,
        "",
        "Other limits than `max.connections.per.ip` for single hosts, as host:count with commas between them.",
        IpOverrides(),
        Importance.MEDIUM,
        UpdateMode.CLUSTER_WIDE,
    ),
    _window(
        "quota.window.num",
        11,
        "Windows that count for quotas of clients: what comes in all but one of them may come at once.",
    ),
    _window("quota.window.size.seconds", 1, "Length of a window of quotas of clients."),
    _window(
        "controller.quota.window.num",
        11,
        "Windows of quotas of partitions made and deleted: as many at once as come in all of them.",
    ),
    _window("controller.quota.window.size.seconds", 1, "Length of a window of quotas of partitions made and deleted."),
    *BOUND_CONFIGS,
]
