"""Broker settings of transactions and producers: names, types and defaults of Apache Kafka 4.4, texts our own."""

from __future__ import annotations

from ottla.common.config.config_def import ConfigKey, ConfigType, Importance, UpdateMode, at_least
from ottla.common.config.topic_configs import HOUR_MS, WEEK_MS


def _fixed(
    name: str, default: int, doc: str, kind: ConfigType = ConfigType.INT, *, low: int = 1, high: bool = True
) -> ConfigKey:
    importance = Importance.HIGH if high else Importance.LOW
    return ConfigKey(name, kind, default, doc, at_least(low), importance, UpdateMode.READ_ONLY)


TRANSACTION_CONFIGS = [
    _fixed(
        "transaction.max.timeout.ms",
        900_000,
        "Maximum transaction.timeout.ms of a producer: an abandoned transaction blocks read_committed consumers for "
        "this time.",
    ),
    _fixed(
        "transactional.id.expiration.ms",
        WEEK_MS,
        "Time since its last transaction after which a transactional ID is removed; never while a transaction is open.",
    ),
    _fixed(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "Interval at which timed-out transactions are aborted.",
        high=False,
    ),
    _fixed(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        HOUR_MS,
        "Interval at which expired transactional IDs are removed.",
        high=False,
    ),
    _fixed(
        "transaction.state.log.num.partitions",
        50,
        "Number of partitions of __transaction_state; applied when the topic is created.",
    ),
    _fixed(
        "transaction.state.log.replication.factor",
        3,
        "Replication factor of __transaction_state. If not set: the number of live brokers, up to 3. A set value is "
        "enforced: with fewer live brokers the topic is not created.",
        ConfigType.SHORT,
    ),
    _fixed(
        "transaction.state.log.min.isr",
        2,
        "Minimum number of in-sync replicas of __transaction_state for a transaction to proceed, at most its "
        "replication factor; applied when the topic is created.",
    ),
    _fixed(
        "transaction.state.log.segment.bytes",
        100 * 1024**2,
        "Segment size of __transaction_state; applied when the topic is created.",
    ),
    _fixed(
        "transaction.coordinator.max.bytes",
        256 * 1024**2,
        "Maximum bytes of broker memory for transactional IDs and open transactions; half of it is for IDs. Specific "
        "to Ottla.",
        ConfigType.LONG,
        low=1024,
    ),
    _fixed(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        "Backoff before the broker retries adding a partition to a transaction while the previous transaction is "
        "still completing.",
    ),
    _fixed(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        "Maximum time that the broker retries on behalf of a producer; after it the producer gets a retriable error.",
        low=0,
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        ConfigType.BOOLEAN,
        True,
        "Verify with the transaction coordinator before a transaction's first write to a partition (KIP-890).",
        None,
        Importance.HIGH,
        UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        ConfigType.INT,
        24 * HOUR_MS,
        "Time since a producer's last write after which its sequence numbers are removed.",
        at_least(1),
        Importance.HIGH,
        UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        ConfigType.INT,
        600_000,
        "Time between removals of expired producers.",
        at_least(1),
        internal=True,
    ),
]
