"""Positions of a group: committed offsets, lag in records and in time, rates, and the distance to retention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.views.rates import GroupRates, group_rates
from ottla.client.wire.model import CommittedOffset, GroupDescription, GroupMember, ResourceType
from ottla.common.errors import KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.console.context import Context
from ottla.console.flow import Traffic, read_traffic
from ottla.console.lags import existing_partitions, log_starts, topics_of
from ottla.console.paging import ListPage, list_page
from ottla.console.retention import SETTINGS, Distance, Retention, distance, estimate_bytes, topic_retention
from ottla.console.unread import Age, UnreadReader, lags_of, oldest

ROWS = 200
"""Positions on a page; only these have an age and a distance to retention."""
MAX_TOPICS = 20
"""Topics of a page whose retention is read."""
SETTINGS_S = 60.0
"""Age up to which the retention of a topic is reused."""
RETENTION = "retention"


class Position(NamedTuple):
    """A partition with a committed offset or an owner; None where unknown."""

    key: TopicPartition
    committed: CommittedOffset | None
    start: int | None
    end: int | None
    owner: GroupMember | None
    consumed_per_s: float | None
    age_s: float | None
    """Age of the oldest unread record, 0 without one."""
    distance: Distance | None
    """Distance of the oldest unread record to its deletion."""

    @property
    def name(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed.offset)

    @property
    def room(self) -> int | None:
        """Records between the log start, which retention moves, and the committed offset; negative if some are lost."""
        return None if self.committed is None or self.start is None else self.committed.offset - self.start


class Positions(NamedTuple):
    """All positions of a group, those of one page, and sums over all of them."""

    all: Sequence[Position]
    page: ListPage[Position]
    rates: GroupRates
    age: Age
    note: str

    def topic_age(self, topic: str) -> Age:
        """Lag in time of one topic."""
        return _age(each for each in self.all if each.key[0] == topic)


def _age(positions: Iterable[Position]) -> Age:
    counted = [each for each in positions if each.lag is not None]
    ages = {each.key: each.age_s if each.lag else 0.0 for each in counted}
    known = {key: age_s for key, age_s in ages.items() if age_s is not None}
    return oldest(known, ages)


def read_positions(context: Context, group: GroupDescription, number: int) -> Positions:
    """The positions of a group, with the details of page `number`. Raises KafkaError, BrokerUnreachable."""
    committed = context.cluster.groups.offsets(group.group_id)
    owners = {
        (topic, partition): member
        for member in group.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    keys = sorted({*committed, *owners})
    shown = list_page(keys, number, ROWS).rows
    topics = topics_of(context, keys)
    traffic = read_traffic(context, topics, existing_partitions(topics, dict.fromkeys([*shown, *keys])))
    offsets = {key: each.offset for key, each in committed.items()}
    now_s = context.services.clock.monotonic()
    consumed = context.services.flow.commit_rates(group.group_id, offsets, now_s)
    starts = log_starts(context, traffic.ends)
    reader = UnreadReader(context)
    ages = reader.ages({key: offsets[key] for key in shown if key in offsets}, traffic.ends, starts)
    distances = _distances(context, offsets, traffic, starts, ages)
    found = [
        Position(
            key,
            committed.get(key),
            starts.get(key),
            traffic.ends.get(key),
            owners.get(key),
            consumed.get(key),
            ages.get(key),
            distances.get(key),
        )
        for key in keys
    ]
    return Positions(
        found,
        list_page(found, number, ROWS),
        group_rates(offsets, traffic.ends, traffic.records_per_s, consumed),
        _age(found),
        " ".join(each for each in (traffic.note(), reader.note()) if each),
    )


def _distances(
    context: Context,
    offsets: Mapping[TopicPartition, int],
    traffic: Traffic,
    starts: Mapping[TopicPartition, int],
    ages: Mapping[TopicPartition, float],
) -> dict[TopicPartition, Distance]:
    """The distances of the partitions of `ages` with unread records, where the retention is known."""
    lagging = [key for key, lag in lags_of(offsets, traffic.ends).items() if lag and key in ages]
    retention = read_retention(context, dict.fromkeys(topic for topic, _ in lagging))
    found: dict[TopicPartition, Distance] = {}
    for key in lagging:
        if key[0] in retention:
            size_bytes, start = traffic.sizes.get(key), starts.get(key)
            behind = None
            if size_bytes is not None and start is not None:
                behind = estimate_bytes(start, max(start, offsets[key]), traffic.ends[key], size_bytes)
            found[key] = distance(retention[key[0]], ages[key], behind, traffic.bytes_per_s.get(key))
    return found


def read_retention(context: Context, topics: Iterable[str]) -> dict[str, Retention]:
    """The retention of at most MAX_TOPICS topics; omits those whose settings the user may not see."""
    known = context.session.kept(RETENTION)
    now_s = context.services.clock.monotonic()
    found: dict[str, Retention] = {}
    for topic in list(topics)[:MAX_TOPICS]:
        read_s, retention = known.get(topic, (now_s - SETTINGS_S, None))
        if now_s - read_s >= SETTINGS_S:
            context.check_alive()
            try:
                entries = context.cluster.configs.describe(ResourceType.TOPIC, topic, SETTINGS)
            except KafkaError:
                retention = None
            else:
                retention = topic_retention({each.name: each for each in entries})
            context.session.keep(RETENTION, topic, (now_s, retention), MAX_TOPICS)
        if retention is not None:
            found[topic] = retention
    return found
