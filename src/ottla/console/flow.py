"""Readings of topics and groups with their rates, while a page is open.

There is no sampling in the background: the script of an open page requests its values repeatedly, and each request
reads the present offsets with the credentials of its user. `FlowMeter` has the samples before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.admin.activity import BrokerProblem
from ottla.client.admin.groups import GROUPS_AT_ONCE
from ottla.client.views.rates import GroupRates, group_rates, sum_known
from ottla.client.wire.model import TopicInfo
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.console import formats
from ottla.console.context import Context
from ottla.console.flow_meter import MAX_PARTITIONS
from ottla.console.lags import committed_offsets, existing_partitions, topics_of

GROUPS_BUDGET_S = 3.0
"""Time for the committed offsets of several groups; those that are left are unknown."""


class Traffic(NamedTuple):
    """Result of one reading: end offsets, sizes and rates of its partitions, and brokers that did not respond."""

    ends: Mapping[TopicPartition, int]
    sizes: Mapping[TopicPartition, int]
    records_per_s: Mapping[TopicPartition, float | None]
    bytes_per_s: Mapping[TopicPartition, float | None]
    problems: Sequence[BrokerProblem] = ()
    left: int = 0
    """Partitions that were left out, since there are more than MAX_PARTITIONS."""

    def note(self) -> str:
        """Sentences about missing values."""
        sentences = [
            f"Broker {each.node_id} ({each.address}) does not respond: {each.reason}." for each in self.problems
        ]
        if self.left:
            sentences.append(
                f"{formats.counted(self.left, 'partition')} left out: a page reads {MAX_PARTITIONS:,} at once."
            )
        return " ".join(sentences)


class TopicTraffic(NamedTuple):
    """The sums of a topic over the partitions of a reading; None where unknown."""

    records_per_s: float | None
    bytes_per_s: float | None
    size_bytes: int | None


def topic_traffic(topic: TopicInfo, traffic: Traffic) -> TopicTraffic:
    """Sum up the partitions of a topic."""
    keys = [(topic.name, each.index) for each in topic.partitions]
    sizes = [traffic.sizes[key] for key in keys if key in traffic.sizes]
    return TopicTraffic(
        sum_known(traffic.records_per_s.get(key) for key in keys),
        sum_known(traffic.bytes_per_s.get(key) for key in keys),
        sum(sizes) if sizes else None,
    )


def read_traffic(
    context: Context, topics: Mapping[str, TopicInfo], partitions: Iterable[TopicPartition], *, with_sizes: bool = True
) -> Traffic:
    """Read at most MAX_PARTITIONS partitions of `topics`. Raises KafkaError, BrokerUnreachable."""
    wanted = list(partitions)
    chosen = wanted[:MAX_PARTITIONS]
    if not chosen:
        return Traffic({}, {}, {}, {})
    reading = context.cluster.activity.read_partitions(topics, chosen, with_sizes=with_sizes)
    now_s, meter = context.services.clock.monotonic(), context.services.flow
    concerned = [topics[name] for name in dict.fromkeys(name for name, _ in chosen)]
    return Traffic(
        reading.ends,
        reading.sizes,
        meter.record_rates(concerned, reading.ends, now_s),
        meter.byte_rates(concerned, reading.sizes, now_s),
        reading.problems,
        len(wanted) - len(chosen),
    )


class GroupTraffic(NamedTuple):
    """Result of one reading of groups. Groups in `unread` are not permitted, or their coordinator did not respond."""

    offsets: Mapping[str, Mapping[TopicPartition, int]]
    rates: Mapping[str, GroupRates]
    consumed_per_s: Mapping[str, Mapping[TopicPartition, float | None]]
    traffic: Traffic
    unread: Sequence[str]


def read_groups(context: Context, group_ids: Iterable[str]) -> GroupTraffic:
    """Lags and rates of groups. Raises KafkaError, BrokerUnreachable if the cluster does not respond."""
    clock, meter = context.services.clock, context.services.flow
    until_s = clock.monotonic() + GROUPS_BUDGET_S
    offsets: dict[str, Mapping[TopicPartition, int]] = {}
    unread: list[str] = []
    names = list(group_ids)
    for start in range(0, len(names), GROUPS_AT_ONCE):
        some = names[start : start + GROUPS_AT_ONCE]
        context.check_alive()
        found = committed_offsets(context, some) if clock.monotonic() <= until_s else {}
        offsets |= found
        unread += [group_id for group_id in some if group_id not in found]
    wanted = dict.fromkeys(key for found in offsets.values() for key in found)
    topics = topics_of(context, wanted)
    traffic = read_traffic(context, topics, existing_partitions(topics, wanted), with_sizes=False)
    now_s = clock.monotonic()
    consumed = {group_id: meter.commit_rates(group_id, found, now_s) for group_id, found in offsets.items()}
    rates = {
        group_id: group_rates(found, traffic.ends, traffic.records_per_s, consumed[group_id])
        for group_id, found in offsets.items()
    }
    return GroupTraffic(offsets, rates, consumed, traffic, unread)
