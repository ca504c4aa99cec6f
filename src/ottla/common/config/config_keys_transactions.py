"""The broker settings of transactions: names, types and defaults of Apache Kafka 4.4, texts our own."""

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
        "The longest transaction.timeout.ms that a producer may ask for: so long an abandoned transaction holds "
        "consumers back.",
    ),
    _fixed(
        "transactional.id.expiration.ms",
        WEEK_MS,
        "Time after its last transaction from which a transactional id is forgotten; never while one is open.",
    ),
    _fixed(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "How often transactions whose time is up are looked for, to be aborted.",
        high=False,
    ),
    _fixed(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        HOUR_MS,
        "How often transactional ids that expired are looked for.",
        high=False,
    ),
    _fixed(
        "transaction.state.log.num.partitions",
        50,
        "Partitions of __transaction_state; takes effect when the topic is created.",
    ),
    _fixed(
        "transaction.state.log.replication.factor",
        3,
        "Replicas of __transaction_state. Not set: as many as there are live brokers, up to 3; a value that is set is "
        "enforced, and the topic is not created with less.",
        ConfigType.SHORT,
    ),
    _fixed(
        "transaction.state.log.min.isr",
        2,
        "Replicas of __transaction_state that must be in sync for a transaction to go on, at most all that there are; "
        "takes effect when the topic is created.",
    ),
    _fixed(
        "transaction.state.log.segment.bytes",
        100 * 1024**2,
        "Segment size of __transaction_state; takes effect when the topic is created.",
    ),
    _fixed(
        "transaction.coordinator.max.bytes",
        256 * 1024**2,
        "Most bytes that transactional ids and open transactions keep in the memory of a broker; half of it for ids. A "
        "setting of Ottla alone.",
        ConfigType.LONG,
        low=1024,
    ),
    _fixed(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        "The pause before a partition is added again to a transaction while the one before it is still ending.",
    ),
    _fixed(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        "How long that is tried on behalf of a producer, which is told to try again itself then.",
        low=0,
    ),
]
