"""Reassignments and elections, as requested by Apache Kafka's tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.controller.elections import PREFERRED, UNCLEAN, balance_leaders, handle_elect_leaders
from ottla.controller.reassignments import (
    handle_alter_partition_reassignments,
    handle_list_partition_reassignments,
    replicate_internal_topics,
)
from ottla.metadata.image import NO_LEADER, RECOVERING
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListReassignmentsTopic,
)

from .world import World


@pytest.fixture
def world() -> World:
    world = World()
    world.join(1, 2, 3, 4)
    world.create("t", [1, 2, 3])
    return world


def reassign(world: World, replicas: Sequence[int] | None, name: str = "t", index: int = 0, **options: Any) -> Any:
    target = ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=[target])], **options)
    response = world.run(lambda image, context: handle_alter_partition_reassignments(image, request, context))
    return response.responses[0].partitions[0]


def without_broker_1() -> World:
    """Three replicas, of which two have to be in sync, and are."""
    world = World(min_insync_replicas="2")
    world.join(1, 2, 3)
    world.create("t", [1, 2, 3])
    world.silence(1)
    return world


def listed(world: World, *names: str) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    topics = [ListReassignmentsTopic(name=name, partition_indexes=[0]) for name in names] or None
    response = handle_list_partition_reassignments(world.image, ListPartitionReassignmentsRequest(topics=topics))
    return [
        (topic.name, part.partition_index, part.replicas, part.adding_replicas, part.removing_replicas)
        for topic in response.topics
        for part in topic.partitions
    ]


def elect(world: World, kind: int, name: str | None = "t", *partitions: int) -> Any:
    topics = None if name is None else [ElectLeadersTopic(topic=name, partitions=list(partitions))]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=topics)
    response = world.run(lambda image, context: handle_elect_leaders(image, request, context))
    return [
        (part.partition_id, part.error_code)
        for topic in response.replica_election_results
        for part in topic.partition_result
    ]


class TestReassignment:
    def test_new_replicas_join_before_old_ones_leave(self, world: World) -> None:
        assert reassign(world, [4, 2, 3]).error_code == 0
        moving = world.partition()
        assert (moving.replicas, moving.isr, moving.leader) == ((4, 2, 3, 1), (1, 2, 3), 1)
        assert listed(world) == [("t", 0, [4, 2, 3, 1], [4], [1])]
        assert moving.directories == (bytes([4]) * 16, bytes([2]) * 16, bytes([3]) * 16, bytes([1]) * 16)
        answer = world.alter_partition([1, 2, 3, 4])
        done = world.partition()
        assert (done.replicas, done.isr) == ((4, 2, 3), (2, 3, 4))
        assert done.leader == 4, "the old leader went, the first replica in sync leads"
        assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
        assert answer.leader_id == 4
        assert done.leader_epoch == moving.leader_epoch + 1
        assert listed(world) == []

    def test_fewer_replicas_at_once(self, world: World) -> None:
        assert reassign(world, [2]).error_code == 0
        assert (world.partition().replicas, world.partition().isr, world.partition().leader) == ((2,), (2,), 2)

    @pytest.mark.promise("R9")
    def test_required_replica_is_removed_later(self) -> None:
        world = without_broker_1()
        assert reassign(world, [1, 2]).error_code == 0
        assert (world.partition().replicas, world.partition().isr) == ((1, 2, 3), (2, 3))
        assert listed(world) == [("t", 0, [1, 2, 3], [], [3])]
        world.join(1)
        world.alter_partition([1, 2, 3])
        assert (world.partition().replicas, world.partition().isr) == ((1, 2), (1, 2))
        assert listed(world) == []

    def test_eligible_replicas_count_for_durability(self) -> None:
        world = without_broker_1()
        world.silence(2)
        assert (world.partition().isr, world.partition().eligible_leader_replicas) == ((3,), (2,))
        assert reassign(world, [3, 1]).error_code == 0
        assert listed(world) == [("t", 0, [3, 1, 2], [], [2])], "2 has what 1 lacks"
        assert reassign(world, [3, 2]).error_code == 0
        assert (world.partition().replicas, listed(world)) == ((3, 2), [])

    def test_reassignment_keeps_count_below_min_isr(self) -> None:
        world = without_broker_1()
        world.silence(2)
        world.join(2)  # back from an unclean stop: not eligible any more
        assert (world.partition().isr, world.partition().eligible_leader_replicas) == ((3,), ())
        assert reassign(world, [3, 1]).error_code == 0
        assert (world.partition().replicas, listed(world)) == ((3, 1), [])

    @pytest.mark.promise("R9")
    def test_required_replica_of_a_cancelled_move_stays(self) -> None:
        world = World(min_insync_replicas="2")
        world.join(1, 2, 3, 4)
        world.create("t", [1, 2])
        assert reassign(world, [1, 3, 4]).error_code == 0
        world.alter_partition([1, 2, 3])
        world.silence(2)
        assert reassign(world, None).error_code == 0
        assert (world.partition().replicas, world.partition().isr) == ((1, 2, 3, 4), (1, 3))
        assert listed(world) == [("t", 0, [1, 2, 3, 4], [], [3, 4])]
        world.join(2)
        world.alter_partition([1, 2, 3])
        assert (sorted(world.partition().replicas), world.partition().isr) == ([1, 2], (1, 2))

    def test_more_replicas(self, world: World) -> None:
        world.create("u", [1])
        assert reassign(world, [1, 2], "u").error_code == 0
        assert world.partition("u").adding_replicas == (2,)
        assert world.alter_partition([1, 2], "u").error_code == 0
        assert (world.partition("u").replicas, world.partition("u").isr) == ((1, 2), (1, 2))
        assert world.partition("u").leader_epoch == 0, "no replica left, so the leader epoch is unchanged"

    def test_a_move_is_replaced_by_another(self, world: World) -> None:
        reassign(world, [4, 2, 3])
        assert reassign(world, [1, 2, 4]).error_code == 0
        moving = world.partition()
        assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ((1, 2, 4, 3), (4,), (3,))
        assert reassign(world, [1, 2, 3]).error_code == 0
        back = world.partition()
        assert (back.replicas, back.adding_replicas, back.removing_replicas) == ((1, 2, 3), (), ())

    def test_a_move_is_cancelled(self, world: World) -> None:
        assert reassign(world, None).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        reassign(world, [4])
        assert reassign(world, None).error_code == 0
        assert (sorted(world.partition().replicas), world.partition().isr) == ([1, 2, 3], (1, 2, 3))
        assert listed(world) == []

    def test_invalid_reassignments_are_rejected(self, world: World) -> None:
        assert reassign(world, [1, 1]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert reassign(world, [9]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert reassign(world, []).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert reassign(world, [1], "nope").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert reassign(world, [1], index=5).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (
            reassign(world, [1], allow_replication_factor_change=False).error_code
            == ErrorCode.INVALID_REPLICATION_FACTOR
        )
        assert reassign(world, [2, 3, 4], allow_replication_factor_change=False).error_code == 0

    def test_list_of_named_topics(self, world: World) -> None:
        world.create("u", [1])
        reassign(world, [2], "u")
        assert listed(world, "t") == []
        assert listed(world, "u", "nope") == [("u", 0, [2, 1], [2], [1])]

    def test_a_broker_that_dies_while_it_is_added(self, world: World) -> None:
        reassign(world, [4, 2, 3])
        world.silence(4)
        world.silence(1)
        assert (world.partition().leader, world.partition().isr) == (2, (2, 3))
        world.join(4)
        world.alter_partition([2, 3, 4])
        assert (world.partition().replicas, listed(world)) == ((4, 2, 3), [])


class TestElections:
    def test_preferred(self, world: World) -> None:
        assert elect(world, PREFERRED, "t", 0) == [(0, ErrorCode.ELECTION_NOT_NEEDED)]
        world.silence(1)
        assert elect(world, PREFERRED, "t", 0) == [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
        world.join(1)
        assert elect(world, PREFERRED, "t", 0) == [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
        world.alter_partition([2, 3, 1])
        assert elect(world, PREFERRED, None) == [(0, 0)]
        assert world.partition().leader == 1
        assert elect(world, PREFERRED, None) == []

    def test_unclean(self, world: World) -> None:
        assert elect(world, UNCLEAN, "t", 0) == [(0, ErrorCode.ELECTION_NOT_NEEDED)]
        world.silence(2, 3)
        world.join(2, 3)
        world.silence(1)
        assert world.partition().leader == NO_LEADER
        assert elect(world, PREFERRED, "t", 0) == [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
        assert elect(world, UNCLEAN, "t", 0) == [(0, 0)]
        assert (world.partition().leader, world.partition().isr) == (2, (2,))
        assert world.partition().leader_recovery_state == RECOVERING
        world.silence(2, 3)
        assert elect(world, UNCLEAN, "t", 0) == [(0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)]

    def test_missing_partitions_are_rejected(self, world: World) -> None:
        assert elect(world, PREFERRED, "nope", 0) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        assert elect(world, PREFERRED, "t", 9) == [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]

    def test_balance_respects_the_imbalance_percentage(self) -> None:
        world = World(leader_imbalance_per_broker_percentage="30")
        world.join(1, 2)
        world.create("t", *[[1, 2]] * 4, *[[2, 1]] * 4)
        world.silence(1)
        world.join(1)
        for index in range(3):
            world.alter_partition([2, 1], index=index)
        assert balance_leaders(world.image, world.context(), 2).complete is False
        records, complete = balance_leaders(world.image, world.context(), 10)
        assert complete
        assert len(records) == 3, "the fourth is not in sync yet"
        world.apply(records)
        assert [world.partition(index=index).leader for index in range(4)] == [1, 1, 1, 2]
        assert balance_leaders(world.image, world.context(), 10).records == []


class TestInternalTopics:
    def test_replication_follows_the_brokers(self) -> None:
        world = World()
        world.join(1)
        world.create("__consumer_offsets", [1], [1], [1])
        assert replicate_internal_topics(world.image, world.context()) == []
        world.join(2, 3)
        world.apply(replicate_internal_topics(world.image, world.context()))
        assert replicate_internal_topics(world.image, world.context()) == [], "they are under way"
        for index in range(3):
            assert world.alter_partition([1, 2, 3], "__consumer_offsets", index).error_code == 0
            assert sorted(world.partition("__consumer_offsets", index).replicas) == [1, 2, 3]
        firsts = [world.partition("__consumer_offsets", index).replicas[0] for index in range(3)]
        assert sorted(firsts) == [1, 2, 3], "leaderships are spread"

    def test_a_setting_is_followed(self) -> None:
        world = World(offsets_topic_replication_factor="1")
        world.join(1, 2)
        world.create("__consumer_offsets", [1])
        assert replicate_internal_topics(world.image, world.context()) == []
