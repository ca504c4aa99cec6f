"""What is copied whereto: topics by a pattern, their names and settings in the target, and cycles, which are refused.

A partition's route is its identity: by it the transactional id is named, and its progress.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.wire.model import ConfigEntry, TopicInfo
from ottla.common.errors import OperatorError

PROGRESS_TOPIC = "ottla-mirror-progress"
"""In the target: one partition, compacted, written in the transactions that it tells of."""

PLACE = "{topic}"
"""Of a new name: where the old one goes."""

COPIED_SETTINGS = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.ms",
    }
)
"""Topic settings that are copied. The rest depends on the cluster: replication, throttles, tiers, and timestamp limits,
which `admitting_settings` chooses."""

CLEANUP_POLICY = "cleanup.policy"
COMPRESSION_TYPE = "compression.type"
TIMESTAMP_TYPE = "message.timestamp.type"
TIMESTAMP_AFTER = "message.timestamp.after.max.ms"
TIMESTAMP_BEFORE = "message.timestamp.before.max.ms"
TIMESTAMP_DIFFERENCE = "message.timestamp.difference.max.ms"
"""Of Apache Kafka before 4.0, for both directions."""
RECORD_SIZES = ("max.message.bytes", "max.decompressed.message.bytes")
MAX_LONG = (1 << 63) - 1
BROKER_DEFAULTS = {"message.max.bytes": "max.message.bytes", "log.cleanup.policy": CLEANUP_POLICY}
"""Broker settings that are the default of a topic setting which the progress topic overrides."""


class Origin(NamedTuple):
    """A topic in a cluster."""

    cluster_id: str
    topic: str


class Route(NamedTuple):
    """From a partition of a cluster into a topic of the cluster that keeps the progress."""

    cluster_id: str
    topic: str
    partition: int
    target: str

    @property
    def transactional_id(self) -> str:
        """The same for whoever copies this; no name of a topic has a slash."""
        return f"ottla-mirror/{self.cluster_id}/{self.topic}/{self.partition}/{self.target}"


def renamed(topic: str, template: str) -> str:
    """The topic's name in the target. Raises OperatorError for the one that mirrors keep for themselves."""
    name = template.replace(PLACE, topic)
    if name == PROGRESS_TOPIC:
        raise OperatorError(
            f"--rename {template!r} makes {name!r} of topic {topic!r}, where mirrors keep how far they came: choose "
            "another one, or leave that topic out of --topics"
        )
    return name


def chosen_topics(topics: Mapping[str, TopicInfo], pattern: re.Pattern[str]) -> dict[str, TopicInfo]:
    """Those whose whole name matches; none that brokers or mirrors keep for themselves."""
    return {
        name: info
        for name, info in topics.items()
        if not info.is_internal and name != PROGRESS_TOPIC and pattern.fullmatch(name)
    }


class TargetSettings(NamedTuple):
    """The topic settings that the target knows, and their defaults there as far as it shows them."""

    names: frozenset[str]
    defaults: dict[str, str]


def copied_settings(entries: Iterable[ConfigEntry], target: TargetSettings) -> dict[str, str]:
    """Settings of a new topic of the target, by those of the source's topic: its overrides in COPIED_SETTINGS, and
    `admitting_settings`."""
    source = {entry.name: entry for entry in entries if entry.value is not None}
    overrides = {
        name: entry.value
        for name, entry in source.items()
        if name in COPIED_SETTINGS & target.names and entry.source == "topic" and entry.value is not None
    }
    values = {name: entry.value for name, entry in source.items() if entry.value is not None}
    return admitting_settings(values, target) | overrides


def admitting_settings(source: Mapping[str, str], target: TargetSettings) -> dict[str, str]:
    """Settings by which a new topic of the target accepts each record that a topic with these effective settings
    accepted; only those whose default in the target is narrower or not known.

    Limits of a timestamp's age are lifted, since a record grows older between both clusters.
    """
    defaults, found = target.defaults, {}
    limits = {name: int(source[name]) for name in RECORD_SIZES if name in source}
    limits[TIMESTAMP_AFTER] = _after_max_ms(source)
    limits[TIMESTAMP_BEFORE] = limits[TIMESTAMP_DIFFERENCE] = MAX_LONG
    for name, limit in limits.items():
        if int(defaults.get(name, -1)) < limit:
            found[name] = str(limit)
    policy = source.get(CLEANUP_POLICY, "delete")
    if "compact" not in policy and "compact" in defaults.get(CLEANUP_POLICY, "compact"):
        found[CLEANUP_POLICY] = policy
    codec = source.get(COMPRESSION_TYPE, "producer")
    if defaults.get(COMPRESSION_TYPE, codec) not in ("producer", codec):
        found[COMPRESSION_TYPE] = codec
    if defaults.get(TIMESTAMP_TYPE, "CreateTime") != "CreateTime":
        found[TIMESTAMP_TYPE] = "CreateTime"
    return {name: value for name, value in found.items() if name in target.names}


def _after_max_ms(source: Mapping[str, str]) -> int:
    """How far timestamps may be in the future. Apache Kafka 3.6 to 3.9 has two settings for it, older ones one."""
    after = int(source.get(TIMESTAMP_AFTER, MAX_LONG))
    return after if after != MAX_LONG else int(source.get(TIMESTAMP_DIFFERENCE, MAX_LONG))


def require_two_clusters(source_id: str | None, target_id: str | None) -> tuple[str, str]:
    """Both ids. Raises OperatorError where they are one, or where a broker tells none."""
    if not source_id or not target_id:
        raise OperatorError("a broker of --from or --to tells no cluster id: it is older than Apache Kafka 0.10.1")
    if source_id == target_id:
        raise OperatorError(
            f"--from and --to are one cluster, {source_id}: its topics would be copied onto themselves; "
            "name two clusters"
        )
    return source_id, target_id


def refuse_cycle(topic: str, target_id: str, origins: frozenset[Origin]) -> None:
    """Raise OperatorError where what is in the source's topic came, over any number of clusters, from the target.

    So no record ever returns to a cluster in which it was, under no name: it would go round for ever.
    """
    for origin in sorted(origins):
        if origin.cluster_id == target_id:
            raise OperatorError(
                f"topic {topic!r} of the source is itself mirrored from {origin.topic!r} of the target, says topic "
                f"{PROGRESS_TOPIC!r} of the source, and records would go round for ever: leave it out of --topics, or "
                "delete that topic if no mirror writes to the source any more"
            )
