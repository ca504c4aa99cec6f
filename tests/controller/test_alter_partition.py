"""AlterPartition requests of leaders: accepted and rejected ones."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.controller.replication import handle_alter_partition
from ottla.metadata.image import RECOVERING
from ottla.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
)

from .world import World, refused


@pytest.fixture
def world() -> World:
    world = World()
    world.join(1, 2, 3)
    world.create("t", [1, 2, 3])
    return world


@pytest.mark.parametrize("version", [2, 3])
def test_the_isr_shrinks_and_grows(world: World, version: int) -> None:
    shrunk = world.alter_partition([1, 3], version=version)
    assert (shrunk.error_code, shrunk.isr, shrunk.leader_id) == (0, [1, 3], 1)
    assert (shrunk.leader_epoch, shrunk.partition_epoch) == (0, 1)
    grown = world.alter_partition([1, 2, 3], version=version)
    assert (grown.isr, grown.partition_epoch) == ([1, 2, 3], 2)
    assert world.partition().isr == (1, 2, 3)
    assert world.partition().leader_epoch == 0, "the leader stays, and with it the epoch"


def test_unchanged_isr_writes_no_record(world: World) -> None:
    before = world.image.offset
    assert world.alter_partition([1, 2, 3]).partition_epoch == 0
    assert world.image.offset == before


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        ({"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"broker_id": 2}, ErrorCode.INVALID_REQUEST),
        ({"partition_index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_recovery_state": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refusals(world: World, overrides: dict[str, Any], code: ErrorCode) -> None:
    world.alter_partition([1, 2])
    assert world.alter_partition([1, 2, 3], **overrides).error_code == code
    assert world.partition().isr == (1, 2)


@pytest.mark.parametrize("isr", [[], [2, 3], [1, 1], [1, 9]])
def test_invalid_isr_is_rejected(world: World, isr: list[int]) -> None:
    members = [(member, -1) for member in isr] or None
    assert world.alter_partition(isr, members=members).error_code == ErrorCode.INVALID_REQUEST


def test_other_incarnation_is_rejected(world: World) -> None:
    refused(ErrorCode.STALE_BROKER_EPOCH, lambda: world.alter_partition([1], broker_epoch=0))
    refused(ErrorCode.STALE_BROKER_EPOCH, lambda: world.alter_partition([1], broker_id=9))


def test_fenced_stopping_or_restarted_replica_is_ineligible(world: World) -> None:
    world.silence(3)
    assert world.alter_partition([1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    old = world.epochs[3]
    world.join(3)
    assert world.alter_partition([], members=[(1, -1), (2, -1), (3, old)]).error_code == ErrorCode.INELIGIBLE_REPLICA
    world.heartbeat(3, want_shut_down=True)
    assert world.alter_partition([1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert world.partition().isr == (1, 2)


def test_a_topic_that_is_gone(world: World) -> None:
    partition = AlterPartitionPartition(partition_index=0, new_isr_with_epochs=[BrokerState(broker_id=1)])
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=world.epochs[1],
        topics=[AlterPartitionTopic(topic_id=b"gone" * 4, partitions=[partition])],
    )
    response = world.run(lambda image, context: handle_alter_partition(image, request, 3, context))
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
