"""Routes: selection of source topics, their names and settings in the target, and detection of cycles.

The route of a partition is its identity: it determines the transactional id and the progress key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.wire.model import ConfigEntry, TopicInfo
from ottla.common.errors import OperatorError
from ottla.mirror.option_values import PLACE

PROGRESS_TOPIC = "ottla-mirror-progress"
"""Topic in the target: one partition, compacted, written in the transactions that it describes."""

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
"""Topic settings that are copied. Others depend on the cluster: replication, throttles, tiers, and timestamp limits,
which `admitting_settings` chooses."""

CLEANUP_POLICY = "cleanup.policy"
COMPRESSION_TYPE = "compression.type"
TIMESTAMP_TYPE = "message.timestamp.type"
TIMESTAMP_AFTER = "message.timestamp.after.max.ms"
TIMESTAMP_BEFORE = "message.timestamp.before.max.ms"
TIMESTAMP_DIFFERENCE = "message.timestamp.difference.max.ms"
"""Apache Kafka before 4.0: limit for both directions."""
RECORD_SIZES = ("max.message.bytes", "max.decompressed.message.bytes")
MAX_LONG = (1 << 63) - 1
BROKER_DEFAULTS = {"message.max.bytes": "max.message.bytes", "log.cleanup.policy": CLEANUP_POLICY}
"""Broker settings with the defaults of topic settings that the progress topic overrides.

All other defaults are read from the progress topic itself.
"""


class Origin(NamedTuple):
    """A topic in a cluster."""

    cluster_id: str
    topic: str


class Route(NamedTuple):
    """A source partition and the target topic into which it is copied."""

    cluster_id: str
    topic: str
    partition: int
    target: str

    @property
    def transactional_id(self) -> str:
        """The same for all mirrors of this route; topic names contain no slash."""
        return f"ottla-mirror/{self.cluster_id}/{self.topic}/{self.partition}/{self.target}"


def renamed(topic: str, template: str) -> str:
    """The topic's name in the target. Raises OperatorError for the name of the progress topic."""
    name = template.replace(PLACE, topic)
    if name == PROGRESS_TOPIC:
        raise OperatorError(
            f"--rename {template!r} renames topic {topic!r} to {name!r}, which is reserved for mirror progress: choose "
            "another template, or exclude the topic from --topics"
        )
    return name


def chosen_topics(topics: Mapping[str, TopicInfo], pattern: re.Pattern[str]) -> dict[str, TopicInfo]:
    """Topics that match by full name, without internal topics of brokers and mirrors."""
    return {
        name: info
        for name, info in topics.items()
        if not info.is_internal and name != PROGRESS_TOPIC and pattern.fullmatch(name)
    }


class TargetSettings(NamedTuple):
    """Topic settings that the target supports, with their defaults if they are visible."""

    names: frozenset[str]
    defaults: dict[str, str]


def copied_settings(entries: Iterable[ConfigEntry], target: TargetSettings) -> dict[str, str]:
    """Settings of a new topic of the target, from its source topic: overrides in COPIED_SETTINGS, and
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
    """Settings with which a new target topic accepts each record that its source topic accepted.

    `source` contains the effective settings of that topic. A limit or cleanup policy is returned only if its default in
    the target is narrower or unknown, a compression type or timestamp type only if it is known to be narrower. Limits
    of the timestamp's age are removed, since records become older in transit.
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
    """The limit for future timestamps. Apache Kafka 3.6 to 3.9 have two settings for it, older versions one."""
    after = int(source.get(TIMESTAMP_AFTER, MAX_LONG))
    return after if after != MAX_LONG else int(source.get(TIMESTAMP_DIFFERENCE, MAX_LONG))


def require_two_clusters(source_id: str | None, target_id: str | None) -> tuple[str, str]:
    """Both cluster ids. Raises OperatorError if they are equal, or if a broker does not report one."""
    if not source_id or not target_id:
        raise OperatorError(
            f"a broker of {'--to' if source_id else '--from'} reports no cluster id: it is older than Apache Kafka "
            "0.10.1; upgrade that cluster first"
        )
    if source_id == target_id:
        raise OperatorError(
            f"--from and --to are the same cluster, {source_id}, and its topics would be copied to themselves: "
            "give two clusters"
        )
    return source_id, target_id


def refuse_cycle(topic: str, target_id: str, origins: frozenset[Origin]) -> None:
    """Raise OperatorError if the source topic was mirrored from the target, through any number of clusters.

    A record therefore never returns to a cluster, under any name; it would be copied forever.
    """
    for origin in sorted(origins):
        if origin.cluster_id == target_id:
            raise OperatorError(
                f"topic {topic!r} of the source is itself mirrored from {origin.topic!r} of the target, according to "
                f"topic {PROGRESS_TOPIC!r} of the source, and records would be copied forever: exclude {topic!r} from "
                f"--topics, or delete {PROGRESS_TOPIC!r} of the source if no mirror writes to the source any more"
            )
