"""Reassignment plans: replicas stay if possible, new ones are spread by rack and load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.admin.reassignment_plan import throttled_replicas, with_replication_factor
from ottla.client.wire.failure import TopicNotFound
from ottla.client.wire.model import BrokerInfo, PartitionInfo, TopicInfo
from ottla.common.errors import KafkaError
from ottla.common.kafka.ids import ZERO_UUID


def brokers(*racks: str | None) -> list[BrokerInfo]:
    return [BrokerInfo(number, "localhost", 9092, rack) for number, rack in enumerate(racks, 1)]


def topic(name: str, *replicas: tuple[int, ...]) -> dict[str, TopicInfo]:
    partitions = tuple(
        PartitionInfo(index, each[0], 0, each, each, offline_replicas=()) for index, each in enumerate(replicas)
    )
    return {name: TopicInfo(name, ZERO_UUID, is_internal=False, partitions=partitions)}


def test_more_and_fewer_replicas() -> None:
    topics = topic("t", (1,), (2, 3))
    assert with_replication_factor(brokers(None, None, None), topics, ["t"], 2) == {("t", 0): (1, 2)}
    assert with_replication_factor(brokers(None, None, None), topics, ["t"], 1) == {("t", 1): (2,)}
    with pytest.raises(TopicNotFound, match=r"'clikcs' does not exist; did you mean clicks\?"):
        with_replication_factor(brokers(None), {**topics, "clicks": topics["t"]}, ["t", "clikcs"], 1)
    with pytest.raises(KafkaError, match="needs as many live brokers"):
        with_replication_factor(brokers(None), topics, ["t"], 2)


def test_throttle_covers_old_leaders_and_new_followers() -> None:
    plan = {("t", 0): (3, 2), ("t", 1): (2,)}
    assert throttled_replicas(plan, topic("t", (1, 2), (1, 2))) == {"t": ("0:1,0:2,1:1,1:2", "0:3")}


@given(
    count=st.integers(2, 8),
    racks=st.lists(st.sampled_from(["a", "b", None]), min_size=8, max_size=8),
    seed=st.lists(st.integers(0, 7), min_size=1, max_size=20),
    factor=st.integers(1, 8),
)
def test_plans_are_valid_and_change_no_more_than_they_must(
    count: int, racks: list[str | None], seed: list[int], factor: int
) -> None:
    known = brokers(*racks[:count])
    topics = topic("t", *((each % count + 1, (each + 1) % count + 1) for each in seed))
    factor = min(factor, count)
    plan = with_replication_factor(known, topics, ["t"], factor)
    for partition in topics["t"].partitions:
        replicas = plan.get(("t", partition.index), partition.replicas)
        assert len(replicas) == len(set(replicas)) == factor
        kept = min(factor, len(partition.replicas))
        assert replicas[:kept] == partition.replicas[:kept]
