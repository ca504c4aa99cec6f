"""Broker settings of replication: names, types and defaults of Apache Kafka 4.4, texts our own."""

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
        "Time after which a follower that has not caught up is removed from the ISR.",
        at_least(1),
        importance=Importance.HIGH,
    ),
    _key(
        "replica.fetch.wait.max.ms",
        ConfigType.INT,
        500,
        "Maximum time that a leader delays the response to a follower's fetch; must be below replica.lag.time.max.ms.",
        at_least(0),
        importance=Importance.HIGH,
    ),
    _key(
        "replica.fetch.min.bytes",
        ConfigType.INT,
        1,
        "Minimum bytes that a leader collects before it responds to a follower's fetch.",
        at_least(0),
        importance=Importance.HIGH,
    ),
    _key(
        "replica.fetch.max.bytes",
        ConfigType.INT,
        1024 * 1024,
        "Maximum bytes that a follower fetches from one partition; a larger first batch is returned whole.",
        at_least(0),
    ),
    _key(
        "replica.fetch.response.max.bytes",
        ConfigType.INT,
        10 * 1024 * 1024,
        "Maximum bytes in the response to a follower's fetch.",
        at_least(0),
    ),
    _key(
        "replica.fetch.backoff.ms",
        ConfigType.INT,
        1000,
        "Maximum backoff of a follower after a failed fetch; the first retries come sooner.",
        at_least(0),
    ),
    _key(
        "replica.socket.timeout.ms",
        ConfigType.INT,
        30_000,
        "Time that a follower waits for a response before it reconnects.",
        at_least(1),
        importance=Importance.HIGH,
    ),
    _key(
        "replica.selector.class",
        ConfigType.STRING,
        None,
        "Replica that consumers fetch from (KIP-392): org.apache.kafka.common.replica.RackAwareReplicaSelector "
        "selects one in their rack; if not set, consumers fetch from the leader.",
    ),
    _key(
        "leader.replication.throttled.rate",
        ConfigType.LONG,
        MAX_LONG,
        "Bytes per second that this broker sends to throttled followers that are not in sync.",
        at_least(0),
        mode=UpdateMode.CLUSTER_WIDE,
    ),
    _key(
        "follower.replication.throttled.rate",
        ConfigType.LONG,
        MAX_LONG,
        "Bytes per second that this broker fetches for throttled replicas that are not in sync.",
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
