"""Reassignment plans: replicas stay if possible, new ones are spread by rack and load."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.admin.reassignment_plan import evacuation, throttled_replicas, with_replication_factor
from ottla.client.wire.failure import TopicNotFound
from ottla.client.wire.model import BrokerInfo, PartitionInfo, TopicInfo
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import ZERO_UUID


def brokers(*racks: str | None) -> list[BrokerInfo]:
    return [BrokerInfo(number, "localhost", 9092, rack) for number, rack in enumerate(racks, 1)]


def topic(name: str, *replicas: tuple[int, ...]) -> dict[str, TopicInfo]:
    partitions = tuple(
        PartitionInfo(index, each[0], 0, each, each, offline_replicas=()) for index, each in enumerate(replicas)
    )
    return {name: TopicInfo(name, ZERO_UUID, is_internal=False, partitions=partitions)}


def test_an_evacuated_replica_keeps_its_place_in_the_list() -> None:
    plan = evacuation(brokers(None, None, None, None), topic("t", (1, 2), (2, 1), (3, 1)), 1)
    assert plan == {("t", 0): (4, 2), ("t", 1): (2, 3), ("t", 2): (3, 4)}


def test_unused_rack_is_preferred_over_lower_load() -> None:
    plan = evacuation(brokers("a", "b", "b", "a"), topic("t", (1, 2), (4, 2)), 1)
    assert plan == {("t", 0): (4, 2)}


def test_the_last_broker_can_not_be_evacuated() -> None:
    with pytest.raises(KafkaError, match="t-0 on broker 1") as caught:
        evacuation(brokers(None, None), topic("t", (1, 2)), 1)
    assert caught.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


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
    if count > 2:
        moved = evacuation(known, topics, 1)
        for partition in topics["t"].partitions:
            replicas = moved.get(("t", partition.index), partition.replicas)
            assert 1 not in replicas
            assert len(set(replicas)) == 2
            assert (Counter(partition.replicas) - Counter(replicas)).total() == (1 in partition.replicas)
