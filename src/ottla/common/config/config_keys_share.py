"""Broker settings of the share coordinator: names, types and defaults of Apache Kafka 4.4, texts our own."""

from __future__ import annotations

from ottla.common.config.config_def import (
    ConfigKey,
    ConfigType,
    Importance,
    UpdateMode,
    Validator,
    at_least,
    between,
)


def _fixed(
    name: str,
    default: int,
    doc: str,
    kind: ConfigType = ConfigType.INT,
    validator: Validator | None = None,
    *,
    internal: bool = False,
) -> ConfigKey:
    return ConfigKey(
        f"share.coordinator.{name}",
        kind,
        default,
        doc,
        at_least(1) if validator is None else validator,
        Importance.MEDIUM,
        UpdateMode.READ_ONLY,
        internal=internal,
    )


SHARE_COORDINATOR_CONFIGS = [
    _fixed(
        "state.topic.num.partitions",
        50,
        "Number of partitions of __share_group_state; applied when the topic is created.",
    ),
    _fixed(
        "state.topic.replication.factor",
        3,
        "Replication factor of __share_group_state. If not set: the number of live brokers, up to 3. A set value is "
        "enforced: with fewer live brokers the topic is not created.",
        ConfigType.SHORT,
    ),
    _fixed(
        "state.topic.min.isr",
        2,
        "Minimum number of in-sync replicas of __share_group_state for a write, at most its replication factor; "
        "applied when the topic is created.",
        ConfigType.SHORT,
    ),
    _fixed(
        "state.topic.segment.bytes",
        100 * 1024**2,
        "Segment size of __share_group_state; applied when the topic is created.",
    ),
    _fixed(
        "state.topic.compression.codec",
        0,
        "Codec of the share coordinator's batches: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        validator=between(0, 4),
    ),
    _fixed(
        "write.timeout.ms",
        5_000,
        "Maximum wait for the replication of a change to the state of a share partition.",
    ),
    _fixed(
        "snapshot.update.records.per.snapshot",
        500,
        "Number of update records of a share partition between two snapshots of its state.",
        validator=between(0, 500),
    ),
    _fixed(
        "cold.partition.snapshot.interval.ms",
        300_000,
        "Interval at which share partitions without writes get a new snapshot, so that older records can be deleted.",
        internal=True,
    ),
    _fixed(
        "state.topic.prune.interval.ms",
        300_000,
        "Interval at which records of __share_group_state before all required snapshots are deleted.",
        internal=True,
    ),
    _fixed(
        "max.bytes",
        256 * 1024**2,
        "Maximum bytes of broker memory for the state of share partitions. Specific to Ottla.",
        ConfigType.LONG,
        at_least(1024),
    ),
]
