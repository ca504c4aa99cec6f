"""Settings of a topic, complete as in Apache Kafka 4.4, and their defaults from broker settings.

A topic's effective setting is its own override, else the most specific broker setting that is set (dynamic before
static; `log.retention.ms` before `.minutes` before `.hours`), else the default. Texts are our own.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.config.config_def import (
    MAX_INT,
    MAX_LONG,
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    OneOf,
    RangeOr,
    ThrottledReplicas,
    UpdateMode,
    Validator,
    at_least,
    between,
    key_table,
    render,
)
from ottla.common.errors import ErrorCode, KafkaError

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
WEEK_MS = 7 * 24 * HOUR_MS
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = ("compact", "delete")
SEARCH_INDEXES = ("none", "key")
DEAD_LETTERS_ENABLE = "errors.deadletterqueue.group.enable"
MIN_SEGMENT_BYTES = 1024 * 1024


def _key(
    name: str,
    kind: ConfigType,
    default: ConfigValue,
    doc: str,
    *synonyms: str | tuple[str, int],
    validator: Validator | None = None,
    internal: bool = False,
) -> ConfigKey:
    pairs = tuple((item, 1) if isinstance(item, str) else item for item in synonyms)
    return ConfigKey(
        name,
        kind,
        default,
        doc,
        validator,
        update_mode=UpdateMode.CLUSTER_WIDE,
        server_synonyms=pairs,
        internal=internal,
    )


TOPIC_CONFIGS: Mapping[str, ConfigKey] = key_table(
    [
        _key(
            "cleanup.policy",
            ConfigType.LIST,
            ("delete",),
            "Policy for old segments: delete removes them by retention.ms and retention.bytes, compact keeps the "
            "latest record of each key, both together apply both.",
            "log.cleanup.policy",
            validator=OneOf(CLEANUP_POLICIES),
        ),
        _key(
            "compression.gzip.level",
            ConfigType.INT,
            -1,
            "Level for compression.type=gzip; -1 is the default of the codec.",
            "compression.gzip.level",
            validator=RangeOr(1, 9, -1),
        ),
        _key(
            "compression.lz4.level",
            ConfigType.INT,
            9,
            "Level for compression.type=lz4.",
            "compression.lz4.level",
            validator=between(1, 17),
        ),
        _key(
            "compression.zstd.level",
            ConfigType.INT,
            3,
            "Level for compression.type=zstd.",
            "compression.zstd.level",
            validator=between(-131072, 22),
        ),
        _key(
            "compression.type",
            ConfigType.STRING,
            "producer",
            "Codec of the stored batches: producer stores batches as sent, uncompressed removes compression, a "
            "codec's name makes the broker compress with it.",
            "compression.type",
            validator=OneOf(COMPRESSION_TYPES),
        ),
        _key(
            "delete.retention.ms",
            ConfigType.LONG,
            24 * HOUR_MS,
            "Time that a compacted topic retains tombstones, so that a consumer that reads from the beginning sees "
            "them.",
            "log.cleaner.delete.retention.ms",
            validator=at_least(0),
        ),
        _key(
            DEAD_LETTERS_ENABLE,
            ConfigType.BOOLEAN,
            False,
            "Allow share groups to write dead letters to this topic.",
        ),
        _key(
            "file.delete.delay.ms",
            ConfigType.LONG,
            MINUTE_MS,
            "Time between renaming a segment's files to .deleted and removing them.",
            "log.segment.delete.delay.ms",
            validator=at_least(0),
        ),
        _key(
            "flush.messages",
            ConfigType.LONG,
            MAX_LONG,
            "Number of records after which the log is flushed to disk; the default leaves flushing to the operating "
            "system.",
            "log.flush.interval.messages",
            validator=at_least(1),
        ),
        _key(
            "flush.ms",
            ConfigType.LONG,
            MAX_LONG,
            "Time after which the log is flushed to disk; checked every log.flush.scheduler.interval.ms.",
            "log.flush.interval.ms",
            "log.flush.scheduler.interval.ms",
            validator=at_least(0),
        ),
        _key(
            "follower.replication.throttled.replicas",
            ConfigType.LIST,
            (),
            "Replicas throttled on the follower side: partition:broker pairs, or *.",
            validator=ThrottledReplicas(),
        ),
        _key(
            "leader.replication.throttled.replicas",
            ConfigType.LIST,
            (),
            "Replicas throttled on the leader side: partition:broker pairs, or *.",
            validator=ThrottledReplicas(),
        ),
        _key(
            "index.interval.bytes",
            ConfigType.INT,
            4096,
            "Bytes of log between two entries of the offset index; a smaller value makes seeks more precise and "
            "indexes larger.",
            "log.index.interval.bytes",
            validator=at_least(0),
        ),
        _key(
            "local.retention.bytes",
            ConfigType.LONG,
            -2,
            "Bytes retained on local disk when older segments are in tiered storage; -2 means retention.bytes. No "
            "effect: tiered storage is not supported yet.",
            "log.local.retention.bytes",
            validator=at_least(-2),
        ),
        _key(
            "local.retention.ms",
            ConfigType.LONG,
            -2,
            "Time that segments are retained on local disk when older ones are in tiered storage; -2 means "
            "retention.ms. No effect: tiered storage is not supported yet.",
            "log.local.retention.ms",
            validator=at_least(-2),
        ),
        _key(
            "max.compaction.lag.ms",
            ConfigType.LONG,
            MAX_LONG,
            "Maximum time that a record stays uncompacted.",
            "log.cleaner.max.compaction.lag.ms",
            validator=at_least(1),
        ),
        _key(
            "min.compaction.lag.ms",
            ConfigType.LONG,
            0,
            "Minimum time that a record stays uncompacted.",
            "log.cleaner.min.compaction.lag.ms",
            validator=at_least(0),
        ),
        _key(
            "min.cleanable.dirty.ratio",
            ConfigType.DOUBLE,
            0.5,
            "Ratio of uncompacted bytes at which a log is compacted; a higher ratio costs less I/O and more disk "
            "space.",
            "log.cleaner.min.cleanable.ratio",
            validator=between(0, 1),
        ),
        _key(
            "max.decompressed.message.bytes",
            ConfigType.INT,
            MAX_INT - 8,
            "Maximum decompressed size of a record in a compressed batch, in bytes; checked when the batch is "
            "produced, not for stored batches. Values of 134217728 and above have no effect: that is the limit for a "
            "whole batch.",
            "max.decompressed.message.bytes",
            validator=between(1, MAX_INT - 8),
        ),
        _key(
            "max.message.bytes",
            ConfigType.INT,
            1048588,
            "Maximum size of a record batch, in bytes after compression.",
            "message.max.bytes",
            validator=at_least(0),
        ),
        _key(
            "message.timestamp.after.max.ms",
            ConfigType.LONG,
            HOUR_MS,
            "Maximum time that a CreateTime timestamp may be ahead of the broker's clock; batches beyond it are "
            "rejected.",
            "log.message.timestamp.after.max.ms",
            validator=at_least(0),
        ),
        _key(
            "message.timestamp.before.max.ms",
            ConfigType.LONG,
            MAX_LONG,
            "Maximum time that a CreateTime timestamp may be behind the broker's clock; batches beyond it are "
            "rejected.",
            "log.message.timestamp.before.max.ms",
            validator=at_least(0),
        ),
        _key(
            "message.timestamp.type",
            ConfigType.STRING,
            "CreateTime",
            "Timestamp of stored records: that of the producer (CreateTime) or the time of the append (LogAppendTime).",
            "log.message.timestamp.type",
            validator=OneOf(TIMESTAMP_TYPES),
        ),
        _key(
            "min.insync.replicas",
            ConfigType.INT,
            1,
            "Minimum number of in-sync replicas, including the leader, for a write with acks=all.",
            "min.insync.replicas",
            validator=at_least(1),
        ),
        _key(
            "ottla.search.index",
            ConfigType.STRING,
            "none",
            "key builds filters of the keys in each closed segment, so that ottla search finds records by key without "
            "reading the whole log. An extension of Ottla; none builds none.",
            validator=OneOf(SEARCH_INDEXES),
        ),
        _key(
            "preallocate",
            ConfigType.BOOLEAN,
            False,
            "Preallocate the blocks of a new segment. No effect: blocks are allocated as a segment grows.",
            "log.preallocate",
        ),
        _key(
            "remote.copy.lag.bytes",
            ConfigType.LONG,
            -1,
            "Size of the newer log at which a segment is copied to tiered storage; -1 means local.retention.bytes. "
            "No effect: tiered storage is not supported yet.",
            "log.remote.copy.lag.bytes",
            validator=at_least(-1),
        ),
        _key(
            "remote.copy.lag.ms",
            ConfigType.LONG,
            0,
            "Age at which a segment is copied to tiered storage; 0 means immediately, -1 means local.retention.ms. "
            "No effect: tiered storage is not supported yet.",
            "log.remote.copy.lag.ms",
            validator=at_least(-1),
        ),
        _key(
            "remote.log.copy.disable",
            ConfigType.BOOLEAN,
            False,
            "Stop copying segments of this topic to tiered storage; segments already copied stay readable. No "
            "effect: tiered storage is not supported yet.",
        ),
        _key(
            "remote.log.delete.on.disable",
            ConfigType.BOOLEAN,
            False,
            "Delete the tiered data of this topic when its tiered storage is disabled. No effect: tiered storage is "
            "not supported yet.",
        ),
        _key(
            "remote.storage.enable",
            ConfigType.BOOLEAN,
            False,
            "Keep older segments of this topic in tiered storage.",
        ),
        _key(
            "retention.bytes",
            ConfigType.LONG,
            -1,
            "Size of a partition above which its oldest segments are deleted; -1 means no limit.",
            "log.retention.bytes",
        ),
        _key(
            "retention.ms",
            ConfigType.LONG,
            WEEK_MS,
            "Age of the newest record in a segment at which the segment is deleted; -1 means no limit.",
            "log.retention.ms",
            ("log.retention.minutes", MINUTE_MS),
            ("log.retention.hours", HOUR_MS),
            validator=at_least(-1),
        ),
        _key(
            "segment.bytes",
            ConfigType.INT,
            1024**3,
            "Size at which a new segment is rolled. Retention and compaction work on whole segments.",
            "log.segment.bytes",
            validator=at_least(MIN_SEGMENT_BYTES),
        ),
        _key(
            "segment.index.bytes",
            ConfigType.INT,
            10 * 1024**2,
            "Maximum size of a segment's offset index; a full index rolls a new segment.",
            "log.index.size.max.bytes",
            validator=at_least(4),
        ),
        _key(
            "segment.jitter.ms",
            ConfigType.LONG,
            0,
            "Maximum random reduction of segment.ms, so that many partitions do not roll segments at the same time.",
            "log.roll.jitter.ms",
            ("log.roll.jitter.hours", HOUR_MS),
            validator=at_least(0),
        ),
        _key(
            "segment.ms",
            ConfigType.LONG,
            WEEK_MS,
            "Age at which a new segment is rolled even if the current one is not full.",
            "log.roll.ms",
            ("log.roll.hours", HOUR_MS),
            validator=at_least(1),
        ),
        _key(
            "unclean.leader.election.enable",
            ConfigType.BOOLEAN,
            False,
            "Allow a replica outside the ISR to become leader when no replica in the ISR is available; acknowledged "
            "records may be lost.",
            "unclean.leader.election.enable",
        ),
        _key(
            "internal.segment.bytes",
            ConfigType.INT,
            None,
            "Segment size below the minimum of segment.bytes, for tests only.",
            validator=at_least(1),
            internal=True,
        ),
    ]
)


def parse_topic_configs(overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Validate a topic's overrides; raises KafkaError INVALID_CONFIG for an unknown name or a bad value."""
    for name in overrides:
        if name not in TOPIC_CONFIGS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    return {name: TOPIC_CONFIGS[name].parse(text) for name, text in overrides.items()}


