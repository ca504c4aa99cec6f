"""Committed images written to a tree call by call, and the outcome of a failed call."""

from __future__ import annotations

import pytest
from simulation.zookeeper import SimZooKeeper

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import KafkaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.log import LeaderAndEpoch
from ottla.protocol.messages.metadata_records import PartitionChangeRecord
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.migration import decode_migration
from ottla.protocol.znodes.operations import Operation, SetData
from ottla.protocol.znodes.session import Code, Done, ZooKeeperError
from ottla.zookeeper.controller_election import take_over
from ottla.zookeeper.dual_write import MAX_WAITING, DualWriter
from ottla.zookeeper.writing import MAX_STEPS, TreeWriter

from .world import TOPIC, Controller, a_setting, a_topic, content, id_of, seen


class Wire:
    """Calls that arrive when the test lets them. The part of `ZooKeeperSession` that a writer uses."""

    def __init__(self, server: SimZooKeeper) -> None:
        self.server = server
        self.session = server.connect(6000)
        self.calls: list[tuple[list[Operation], Done[list[str]]]] = []

    def multi(self, operations: list[Operation], done: Done[list[str]]) -> None:
        self.calls.append((operations, done))

    def arrive(self) -> None:
        operations, done = self.calls.pop(0)
        try:
            paths_made = self.server.multi(self.session, operations)
        except ZooKeeperError as error:
            done(None, error)
        else:
            done(paths_made, None)


class World:
    def __init__(self) -> None:
        self.server = SimZooKeeper()
        controller = Controller(self.server)
        controller.change(*a_topic("t"))
        tree = self.server.tree()
        made = take_over(LeaderAndEpoch(101, 4), 5, None, tree[paths.CONTROLLER_EPOCH], None)
        assert made is not None
        self.wire = Wire(self.server)
        self.server.multi(self.wire.session, made[0])
        self.image = controller.image
        self.failures: list[Exception] = []
        self.refusals: list[KafkaError] = []
        self.writer = DualWriter(
            self.wire,  # type: ignore[arg-type]
            made[1],
            TreeWriter(tree, 101, made[1].term.controller_epoch, leaps=True),
            self.image,
            self.failures.append,
            self.refusals.append,
        )

    def commit(self, *records: object) -> MetadataImage:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image, changes = delta.apply(self.image.offset + len(records), 4)
        self.writer.follow(self.image, changes)
        return self.image

    def said(self) -> int:
        return decode_migration("", self.server.tree()[paths.MIGRATION].data).metadata_offset


@pytest.fixture
def world() -> World:
    return World()


def test_calls_are_sequential_and_record_their_offset(world: World) -> None:
    images = [world.commit(*a_topic(name)) for name in ("u", "v")]
    for image in images:
        assert len(world.wire.calls) == 1
        world.wire.arrive()
        assert content(seen(world.server)) == content(image)
        assert world.said() == image.offset
    assert not world.wire.calls
    assert world.writer.behind == 0


@pytest.mark.parametrize("moved", [paths.CONTROLLER_EPOCH, paths.MIGRATION])
def test_after_a_call_that_failed_there_is_none(world: World, moved: str) -> None:
    before = content(seen(world.server))
    node = world.server.tree()[moved]
    world.server.multi(world.wire.session, [SetData(moved, node.data, node.version)])
    world.commit(*a_topic("u"))
    world.commit(*a_topic("v"))
    world.wire.arrive()
    assert [error.code for error in world.failures if isinstance(error, ZooKeeperError)] == [Code.BAD_VERSION]
    world.commit(*a_topic("w"))
    assert not world.wire.calls
    assert content(seen(world.server)) == before


def test_where_too_much_waits_the_newest_image_is_compared(world: World) -> None:
    for number in range(MAX_WAITING + 5):
        world.commit(a_setting(TOPIC, "t", "retention.ms", str(number)))
    assert world.writer.behind == world.image.offset + 1
    while world.wire.calls:
        world.wire.arrive()
    assert content(seen(world.server)) == content(world.image)
    assert world.said() == world.image.offset


def test_a_partition_leaps_in_several_groups(world: World) -> None:
    """Many changes of it while ZooKeeper could not be reached."""
    image = world.image
    for number in range(3 * MAX_STEPS + 2):
        delta = MetadataDelta(image)
        delta.replay(PartitionChangeRecord(partition_id=0, topic_id=id_of("t"), isr=[1, 2][: 1 + number % 2]))
        image, _ = delta.apply(image.offset + 1, 4)
    world.image = image
    world.writer.follow(image)
    calls = 0
    while world.wire.calls:
        world.wire.arrive()
        calls += 1
    assert calls > 1
    assert content(seen(world.server)) == content(image)
    assert not world.failures


def test_image_invalid_in_zookeeper_halts_writer_until_compare(world: World) -> None:
    group = int(ConfigResourceType.GROUP)
    before = content(seen(world.server))
    world.commit(a_setting(group, ".", "consumer.session.timeout.ms", "50000"))
    world.commit(*a_topic("u"))
    assert len(world.refusals) == 1
    assert not world.wire.calls
    assert not world.failures
    assert world.writer.behind > 0
    world.writer.follow(world.image)
    assert len(world.refusals) == 2
    world.commit(a_setting(group, ".", "consumer.session.timeout.ms", None))
    assert content(seen(world.server)) == before
    world.writer.follow(world.image)
    while world.wire.calls:
        world.wire.arrive()
    assert content(seen(world.server)) == content(world.image)
    assert world.said() == world.image.offset
    assert not world.writer.behind
