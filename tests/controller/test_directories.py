"""Data directories of brokers, as conversations with the controller's handlers (KIP-858)."""

from __future__ import annotations

from typing import Any

from ottla.common.config.feature_levels import CORDONED_DIRECTORIES, release_features
from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import LOST_UUID, ZERO_UUID
from ottla.controller.directories import handle_assign_replicas_to_dirs
from ottla.controller.placement import place_replicas, validate_manual_assignment
from ottla.metadata.image import NO_LEADER
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
)

from .world import World, refused

A, B, ELSEWHERE = b"A" * 16, b"B" * 16, b"X" * 16


def two_directories(*placements: list[int]) -> World:
    """Brokers 1 to 3, of which 1 has two directories, and a topic `t`."""
    world = World()
    world.join(2, 3)
    world.register(1, log_dirs=[A, B])
    world.heartbeat(1)
    world.create("t", *placements)
    return world


def assign(world: World, directory: bytes, *indexes: int, broker_id: int = 1, epoch: int | None = None) -> list[int]:
    topic = world.image.topics["t"]
    partitions = [AssignedPartition(partition_index=index) for index in indexes]
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=world.epochs[broker_id] if epoch is None else epoch,
        directories=[
            AssignedDirectory(id=directory, topics=[AssignedTopic(topic_id=topic.topic_id, partitions=partitions)])
        ],
    )
    response: Any = world.run(lambda image, context: handle_assign_replicas_to_dirs(image, request, context))
    return [each.error_code for each in response.directories[0].topics[0].partitions]


def test_broker_assigns_replicas_to_its_directories() -> None:
    world = two_directories([1, 2], [2, 1])
    assert world.partition().directories == (ZERO_UUID, b"\x02" * 16)
    leader_epoch = world.partition().leader_epoch
    assert assign(world, B, 0, 1) == [0, 0]
    assert world.partition().directories == (B, b"\x02" * 16)
    assert world.partition(index=1).directories == (b"\x02" * 16, B)
    assert (world.partition().leader, world.partition().leader_epoch) == (1, leader_epoch)
    before = world.image
    assert assign(world, B, 0) == [0]
    assert world.image.topics == before.topics, "nothing is new"


def test_assignment_without_replica_is_rejected() -> None:
    world = two_directories([2, 3])
    assert assign(world, A, 0, 7) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    refused(ErrorCode.STALE_BROKER_EPOCH, lambda: assign(world, A, 0, epoch=1))


def test_a_failed_directory_takes_its_replicas_only() -> None:
    world = two_directories([1, 2], [1, 2], [2, 1])
    assign(world, A, 0, 2)
    assign(world, B, 1)
    response = world.heartbeat(1, offline_log_dirs=[B])
    assert not response.is_fenced
    assert world.image.brokers[1].log_dirs == (A,)
    assert (world.partition().leader, world.partition().isr) == (1, (1, 2))
    assert (world.partition(index=1).leader, world.partition(index=1).isr) == (2, (2,))
    assert world.partition(index=2).isr == (2, 1)
    before = world.image
    world.heartbeat(1, offline_log_dirs=[B])
    assert world.image.topics == before.topics, "the second report changes nothing"


def test_the_only_replica_waits_for_its_directory() -> None:
    world = two_directories([1])
    assign(world, B, 0)
    world.heartbeat(1, offline_log_dirs=[B])
    assert world.partition().leader == NO_LEADER
    world.heartbeat(1, offline_log_dirs=[B])
    assert world.partition().leader == NO_LEADER
    world.silence(1)
    world.register(1, log_dirs=[A, B])
    assert world.image.brokers[1].log_dirs == (A, B)


def test_replica_in_failed_directory_leaves_the_isr() -> None:
    world = two_directories([1, 2])
    assert assign(world, ELSEWHERE, 0) == [0]
    assert (world.partition().leader, world.partition().isr) == (2, (2,))


def test_missing_directory_after_restart_leads_nothing() -> None:
    world = two_directories([1, 2])
    assign(world, B, 0)
    world.silence(2)
    world.silence(1)
    world.register(1, log_dirs=[A])
    world.heartbeat(1)
    assert world.partition().leader == NO_LEADER


