"""Settings of a group (resource type GROUP, KIP-1043 ff.) and their defaults from broker settings.

They are set for a group id, whether the group exists or not. A value must be between the broker's minimum and maximum
when it is set. Both bounds may change with a restart, so the coordinator reads values through `clamped`. Settings of
share and streams groups are not implemented. Texts are our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.common.config.config_def import (
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    UpdateMode,
    at_least,
    key_table,
    render,
)
from ottla.common.errors import ErrorCode, KafkaError

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


def _key(name: str, default: int, low: int, doc: str) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType.INT,
        default,
        doc,
        at_least(low),
        update_mode=UpdateMode.CLUSTER_WIDE,
        server_synonyms=((f"group.{name}", 1),),
    )


GROUP_CONFIGS: Mapping[str, ConfigKey] = key_table(
    [
        _key(
            SESSION_TIMEOUT,
            45_000,
            1,
            "Time without a heartbeat after which a member of the consumer protocol is removed from the group.",
        ),
        _key(
            HEARTBEAT_INTERVAL,
            5_000,
            1,
            "Heartbeat interval of members of the consumer protocol; a heartbeat response delivers assignment changes.",
        ),
        _key(
            ASSIGNMENT_INTERVAL,
            1_000,
            0,
            "Minimum time between two target assignments of the group, so that members that join at the same time "
            "share one assignment.",
        ),
    ]
)


class Bounds(NamedTuple):
    """Broker settings that bound a group setting."""

    low: str
    high: str


def bounds_of(name: str) -> Bounds:
    """Return, for example, `group.consumer.min.session.timeout.ms` and its maximum counterpart."""
    kind, _, rest = name.partition(".")
    return Bounds(f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}")


def validate_group_configs(overrides: Mapping[str, str], broker_values: Mapping[str, ConfigValue]) -> None:
    """Check all settings of a group together; raises KafkaError INVALID_CONFIG with Apache Kafka's message."""
    for name in overrides:
        if name not in GROUP_CONFIGS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
    values = {name: _number(broker_values[f"group.{name}"]) for name in GROUP_CONFIGS}
    values |= {name: _number(GROUP_CONFIGS[name].parse(text)) for name, text in overrides.items()}
    for name in overrides:
        bounds = bounds_of(name)
        if values[name] < _number(broker_values[bounds.low]):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {bounds.low}")
        if values[name] > _number(broker_values[bounds.high]):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {bounds.high}")
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def clamped(name: str, overrides: Mapping[str, str], default: int, low: int, high: int) -> int:
    """Return the effective value for a group, within the bounds; `default` if it is not set."""
    text = overrides.get(name)
    return default if text is None else min(max(_number(GROUP_CONFIGS[name].parse(text)), low), high)


def describe_group_config(
    key: ConfigKey, overrides: Mapping[str, str], broker_synonyms: tuple[ConfigSynonym, ...]
) -> ConfigEntry:
    """Return one group setting for DescribeConfigs; `broker_synonyms` are those of its broker setting, best first."""
    value = overrides.get(key.name)
    own = () if value is None else (ConfigSynonym(key.name, value, ConfigSource.DYNAMIC_GROUP_CONFIG),)
    synonyms = (*own, *broker_synonyms)
    shown, source = (
        (synonyms[0].value, synonyms[0].source) if synonyms else (render(key.default), ConfigSource.DEFAULT_CONFIG)
    )
    return ConfigEntry(
        key.name, shown, key.type, source, key.sensitive, read_only=False, doc=key.doc, synonyms=synonyms
    )


def _number(value: ConfigValue) -> int:
    if not isinstance(value, int):
        raise TypeError(f"a setting of a group is {value!r}")
    return value
