"""What is copied whereto: topics by a pattern, their names and settings in the target, and cycles, which are refused.

A partition's route is its identity: by it the transactional id is named, and its progress.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.model import ConfigEntry, TopicInfo
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
"""What a topic takes along. The rest belongs to the cluster that it is in: replication, throttles, times by the clock
of a broker, tiers."""


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


def copied_settings(entries: Iterable[ConfigEntry]) -> dict[str, str]:
    """Of a topic's settings those that were set on it and that go along."""
    return {
        entry.name: entry.value
        for entry in entries
        if entry.name in COPIED_SETTINGS and entry.source == "topic" and entry.value is not None
    }


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
