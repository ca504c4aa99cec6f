"""The broker settings of replication between brokers: names, types and defaults of Apache Kafka 4.4, texts our own."""

from __future__ import annotations

from ottla.common.config.config_def import (
    MAX_LONG,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    UpdateMode,
    Validator,
    at_least,
)


def _key(
    name: str,
    kind: ConfigType,
    default: ConfigValue,
    doc: str,
    validator: Validator | None = None,
    *,
    importance: Importance = Importance.MEDIUM,
    mode: UpdateMode = UpdateMode.READ_ONLY,
) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, validator, importance, mode)


REPLICATION_CONFIGS = [
    _key(
        "replica.lag.time.max.ms",
        ConfigType.LONG,
        30_000,
        "How long a follower may go without having caught up before it leaves the ISR.",
        at_least(1),
        importance=Importance.HIGH,
    ),
    _key(
        "replica.fetch.wait.max.ms",
        ConfigType.INT,
        500,
        "How long a leader lets a follower wait for new records; must be below replica.lag.time.max.ms.",
        at_least(0),
        importance=Importance.HIGH,
    ),
    _key(
        "replica.fetch.min.bytes",
        ConfigType.INT,
        1,
        "Bytes that a follower waits for in one fetch.",
        at_least(0),
        importance=Importance.HIGH,
    ),
    _key(
        "replica.fetch.max.bytes",
        ConfigType.INT,
        1024 * 1024,
        "Bytes that a follower asks for of one partition; a first batch that is larger comes whole.",
        at_least(0),
    ),
    _key(
        "replica.fetch.response.max.bytes",
        ConfigType.INT,
        10 * 1024 * 1024,
        "Bytes that a follower asks for in one fetch.",
        at_least(0),
    ),
    _key(
        "replica.fetch.backoff.ms",
        ConfigType.INT,
        1000,
        "Longest time until a follower tries again what failed; the first tries come sooner.",
        at_least(0),
    ),
    _key(
        "replica.socket.timeout.ms",
        ConfigType.INT,
        30_000,
        "How long a follower waits for an answer before it connects anew.",
        at_least(1),
        importance=Importance.HIGH,
    ),
    _key(
        "replica.selector.class",
        ConfigType.STRING,
        None,
        "Which replica consumers are sent to: org.apache.kafka.common.replica.RackAwareReplicaSelector names one in "
        "their rack, and without a value they read from leaders (KIP-392).",
    ),
    _key(
        "leader.replication.throttled.rate",
        ConfigType.LONG,
        MAX_LONG,
        "Bytes a second that this broker sends to followers that are throttled and not in sync.",
        at_least(0),
        mode=UpdateMode.CLUSTER_WIDE,
    ),
    _key(
        "follower.replication.throttled.rate",
        ConfigType.LONG,
        MAX_LONG,
        "Bytes a second that this broker fetches for its own replicas that are throttled and not in sync.",
        at_least(0),
        mode=UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        ConfigType.LONG,
        MAX_LONG,
        "Bytes a second that all moves of replicas between data directories of this broker may copy.",
        at_least(0),
        Importance.MEDIUM,
        UpdateMode.CLUSTER_WIDE,
        internal=True,
    ),
]
