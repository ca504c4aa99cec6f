"""Settings of a group (resource type GROUP, KIP-1043 ff.) and their defaults from broker settings.

They are set for a group id, whether the group exists or not. A value must be between the broker's minimum and maximum
when it is set. Both bounds may change with a restart, so the coordinator reads values through `clamped`. Settings of
streams groups are not implemented. Texts are our own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.common.config.config_def import (
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    OneOf,
    UnlimitedOrPositive,
    UpdateMode,
    Validator,
    at_least,
    between,
    key_table,
    render,
)
from ottla.common.errors import ErrorCode, KafkaError

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"
SHARE_SESSION_TIMEOUT = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"
SHARE_ASSIGNMENT_INTERVAL = "share.assignment.interval.ms"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPY_RECORD = "errors.deadletterqueue.copy.record.enable"
DEAD_LETTER_COPY_HEADERS = "ottla.dlq.copy.headers"
DEAD_LETTER_ON_FAILURE = "ottla.dlq.on.failure"
RETAIN, ARCHIVE = "retain", "archive"
RETRY_BACKOFF = "ottla.share.retry.backoff.ms"
RETRY_BACKOFF_MULTIPLIER = "ottla.share.retry.backoff.multiplier"
RETRY_BACKOFF_MAX = "ottla.share.retry.backoff.max.ms"
SHARE_MAX_RECORDS_PER_SECOND = "ottla.share.max.records.per.second"
DAY_MS = 86_400_000

_DURATION = re.compile(
    r"P(?=[0-9T])(?:[0-9]{1,9}D)?(?:T(?=[0-9])(?:[0-9]{1,9}H)?(?:[0-9]{1,9}M)?(?:[0-9]{1,9}(?:\.[0-9]{1,9})?S)?)?",
    re.IGNORECASE,
)
"""An ISO 8601 duration of days, hours, minutes and seconds."""


class ShareOffsetReset(NamedTuple):
    """`latest`, `earliest`, or `by_duration:` and a duration (KIP-1106)."""

    def problem(self, value: ConfigValue) -> str | None:
        if value in ("latest", "earliest"):
            return None
        prefix, _, duration = str(value).partition(":")
        if prefix == "by_duration" and _DURATION.fullmatch(duration):
            return None
        return (
            f"Invalid value `{value}` for configuration share.auto.offset.reset. The value must be either 'earliest', "
            "'latest' or of the format 'by_duration:<PnDTnHnMn.nS.>'."
        )

    def describe(self) -> str:
        return "[latest, earliest, by_duration:PnDTnHnMn.nS]"


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


def _own(name: str, kind: ConfigType, default: ConfigValue, validator: Validator | None, doc: str) -> ConfigKey:
    """A setting without a broker setting."""
    return ConfigKey(name, kind, default, doc, validator, update_mode=UpdateMode.CLUSTER_WIDE)


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
        _key(
            SHARE_SESSION_TIMEOUT,
            45_000,
            1,
            "Time without a heartbeat after which a member is removed from the share group.",
        ),
        _key(
            SHARE_HEARTBEAT_INTERVAL,
            5_000,
            1,
            "Heartbeat interval of share group members; a heartbeat response delivers assignment changes.",
        ),
        _key(
            SHARE_ASSIGNMENT_INTERVAL,
            1_000,
            0,
            "Minimum time between two target assignments of the share group.",
        ),
        _key(
            "share.delivery.count.limit",
            5,
            2,
            "Deliveries of a record after which the share group archives it if it was not acknowledged.",
        ),
        _key(
            "share.partition.max.record.locks",
            2_000,
            100,
            "Maximum number of records in the window of a share partition, from its start offset to its end offset.",
        ),
        _key(
            "share.record.lock.duration.ms",
            30_000,
            1_000,
            "Time for which a record that was delivered to a member is locked.",
        ),
        _own(
            "share.auto.offset.reset",
            ConfigType.STRING,
            "latest",
            ShareOffsetReset(),
            "Start offset of a partition that the share group has not read yet.",
        ),
        _own(
            "share.isolation.level",
            ConfigType.STRING,
            "read_uncommitted",
            OneOf(("read_committed", "read_uncommitted")),
            "Whether the share group gets records of open and aborted transactions.",
        ),
        _own(
            "share.renew.acknowledge.enable",
            ConfigType.BOOLEAN,
            True,
            None,
            "Whether members may renew the lock of a record (KIP-1222).",
        ),
        _own(
            DEAD_LETTER_TOPIC,
            ConfigType.STRING,
            "",
            None,
            "Topic for the dead letters of the share group: rejected records, and those that were delivered "
            "share.delivery.count.limit times. Empty: they are only archived. It requires share.version 2, and "
            "errors.deadletterqueue.group.enable=true for the topic.",
        ),
        _own(
            DEAD_LETTER_COPY_RECORD,
            ConfigType.BOOLEAN,
            False,
            None,
            "Whether dead letters contain the key and the value of the record.",
        ),
        _own(
            DEAD_LETTER_COPY_HEADERS,
            ConfigType.BOOLEAN,
            True,
            None,
            "Whether dead letters contain the headers and the timestamp of the record. Specific to Ottla.",
        ),
        _own(
            DEAD_LETTER_ON_FAILURE,
            ConfigType.STRING,
            RETAIN,
            OneOf((ARCHIVE, RETAIN)),
            "Handling of a record whose dead letter cannot be written: retain keeps it and tries again, archive gives "
            "it up as Apache Kafka does. Specific to Ottla.",
        ),
        _own(
            RETRY_BACKOFF,
            ConfigType.INT,
            0,
            between(0, DAY_MS),
            "Delay of a record after its first failed delivery: the member released it, its lock ended, or the session "
            "of the member ended. 0: the record is available at once, as in Apache Kafka. Specific to Ottla.",
        ),
        _own(
            RETRY_BACKOFF_MULTIPLIER,
            ConfigType.DOUBLE,
            2.0,
            between(1, 100),
            "Factor by which ottla.share.retry.backoff.ms grows with each further failed delivery. Specific to Ottla.",
        ),
        _own(
            RETRY_BACKOFF_MAX,
            ConfigType.INT,
            60_000,
            between(1, DAY_MS),
            "Maximum of the delay of a failed record, to which 0 to 20 % are added. Specific to Ottla.",
        ),
        _own(
            SHARE_MAX_RECORDS_PER_SECOND,
            ConfigType.INT,
            -1,
            UnlimitedOrPositive(),
            "Maximum rate of deliveries of a topic to the share group, repeated ones included. Each partition has an "
            "equal part of it. -1: no limit. Specific to Ottla.",
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
    bounded = [name for name, key in GROUP_CONFIGS.items() if key.server_synonyms]
    values = {name: _number(broker_values[f"group.{name}"]) for name in bounded}
    for name, text in overrides.items():
        value = GROUP_CONFIGS[name].parse(text)
        if name in values:
            values[name] = _number(value)
    for name in overrides:
        if name not in values:
            continue
        bounds = bounds_of(name)
        if values[name] < _number(broker_values[bounds.low]):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {bounds.low}")
        if values[name] > _number(broker_values[bounds.high]):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {bounds.high}")
    for session, heartbeat in (
        (SESSION_TIMEOUT, HEARTBEAT_INTERVAL),
        (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL),
    ):
        if values[session] <= values[heartbeat]:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{session} must be greater than {heartbeat}")


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
