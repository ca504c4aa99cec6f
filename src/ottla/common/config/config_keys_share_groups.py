"""Broker settings of share groups (KIP-932): names, types and defaults of Apache Kafka 4.4, texts our own."""

from __future__ import annotations

from ottla.common.config.config_def import (
    ConfigKey,
    ConfigType,
    Importance,
    OneOf,
    UpdateMode,
    at_least,
    between,
)

HOUR_MS = 3_600_000
DEAD_LETTER_AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"
DEAD_LETTER_PREFIX = "errors.deadletterqueue.topic.name.prefix"


def _fixed(
    name: str, default: int, doc: str, low: int, high: int | None = None, *, internal: bool = False
) -> ConfigKey:
    validator = at_least(low) if high is None else between(low, high)
    return ConfigKey(
        name, ConfigType.INT, default, doc, validator, Importance.MEDIUM, UpdateMode.READ_ONLY, internal=internal
    )


SHARE_GROUP_CONFIGS = [
    ConfigKey(
        "group.share.assignors",
        ConfigType.LIST,
        ("simple",),
        "Assignors of share groups; the first is used.",
        OneOf(("simple",)),
    ),
    _fixed("group.share.max.size", 200, "Maximum number of members in a share group.", 1, 1000),
    _fixed("group.share.session.timeout.ms", 45_000, "Session timeout of share group members.", 1),
    _fixed("group.share.min.session.timeout.ms", 45_000, "Minimum session timeout of share group members.", 1),
    _fixed("group.share.max.session.timeout.ms", 60_000, "Maximum session timeout of share group members.", 1),
    _fixed(
        "group.share.heartbeat.interval.ms",
        5_000,
        "Heartbeat interval that the coordinator returns to share group members.",
        1,
    ),
    _fixed("group.share.min.heartbeat.interval.ms", 5_000, "Minimum heartbeat interval of share group members.", 1),
    _fixed("group.share.max.heartbeat.interval.ms", 15_000, "Maximum heartbeat interval of share group members.", 1),
    ConfigKey(
        "group.share.assignment.interval.ms",
        ConfigType.INT,
        1_000,
        "Minimum time between two target assignments of a share group, so that members that join at the same time "
        "share one assignment.",
        at_least(0),
        Importance.HIGH,
        UpdateMode.CLUSTER_WIDE,
    ),
    _fixed("group.share.min.assignment.interval.ms", 0, "Minimum value of share.assignment.interval.ms.", 0),
    _fixed("group.share.max.assignment.interval.ms", 15_000, "Maximum value of share.assignment.interval.ms.", 0),
    _fixed(
        "group.share.delivery.count.limit",
        5,
        "Deliveries of a record after which a share group archives it if it was not acknowledged.",
        2,
        10,
    ),
    _fixed("group.share.min.delivery.count.limit", 2, "Minimum value of share.delivery.count.limit.", 2, 5),
    _fixed("group.share.max.delivery.count.limit", 10, "Maximum value of share.delivery.count.limit.", 5, 25),
    _fixed(
        "group.share.record.lock.duration.ms",
        30_000,
        "Time for which a record that was delivered to a share group member is locked.",
        1_000,
        HOUR_MS,
    ),
    _fixed(
        "group.share.min.record.lock.duration.ms",
        15_000,
        "Minimum value of share.record.lock.duration.ms.",
        1_000,
        30_000,
    ),
    _fixed(
        "group.share.max.record.lock.duration.ms",
        60_000,
        "Maximum value of share.record.lock.duration.ms.",
        30_000,
        HOUR_MS,
    ),
    _fixed(
        "group.share.partition.max.record.locks",
        2_000,
        "Maximum number of records in the window of a share partition, from its start offset to its end offset.",
        100,
        10_000,
    ),
    _fixed(
        "group.share.min.partition.max.record.locks",
        100,
        "Minimum value of share.partition.max.record.locks.",
        100,
        2_000,
    ),
    _fixed(
        "group.share.max.partition.max.record.locks",
        4_000,
        "Maximum value of share.partition.max.record.locks.",
        2_000,
        10_000,
    ),
    _fixed("group.share.max.share.sessions", 2_000, "Maximum number of share sessions of this broker.", 1),
    _fixed(
        "group.share.initialize.retry.interval.ms",
        30_000,
        "Time after which the initialization of share state is repeated if its outcome is unknown.",
        1,
        internal=True,
    ),
    ConfigKey(
        DEAD_LETTER_AUTO_CREATE,
        ConfigType.BOOLEAN,
        False,
        "Create the dead-letter topic of a share group if it does not exist.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        DEAD_LETTER_PREFIX,
        ConfigType.STRING,
        "dlq.",
        "Prefix that the names of dead-letter topics must have; an empty one permits any name.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
]

_BOUNDED = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "assignment.interval.ms",
    "delivery.count.limit",
    "record.lock.duration.ms",
    "partition.max.record.locks",
)
ORDERED_SHARE_SETTINGS = (
    *((f"group.share.min.{name}", f"group.share.{name}") for name in _BOUNDED),
    *((f"group.share.{name}", f"group.share.max.{name}") for name in _BOUNDED),
    ("group.share.max.size", "group.share.max.share.sessions"),
)
"""Pairs of settings: the first must not be larger than the second, as Apache Kafka requires."""