class TestCordoned:
    """KIP-1066."""

    @staticmethod
    def world(level: int = CORDONED_DIRECTORIES) -> World:
        world = World(release_features(level))
        world.join(2, 3, log_dirs=[b"C" * 16])
        world.register(1, log_dirs=[A, B])
        world.heartbeat(1)
        return world

    @staticmethod
    def placed(world: World) -> set[int]:
        return {broker_id for replicas in place_replicas(world.image, 0, 12, 2) for broker_id in replicas}

    def test_broker_with_all_directories_cordoned_gets_nothing(self) -> None:
        world = self.world()
        world.heartbeat(1, cordoned_log_dirs=[A, ELSEWHERE])
        assert world.image.brokers[1].cordoned_log_dirs == (A,)
        assert self.placed(world) == {1, 2, 3}
        world.heartbeat(1, cordoned_log_dirs=[B, A])
        assert self.placed(world) == {2, 3}
        before = world.image
        world.heartbeat(1, cordoned_log_dirs=[A, B])
        world.heartbeat(1, cordoned_log_dirs=None)
        assert world.image.brokers == before.brokers, "nothing is new"
        world.heartbeat(1, cordoned_log_dirs=[])
        assert world.image.brokers[1].cordoned_log_dirs == ()
        assert self.placed(world) == {1, 2, 3}

    def test_explicit_placement_on_cordoned_broker_is_rejected(self) -> None:
        world = self.world()
        world.create("t", [1, 2])
        world.heartbeat(1, cordoned_log_dirs=[A, B])
        message = refused(ErrorCode.INVALID_REPLICATION_FACTOR, lambda: place_replicas(world.image, 0, 1, 3))
        assert message.endswith(
            "only 2 broker(s) are registered or some brokers have all their log directories cordoned."
        )
        message = refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, lambda: validate_manual_assignment(world.image, [2, 1], None)
        )
        assert message.endswith("includes broker 1, but all its log directories are cordoned.")
        for broker_id in (2, 3):
            world.heartbeat(broker_id, cordoned_log_dirs=[b"C" * 16])
        message = refused(ErrorCode.INVALID_REPLICATION_FACTOR, lambda: place_replicas(world.image, 0, 1, 1))
        assert message.endswith("All brokers are currently fenced, or have all their log directories cordoned.")
        assert (world.partition().leader, world.partition().isr) == (1, (1, 2)), "existing replicas stay"

    def test_old_level_ignores_cordoned_directories(self) -> None:
        world = self.world(CORDONED_DIRECTORIES - 1)
        world.heartbeat(1, cordoned_log_dirs=[A, B])
        assert world.image.brokers[1].cordoned_log_dirs == ()
        assert self.placed(world) == {1, 2, 3}


class TestDamage:
    def test_damaged_leader_is_replaced_by_an_in_sync_replica(self) -> None:
        world = two_directories([1, 2, 3])
        assign(world, A, 0)
        assert assign(world, LOST_UUID, 0) == [0]
        assert (world.partition().leader, world.partition().isr) == (2, (2, 3))
        assert world.partition().directory_of(1) == LOST_UUID
        assert 1 not in world.partition().eligible_leader_replicas

    def test_a_damaged_follower_is_not_in_sync_and_leads_nothing(self) -> None:
        world = two_directories([2, 1, 3])
        leader_epoch = world.partition().leader_epoch
        assert assign(world, LOST_UUID, 0) == [0]
        assert (world.partition().leader, world.partition().isr) == (2, (2, 3))
        assert world.partition().leader_epoch == leader_epoch
        world.silence(2)
        assert world.partition().leader == 3
        world.silence(3)
        assert world.partition().leader == NO_LEADER

    def test_the_last_one_in_sync_stays(self) -> None:
        world = two_directories([1, 2])
        world.silence(2)
        assert world.partition().isr == (1,)
        before = world.image
        assert assign(world, LOST_UUID, 0) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
        assert world.image.topics == before.topics

    def test_repaired_replica_rejoins_in_its_directory(self) -> None:
        world = two_directories([1, 2, 3])
        assign(world, LOST_UUID, 0)
        assert assign(world, B, 0) == [0]
        assert world.partition().directory_of(1) == B
        assert world.partition().isr == (2, 3), "it has to catch up first"
