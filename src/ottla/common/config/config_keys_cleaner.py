"""The broker settings of what works on logs in the background: the log cleaner, with names, types and defaults of
Apache Kafka 4.4, and the log scrubber, which it does not have; texts our own."""

from __future__ import annotations

from ottla.common.config.config_def import (
    MAX_DOUBLE,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    UpdateMode,
    Validator,
    at_least,
)


def _dynamic(
    name: str, kind: ConfigType, default: ConfigValue, doc: str, validator: Validator | None = None
) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, validator, Importance.MEDIUM, UpdateMode.CLUSTER_WIDE)


CLEANER_CONFIGS = [
    ConfigKey(
        "log.cleaner.enable",
        ConfigType.BOOLEAN,
        True,
        "Whether compacted topics are cleaned; without it they only grow, those of groups and transactions, too.",
        None,
        Importance.MEDIUM,
        UpdateMode.READ_ONLY,
    ),
    _dynamic(
        "log.cleaner.threads",
        ConfigType.INT,
        1,
        "Processes that clean, each one log at a time; none is started before there is work.",
        at_least(0),
    ),
    _dynamic(
        "log.cleaner.backoff.ms",
        ConfigType.LONG,
        15_000,
        "How often a log to clean is looked for while there is none.",
        at_least(0),
    ),
    _dynamic(
        "log.cleaner.dedupe.buffer.size",
        ConfigType.LONG,
        128 * 1024**2,
        "Memory for keys, 24 bytes each, for all processes together; more keys take more rounds.",
    ),
    _dynamic(
        "log.cleaner.io.buffer.load.factor",
        ConfigType.DOUBLE,
        0.9,
        "How full the memory for keys may be: more keys a round, and more time to find each.",
    ),
    _dynamic(
        "log.cleaner.io.buffer.size",
        ConfigType.INT,
        512 * 1024,
        "Bytes that are read at once, for all processes together; a batch is read whole.",
        at_least(0),
    ),
    _dynamic(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        MAX_DOUBLE,
        "Bytes that all processes together read and write in a second, on average over a round.",
    ),
]

SCRUBBER_CONFIGS = [
    _dynamic(
        "log.scrub.io.max.bytes.per.second",
        ConfigType.LONG,
        1024**2,
        "Bytes of complete segments that are read in a second to find damaged ones, none with 0; a batch counts for "
        "1 KiB at least. A setting of Ottla alone.",
        at_least(0),
    ),
]
