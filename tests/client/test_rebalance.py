"""Rebalance plans: valid, bounded, never less available than before, and final."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.admin.reassignment_plan import Plan
from ottla.client.admin.rebalance_plan import RebalanceInput, RebalancePlan, rebalance_plan
from ottla.client.wire.model import BrokerInfo, PartitionInfo, TopicInfo
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import ZERO_UUID
from ottla.common.kafka.topic_partition import TopicPartition

Replicas = Sequence[tuple[int, ...]]


def brokers(*racks: str | None) -> list[BrokerInfo]:
    return [BrokerInfo(number, "localhost", 9092, rack) for number, rack in enumerate(racks, 1)]


def topic(replicas: Replicas, isrs: Mapping[int, tuple[int, ...]] | None = None) -> dict[str, TopicInfo]:
    partitions = tuple(
        PartitionInfo(index, each[0], 0, each, (isrs or {}).get(index, each), offline_replicas=())
        for index, each in enumerate(replicas)
    )
    return {"t": TopicInfo("t", ZERO_UUID, is_internal=False, partitions=partitions)}


def sizes(*each: int) -> dict[TopicPartition, int]:
    return {("t", index): size for index, size in enumerate(each)}


def after(cluster: RebalanceInput, targets: Plan) -> RebalanceInput:
    """The cluster once the plan is applied and all replicas are in sync."""
    before = cluster.topics["t"].partitions
    return cluster._replace(topics=topic([targets.get(("t", each.index), each.replicas) for each in before]))


def loads(cluster: RebalanceInput) -> dict[int, int]:
    return {
        broker.node_id: sum(broker.node_id in each.replicas for each in cluster.topics["t"].partitions)
        for broker in cluster.brokers
    }


def rack_count(cluster: RebalanceInput, replicas: Sequence[int]) -> int:
    racks = {broker.node_id: broker.rack for broker in cluster.brokers}
    return len({racks[broker] for broker in replicas})


@st.composite
def clusters(draw: st.DrawFn) -> RebalanceInput:
    count = draw(st.integers(2, 7))
    racks = draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=count, max_size=count))
    order = st.permutations(range(1, count + 1))
    replicas = draw(
        st.lists(
            st.tuples(order, st.integers(1, min(4, count))).map(lambda each: tuple(each[0][: each[1]])),
            min_size=1,
            max_size=25,
        )
    )
    bytes_of = draw(st.lists(st.integers(0, 1 << 34), min_size=len(replicas), max_size=len(replicas)))
    goals = draw(
        st.sampled_from([("rack", "bytes", "leaders"), ("partitions",), ("leaders",), ("rack",), ("bytes", "rack")])
    )
    filled = draw(st.sets(st.integers(1, count), max_size=2))
    return RebalanceInput(brokers(*racks), topic(replicas), sizes(*bytes_of), goals, frozenset(filled))


@given(clusters())
@settings(max_examples=300, deadline=None)
def test_plan_is_valid_and_a_second_run_plans_nothing(cluster: RebalanceInput) -> None:
    plan = rebalance_plan(cluster)
    live = {broker.node_id for broker in cluster.brokers}
    copied = 0
    for partition in cluster.topics["t"].partitions:
        key = "t", partition.index
        target = plan.targets.get(key, partition.replicas)
        assert len(target) == len(partition.replicas), "the replication factor stays"
        assert len(set(target)) == len(target), "never two replicas on one broker"
        assert set(target) <= live
        assert rack_count(cluster, target) >= rack_count(cluster, partition.replicas)
        new = set(target) - set(partition.replicas)
        copied += len(new) * cluster.sizes[key]
        if "bytes" not in cluster.goals and "partitions" not in cluster.goals and "rack" not in cluster.goals:
            assert not new, "leaders move without copies"
    assert plan.moved_bytes == copied == sum(plan.incoming.values()) == sum(plan.outgoing.values())
    assert all(
        replicas != cluster.topics["t"].partitions[index].replicas for (_, index), replicas in plan.targets.items()
    )
    again = rebalance_plan(after(cluster, plan.targets))
    assert again.targets == {}


@given(clusters(), st.integers(1, 7))
@settings(max_examples=200, deadline=None)
def test_drained_broker_is_empty_or_the_plan_is_refused(cluster: RebalanceInput, drained: int) -> None:
    drained = min(drained, len(cluster.brokers))
    cluster = cluster._replace(drained=frozenset({drained}), filled=frozenset(), goals=())
    racks = {broker.rack for broker in cluster.brokers if broker.node_id != drained}
    try:
        plan = rebalance_plan(cluster)
    except OperatorError:
        return
    done = after(cluster, plan.targets)
    assert loads(done)[drained] == 0
    assert rebalance_plan(done).targets == {}
    fewer = set()
    for partition in cluster.topics["t"].partitions:
        target = plan.targets.get(("t", partition.index), partition.replicas)
        moved_from = [each for each, new in zip(partition.replicas, target, strict=True) if each != new]
        assert moved_from == [drained] * (drained in partition.replicas), "others keep their places"
        if rack_count(cluster, target) < rack_count(cluster, partition.replicas):
            fewer.add(("t", partition.index))
            assert rack_count(cluster, target) == min(len(racks), len(target)), "no other rack is left"
    assert set(plan.on_fewer_racks) == fewer


def moved(plan: RebalancePlan, cluster: RebalanceInput) -> int:
    """The number of copied replicas."""
    before = cluster.topics["t"].partitions
    return sum(len(set(replicas) - set(before[index].replicas)) for (_, index), replicas in plan.targets.items())


@pytest.mark.parametrize("goals", [("partitions",), ("bytes", "leaders")])
def test_new_broker_gets_its_share_and_nothing_else_moves(goals: tuple[str, ...]) -> None:
    replicas = [((index) % 3 + 1, (index + 1) % 3 + 1) for index in range(60)]
    cluster = RebalanceInput(brokers(None, None, None, None), topic(replicas), sizes(*[10**9] * 60), goals)
    plan = rebalance_plan(cluster)
    assert set(loads(after(cluster, plan.targets)).values()) == {30}
    assert moved(plan, cluster) == 30
    assert plan.incoming == {4: 30 * 10**9}
    filled = rebalance_plan(cluster._replace(filled=frozenset({4})))
    assert moved(filled, cluster) == 30


def test_bytes_count_and_not_the_number_of_partitions() -> None:
    cluster = RebalanceInput(brokers(None, None), topic([(1,)] * 5), sizes(8 * 10**9, *[2 * 10**9] * 4), ("bytes",))
    plan = rebalance_plan(cluster)
    assert plan.moved_bytes == 8 * 10**9
    assert plan.seconds(10**9) == 8


def test_leaders_are_spread_without_copies() -> None:
    cluster = RebalanceInput(brokers(None, None, None), topic([(1, 2, 3)] * 9), {}, ("leaders",))
    plan = rebalance_plan(cluster)
    assert plan.moved_bytes == 0
    firsts = [each.replicas[0] for each in after(cluster, plan.targets).topics["t"].partitions]
    assert sorted(firsts) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_replicas_on_one_rack_get_another_rack() -> None:
    cluster = RebalanceInput(brokers("a", "a", "b"), topic([(1, 2)]), {}, ("rack",))
    assert rack_count(cluster, rebalance_plan(cluster).targets["t", 0]) == 2


def test_partition_out_of_sync_moves_only_off_a_drained_broker() -> None:
    cluster = RebalanceInput(brokers(None, None, None), topic([(1, 2)] * 4, {0: (1,)}), {}, ("partitions",))
    plan = rebalance_plan(cluster)
    assert plan.skipped == [("t", 0)]
    assert ("t", 0) not in plan.targets
    lost = cluster._replace(brokers=[*cluster.brokers[:1], *cluster.brokers[2:]], drained=frozenset({2}))
    assert rebalance_plan(lost._replace(topics=topic([(1, 2)], {0: (1,)}))).targets == {("t", 0): (1, 3)}


def test_broker_gets_no_more_bytes_than_it_has_room_for() -> None:
    cluster = RebalanceInput(
        brokers(None, None), topic([(1,)] * 10), sizes(*[10**9] * 10), ("bytes",), room={2: 3 * 10**9}
    )
    assert rebalance_plan(cluster).incoming == {2: 2 * 10**9}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"filled": frozenset({9})}, "broker 9 is not live: live brokers are 1, 2"),
        ({"drained": frozenset({1, 2})}, "no other live broker"),
        ({"drained": frozenset({2})}, "no other live broker can take the replica of t-0"),
        ({"goals": ("bytes", "partitions")}, "choose one of them"),
    ],
)
def test_impossible_rebalance_is_refused(changes: dict[str, object], message: str) -> None:
    cluster = RebalanceInput(brokers(None, None), topic([(1, 2)]), {})
    with pytest.raises(OperatorError, match=message):
        rebalance_plan(cluster._replace(**changes))  # type: ignore[arg-type]


def test_drain_of_the_last_broker_on_a_rack_is_reported() -> None:
    cluster = RebalanceInput(brokers("a", "b", "a"), topic([(1, 2), (1, 3)]), {}, (), drained=frozenset({2}))
    plan = rebalance_plan(cluster)
    assert plan.targets == {("t", 0): (1, 3)}
    assert plan.on_fewer_racks == [("t", 0)]


def test_drain_ignores_partitions_of_other_brokers() -> None:
    lost = RebalanceInput(brokers(None, None, None), topic([(1, 2), (1, 3)], {1: (1,)}), {}, (), drained=frozenset({2}))
    assert rebalance_plan(lost).skipped == []
    assert rebalance_plan(lost._replace(topics=topic([(2, 1)], {0: (2,)}))).skipped == [("t", 0)]