def validate_topic_configs(overrides: Mapping[str, str], defaults: Mapping[str, ConfigValue]) -> None:
    """Check rules over several settings of one topic; `defaults` as from `topic_defaults`. Raises INVALID_CONFIG."""
    values = {**defaults, **parse_topic_configs(overrides)}
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})",
        )
    if values["remote.storage.enable"]:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )


def topic_defaults(broker_values: Mapping[str, ConfigValue], explicit: frozenset[str]) -> dict[str, ConfigValue]:
    """Return the values of topic settings without overrides.

    `broker_values`: effective value of every broker setting; `explicit`: names that any layer sets.
    """
    result: dict[str, ConfigValue] = {}
    for key in TOPIC_CONFIGS.values():
        value = key.default
        for name, factor in key.server_synonyms:
            if name in explicit:
                found = broker_values[name]
                # -1 hours means no limit, not -3,600,000 milliseconds.
                value = found * factor if type(found) is int and factor != 1 and found > 0 else found
                break
        result[key.name] = value
    return result


def topic_properties(defaults: Mapping[str, ConfigValue], overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the complete effective settings as text, for `storage.LogConfig.from_properties`."""
    merged = {name: render(value) for name, value in defaults.items()} | dict(overrides)
    internal_segment_bytes = merged.pop("internal.segment.bytes", None)
    if internal_segment_bytes is not None:
        merged["segment.bytes"] = internal_segment_bytes
    return {name: text for name, text in merged.items() if text is not None}


def describe_topic_config(
    key: ConfigKey,
    overrides: Mapping[str, str],
    defaults: Mapping[str, ConfigValue],
    broker_synonyms: Mapping[str, tuple[ConfigSynonym, ...]],
) -> ConfigEntry:
    """Return one topic setting for DescribeConfigs; `broker_synonyms` are those of its broker settings, best first."""
    synonyms: list[ConfigSynonym] = []
    value = overrides.get(key.name)
    if value is not None:
        synonyms.append(ConfigSynonym(key.name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
    if key.server_synonyms:
        synonyms.extend(broker_synonyms.get(key.server_synonyms[0][0], ()))
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    shown = value if value is not None else render(defaults[key.name])
    return ConfigEntry(
        key.name, shown, key.type, source, key.sensitive, read_only=False, doc=key.doc, synonyms=tuple(synonyms)
    )
