"""Broker settings of the log cleaner and the log scrubber: Kafka 4.4's names and defaults; the scrubber is our own."""

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
        "Run the log cleaner. Without it compacted topics grow without bound, including __consumer_offsets and "
        "__transaction_state.",
        None,
        Importance.MEDIUM,
        UpdateMode.READ_ONLY,
    ),
    _dynamic(
        "log.cleaner.threads",
        ConfigType.INT,
        1,
        "Number of cleaner processes; each cleans one log at a time and starts when there is work.",
        at_least(0),
    ),
    _dynamic(
        "log.cleaner.backoff.ms",
        ConfigType.LONG,
        15_000,
        "Interval of checks for cleanable logs while there are none.",
        at_least(0),
    ),
    _dynamic(
        "log.cleaner.dedupe.buffer.size",
        ConfigType.LONG,
        128 * 1024**2,
        "Memory for the key map of all cleaner processes together, at 24 bytes a key; a log with more keys takes "
        "more passes.",
    ),
    _dynamic(
        "log.cleaner.io.buffer.load.factor",
        ConfigType.DOUBLE,
        0.9,
        "Maximum fill ratio of the key map: a higher ratio fits more keys in a pass and slows down lookups.",
    ),
    _dynamic(
        "log.cleaner.io.buffer.size",
        ConfigType.INT,
        512 * 1024,
        "Read size in bytes of all cleaner processes together; a batch is read whole.",
        at_least(0),
    ),
    _dynamic(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        MAX_DOUBLE,
        "Bytes per second that all cleaner processes together read and write, averaged over a pass.",
    ),
]

SCRUBBER_CONFIGS = [
    _dynamic(
        "log.scrub.io.max.bytes.per.second",
        ConfigType.LONG,
        1024**2,
        "Bytes per second of complete segments that the scrubber reads to detect damage; 0 disables it. A batch "
        "counts as at least 1 KiB. Specific to Ottla.",
        at_least(0),
    ),
]
