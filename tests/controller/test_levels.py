"""Effects of metadata.version levels on the controller's decisions, and of raising them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.common.config.feature_levels import METADATA_VERSION, release_features
from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import LOST_UUID, UNASSIGNED_UUID, ZERO_UUID
from ottla.common.platform.endpoint import Endpoint
from ottla.controller.cluster import name_directories
from ottla.controller.directories import handle_assign_replicas_to_dirs
from ottla.controller.registration import handle_controller_registration, handle_unregister_controller
from ottla.metadata.image import ControllerImage
from ottla.metadata.records import REGISTERED_FEATURES, versioned
from ottla.metadata.snapshot import feature_rows
from ottla.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.protocol.messages.controller_registration import ControllerFeatureRange, ControllerRegistrationRequest
from ottla.protocol.messages.metadata_records import FeatureLevelRecord, PartitionRecord
from ottla.protocol.messages.unregister_controller import UnregisterControllerRequest

from .world import World, refused


def world_at(level: int) -> World:
    world = World(release_features(level))
    world.join(1, 2, 3)
    world.create("t", [1, 2, 3])
    return world


def raise_to(world: World, level: int) -> None:
    world.apply([versioned(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))])


@pytest.mark.parametrize(("level", "leader_epoch"), [(7, 1), (11, 1), (12, 0), (33, 0)])
def test_isr_shrink_raises_leader_epoch_at_old_levels(level: int, leader_epoch: int) -> None:
    world = world_at(level)
    shrunk = world.alter_partition([1, 3])
    assert (shrunk.error_code, shrunk.leader_id, shrunk.isr) == (0, 1, [1, 3])
    assert (shrunk.leader_epoch, world.partition().leader_epoch) == (leader_epoch, leader_epoch)
    grown = world.alter_partition([1, 2, 3])
    assert (grown.error_code, world.partition().leader_epoch) == (0, leader_epoch)


@pytest.mark.parametrize(("level", "named"), [(7, False), (16, False), (17, True), (25, True)])
def test_directories_are_named_from_the_level_on_that_has_them(level: int, named: bool) -> None:
    world = world_at(level)
    assert bool(world.image.brokers[1].log_dirs) is named
    assert bool(world.partition().directories) is named


def test_registration_adds_directories_at_their_level() -> None:
    world = world_at(16)
    raise_to(world, 17)
    before = world.image.brokers[1]
    epoch = world.register(1, incarnation_id=before.incarnation_id)
    after = world.image.brokers[1]
    assert (epoch, after.fenced) == (before.broker_epoch, False)
    assert replace(after, log_dirs=()) == before
    assert after.log_dirs == (bytes([1]) * 16,)
    # A single node does it on behalf of its broker.
    world.apply(name_directories(world.image, 2, [b"D" * 16]))
    assert world.image.brokers[2].log_dirs == (b"D" * 16,)
    assert name_directories(world.image, 2, [b"D" * 16]) == []
    # Older replicas have no known directory; their broker may lead them.
    assert world.partition().directory_of(1) == ZERO_UUID
    world.silence(2, 3)
    assert world.partition().leader == 1


def test_several_directories_require_their_level() -> None:
    world = World(release_features(16))
    message = refused(ErrorCode.UNSUPPORTED_VERSION, lambda: world.register(1, log_dirs=[b"D" * 16, b"E" * 16]))
    assert "need metadata.version 3.7-IV2, and the cluster is at 3.7-IV1" in message
    raise_to(world, 17)
    world.register(1, log_dirs=[b"D" * 16, b"E" * 16])


def test_assignments_to_directories_wait_for_their_level() -> None:
    world = world_at(16)
    request = AssignReplicasToDirsRequest(broker_id=1, broker_epoch=world.epochs[1])
    refused(
        ErrorCode.UNSUPPORTED_VERSION, lambda: handle_assign_replicas_to_dirs(world.image, request, world.context())
    )
    raise_to(world, 17)
    assert handle_assign_replicas_to_dirs(world.image, request, world.context()).response.error_code == 0


@pytest.mark.parametrize(("directory", "leads"), [(ZERO_UUID, True), (UNASSIGNED_UUID, True), (LOST_UUID, False)])
def test_reserved_directory_ids(directory: bytes, leads: bool) -> None:
    """Reserved ids of Apache Kafka: older than directory ids, unassigned, and failed before the first report."""
    world = world_at(25)
    topic_id = world.image.topics["t"].topic_id
    partition = PartitionRecord(
        partition_id=1, topic_id=topic_id, replicas=[1, 2], isr=[1, 2], leader=2, leader_epoch=0, partition_epoch=0,
        directories=[directory, bytes([2]) * 16],
    )  # fmt: skip
    world.elr_enabled = False
    world.apply([versioned(partition)])
    world.silence(2)
    assert (world.partition(index=1).leader == 1) is leads


def test_controllers_register_from_the_level_on_that_knows_them() -> None:
    world = World(release_features(14))
    request = ControllerRegistrationRequest(
        controller_id=7, incarnation_id=b"I" * 16, features=feature_rows(ControllerFeatureRange, REGISTERED_FEATURES)
    )
    refused(ErrorCode.UNSUPPORTED_VERSION, lambda: handle_controller_registration(world.image, request))
    raise_to(world, 15)
    world.apply(handle_controller_registration(world.image, request).records)
    assert set(world.image.controllers) == {7}


def test_unregister_controller_requires_its_level() -> None:
    world = World(release_features(32), node_id="1")
    endpoints = (Endpoint("CONTROLLER", "PLAINTEXT", "h", 9093),)
    controllers = {node_id: ControllerImage(node_id, b"I" * 16, endpoints, {}) for node_id in (1, 2)}
    world.image = replace(world.image, controllers=controllers)

    def unregister(node_id: int) -> None:
        request = UnregisterControllerRequest(controller_id=node_id)
        world.run(lambda image, context: handle_unregister_controller(image, request, context))

    refused(ErrorCode.UNSUPPORTED_VERSION, lambda: unregister(2))
    raise_to(world, 33)
    refused(ErrorCode.INVALID_REQUEST, lambda: unregister(1))
    refused(ErrorCode.CONTROLLER_ID_NOT_REGISTERED, lambda: unregister(3))
    unregister(2)
    assert set(world.image.controllers) == {1}
