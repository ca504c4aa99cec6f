"""Consumers of a ZooKeeper-based group: at most one owner per partition at any time, and no unread partition."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.client.legacy.membership import Change, Membership, WaitForChange
from ottla.client.legacy.offsets import OffsetPlaces, OffsetStorage
from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.consumers import ConsumerRegistration
from ottla.protocol.znodes.operations import Create, Delete, SetData

from .world import BACKOFF_MS, GROUP, TIMEOUT_MS, Cluster, Consumer, World

BOTH = OffsetPlaces(OffsetStorage.KAFKA, OffsetStorage.ZOOKEEPER)
PLACES = [OffsetPlaces(OffsetStorage.ZOOKEEPER), OffsetPlaces(OffsetStorage.KAFKA), BOTH]


def reads(pattern: str = "static", **subscription: int) -> ConsumerRegistration:
    return ConsumerRegistration(subscription, pattern, 1500)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.set_topic("t", 3)
    return cluster


def until(consumers: list[Consumer], reached: Callable[[], bool]) -> None:
    """Advance all consumers in turn, and the time, until a condition is true."""
    for _ in range(2000):
        if reached():
            return
        for consumer in consumers:
            consumer.cluster.advance(10)
            consumer.step()
    raise AssertionError("it does not come to that")


def rest(*consumers: Consumer) -> None:
    """Advance until all consumers are idle and all watches have fired."""
    calm = 0

    def reached() -> bool:
        nonlocal calm
        calm = calm + 1 if all(each.left or each.rests for each in consumers) else 0
        return calm > 2

    until(list(consumers), reached)


@pytest.mark.promise("Z6")
@pytest.mark.parametrize("places", PLACES, ids=["zookeeper", "kafka", "both"])
@pytest.mark.parametrize("seed", range(5))
def test_one_owner_at_any_time_and_exactly_one_when_quiet(places: OffsetPlaces, seed: int) -> None:
    world = World(seed, places)
    for _ in range(2):
        world.churn(1500)
        world.settle()
        world.check_quiet()
    for consumer in world.consumers:
        consumer.machine.leave()
    world.settle()
    tree = world.cluster.server.tree()
    assert not [path for path, node in tree.items() if path.startswith(paths.CONSUMERS) and node.owner]
    for topic, number in world.cluster.read_to:
        offsets = [world.cluster.in_kafka.get((topic, number), 0)]
        if (node := tree.get(paths.consumer_offset(GROUP, topic, number))) is not None:
            offsets.append(int(node.data))
        assert max(offsets) <= world.cluster.read_to[topic, number]


@pytest.mark.promise("Z6")
@pytest.mark.parametrize("seed", range(3))
def test_a_group_is_shared_with_consumers_of_kafka(seed: int) -> None:
    world = World(seed, PLACES[0], with_kafka=True)
    for _ in range(2):
        world.churn(1500)
        world.settle(3000)
        world.check_quiet()


def test_the_znodes_of_a_consumer(cluster: Cluster) -> None:
    consumer = Consumer(cluster, "group_host", reads(t=2))
    rest(consumer)
    consumer.read(("t", 0))
    consumer.commit()
    rest(consumer)
    tree = cluster.server.tree()
    assert tree["/consumers/group/ids/group_host-1"].data == (
        b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"1500"}'
    )
    assert [tree[f"/consumers/group/owners/t/{number}"].data for number in range(3)] == [
        b"group_host-1-0",
        b"group_host-1-0",
        b"group_host-1-1",
    ]
    assert tree["/consumers/group/offsets/t/0"].data == b"1"
    owned = [tree[path].owner for path in tree if "/group/ids/" in path or "/owners/t/" in path]
    assert owned == [consumer.session] * 4


def test_kept_partitions_are_not_interrupted(cluster: Cluster) -> None:
    first = Consumer(cluster, "a", reads(t=1))
    rest(first)
    first.read(("t", 0))
    first.requests.clear()
    second = Consumer(cluster, "b", reads(t=1))
    rest(first, second)
    assert (first.reading, second.reading) == ({("t", 0): 1, ("t", 1): 0}, {("t", 2): 0})
    assert not [
        each for each in first.requests if isinstance(each, Change) and each.operations[-1].path.endswith("t/0")
    ]


def test_the_next_owner_begins_where_the_last_one_ended(cluster: Cluster) -> None:
    first = Consumer(cluster, "a", reads(t=1))
    rest(first)
    for _ in range(3):
        first.read(("t", 2))
    first.machine.leave()
    second = Consumer(cluster, "b", reads(t=1))
    rest(first, second)
    assert first.left
    assert second.reading == {("t", 0): 0, ("t", 1): 0, ("t", 2): 3}


def test_a_filter_finds_a_topic_that_comes(cluster: Cluster) -> None:
    consumer = Consumer(cluster, "a", reads("white_list", **{"t|new.*": 1}))
    rest(consumer)
    cluster.set_topic("newer", 1)
    cluster.set_topic("other", 1)
    rest(consumer)
    assert sorted(consumer.reading) == [("newer", 0), ("t", 0), ("t", 1), ("t", 2)]
    cluster.delete_topic("newer")
    rest(consumer)
    assert sorted(consumer.reading) == [("t", 0), ("t", 1), ("t", 2)]


def test_without_brokers_nothing_is_moved(cluster: Cluster) -> None:
    consumer = Consumer(cluster, "a", reads(t=1))
    rest(consumer)
    cluster.write(Delete(paths.broker(1)))
    cluster.set_topic("t", 4)
    rest(consumer)
    assert len(consumer.reading) == 3
    cluster.write(Create(paths.broker(1), b""))
    rest(consumer)
    assert len(consumer.reading) == 4


def test_partitions_of_previous_session_are_awaited(cluster: Cluster) -> None:
    killed = Consumer(cluster, "a", reads(t=1))
    rest(killed)
    consumer = Consumer(cluster, "b", reads(t=1))
    until([consumer], lambda: consumer.request == WaitForChange(BACKOFF_MS))
    assert not consumer.reading
    cluster.advance(TIMEOUT_MS)
    rest(consumer)
    assert len(consumer.reading) == 3


def test_delayed_change_in_next_session_has_no_effect(cluster: Cluster) -> None:
    """A release arrives after the end of its session, when another consumer owns the partition."""
    first = Consumer(cluster, "a", reads(t=1))
    rest(first)
    first.machine.leave()
    until([first], lambda: isinstance(first.request, Change) and isinstance(first.request.operations[-1], Delete))
    first.step("before")
    cluster.advance(TIMEOUT_MS)
    second = Consumer(cluster, "b", reads(t=1))
    rest(second)
    assert len(second.reading) == 3
    first.step()
    assert first.name == "a-2"
    owners = [node for path, node in cluster.server.tree().items() if "/owners/t/" in path]
    assert [node.owner for node in owners] == [second.session] * 3


def test_a_registration_that_was_removed_by_hand_comes_back(cluster: Cluster) -> None:
    consumer = Consumer(cluster, "a", reads(t=1))
    rest(consumer)
    consumer.read(("t", 0))
    cluster.write(Delete("/consumers/group/ids/a-1"))
    rest(consumer)
    assert consumer.reading == {("t", 0): 1, ("t", 1): 0, ("t", 2): 0}
    assert "/consumers/group/ids/a-1" in cluster.server.tree()


def test_disconnected_consumer_stops_before_new_owner_starts(cluster: Cluster) -> None:
    lonely, other = Consumer(cluster, "a", reads(t=1)), Consumer(cluster, "b", reads(t=1))
    rest(lonely, other)
    lonely.cut = True
    while lonely.lives:
        assert not other.reading.keys() & lonely.reading.keys()
        cluster.advance(50)
        other.step()
    rest(other)
    assert len(other.reading) == 3


def test_lost_response_is_followed_by_write_before_read(cluster: Cluster) -> None:
    """Another server may not have the result of the request yet."""
    consumer = Consumer(cluster, "a", reads(t=1))
    rest(consumer)
    consumer.requests.clear()
    consumer.machine.notify()
    consumer.step()
    consumer.step("after")
    rest(consumer)
    (write,) = [each for each in consumer.requests if isinstance(each, Change)]
    assert isinstance(write.operations[0], SetData)
    assert write.operations[0].path == "/consumers/group/ids/a-1"
    assert write is consumer.requests[1]


def test_commits_of_foreign_or_smaller_offsets_are_rejected(cluster: Cluster) -> None:
    consumer = Consumer(cluster, "a", reads(t=1), BOTH)
    rest(consumer)
    for _ in range(2):
        consumer.read(("t", 0))
    consumer.commit()
    rest(consumer)
    assert cluster.in_kafka["t", 0] == 2
    with pytest.raises(KafkaError) as refused:
        next(consumer.machine.commit({("t", 0): 3, ("t", 7): 1}))
    assert refused.value.code == ErrorCode.ILLEGAL_GENERATION
    with pytest.raises(KafkaError, match=r"dual\.commit\.enabled"):
        next(consumer.machine.commit({("t", 0): 1}))


def test_malformed_registration_blocks_group_and_is_reported(cluster: Cluster) -> None:
    consumer = Consumer(cluster, "a", reads(t=1))
    rest(consumer)
    cluster.write(Create("/consumers/group/ids/b", b"{"))
    until([consumer], lambda: consumer.machine.problem is not None)
    assert isinstance(consumer.machine.problem, ProtocolError)
    assert len(consumer.reading) == 3
    cluster.write(Delete("/consumers/group/ids/b"))
    rest(consumer)
    assert consumer.machine.problem is None


def test_zookeeper_rejection_is_reported_and_retried() -> None:
    machine = Membership(GROUP, "a", reads(t=1), 1, BOTH, BACKOFF_MS)
    steps = machine.run()
    next(steps)
    assert isinstance(steps.send(None), Change)
    assert steps.send("NoAuth") == WaitForChange(BACKOFF_MS)
    assert "NoAuth" in str(machine.problem)


@pytest.mark.parametrize(("group", "topic"), [("a/b", "t"), ("group", "a/b"), ("", "t")])
def test_names_that_zookeeper_can_not_hold_are_refused(group: str, topic: str) -> None:
    with pytest.raises(KafkaError, match="ZooKeeper can't store"):
        Membership(group, "a", ConsumerRegistration({topic: 1}, "static", 1), 1, BOTH, BACKOFF_MS)
