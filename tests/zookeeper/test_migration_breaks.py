"""Events between the steps of a migration: controllers that die there, other writers of the tree, large trees."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.scale import size

from ottla.common.config.config_def import ConfigResourceType
from ottla.controller.migration_copy import COPIED_AT_ONCE, controller_awaited, found_in
from ottla.controller.result import ControllerResult
from ottla.metadata.records import versioned
from ottla.protocol.messages.metadata_records import ConfigRecord
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import encode_cluster_id
from ottla.protocol.znodes.operations import Create, Delete, SetData
from ottla.protocol.znodes.topics import decode_topic
from ottla.zookeeper.writing import registration

from .brokers import World
from .controllers import IDS, Quorum, Registrar
from .migrating import MIGRATION, PRE, Migrating
from .test_three_brokers import IDS as BROKERS
from .world import TOPIC, Controller, a_setting, a_topic, content, seen

LARGE = 2 * COPIED_AT_ONCE + 500
GROUP = int(ConfigResourceType.GROUP)
UNHOLDABLE = "."
"""A name that is invalid as a ZooKeeper path element."""


@pytest.fixture
def migrating() -> Iterator[Migrating]:
    made = Migrating()
    yield made
    made.stop()


def until_claimed_and_killed(migrating: Migrating) -> None:
    """The claim was made, and its controller has no response yet."""
    migrating.quorum.start()
    migrating.register()
    migrating.world.until(migrating.is_claimed)
    assert migrating.state is PRE
    for each in IDS:
        migrating.quorum.kill(each)


def without_id(data: bytes) -> bytes:
    """A topic as written by kafka-topics --zookeeper before topic ids."""
    content = json.loads(data)
    del content["topic_id"]
    return json.dumps({**content, "version": 2}).encode()


def forget_id(world: World, topic: str) -> None:
    node = world.node(paths.topic(topic))
    assert node is not None
    world.write(SetData(paths.topic(topic), without_id(node.data), node.version))


class TestAfterTheClaim:
    """No controller works: the next one waits for no step that only its predecessor before the claim could have
    done."""

    def test_migration_does_not_wait_for_a_new_registration(self, migrating: Migrating) -> None:
        until_claimed_and_killed(migrating)
        path = paths.broker(1)
        node = migrating.world.node(path)
        assert node is not None
        migrating.world.write(Delete(path))
        migrating.world.write(Create(path, node.data))
        migrating.quorum.start()
        migrating.world.until(migrating.migrated)
        partitions = [one for topic in migrating.image.topics.values() for one in topic.partitions.values()]
        assert all(1 not in one.isr for one in partitions), "it may lack unflushed records"

    def test_nor_are_brokers_that_are_all_away(self, migrating: Migrating) -> None:
        until_claimed_and_killed(migrating)
        for each in BROKERS:
            migrating.cluster.kill(each)
        assert migrating.registrar is not None
        migrating.registrar.broker_ids.clear()
        migrating.world.until(lambda: not any(migrating.world.node(paths.broker(each)) for each in BROKERS))
        migrating.quorum.start()
        migrating.world.until(lambda: migrating.state is MIGRATION)
        migrating.registrar.broker_ids.update(BROKERS)
        migrating.world.until(lambda: not any(each.fenced for each in migrating.image.brokers.values()))
        migrating.world.until(
            lambda: all(
                one.leader > 0 for topic in migrating.image.topics.values() for one in topic.partitions.values()
            )
        )
        migrating.world.until(migrating.equal)

    def test_a_topic_that_lost_its_id_keeps_it(self, migrating: Migrating) -> None:
        before = migrating.tree()["topics"]
        migrating.quorum.start()
        migrating.register()
        migrating.world.until(migrating.is_claimed)
        forget_id(migrating.world, "t")
        migrating.world.until(migrating.migrated)
        assert migrating.image.topics["t"].topic_id == before["t"][0]
        assert migrating.tree()["topics"]["t"][0] == before["t"][0]

    def test_migration_waits_for_an_id_that_only_brokers_know(self, migrating: Migrating) -> None:
        before = migrating.tree()["topics"]["t"][0]
        until_claimed_and_killed(migrating)
        forget_id(migrating.world, "t")
        migrating.quorum.start()
        migrating.world.until(lambda: migrating.quorum.active)
        migrating.world.run(20)
        assert migrating.state is PRE
        migrating.world.write(Delete(paths.CONTROLLER))  # by the log
        migrating.world.until(migrating.migrated)
        assert migrating.image.topics["t"].topic_id == before

    def test_a_topic_without_id_that_has_no_data_gets_one(self, migrating: Migrating) -> None:
        until_claimed_and_killed(migrating)
        node = migrating.world.node(paths.topic("t"))
        assert node is not None
        migrating.world.write(Create(paths.topic("new"), without_id(node.data)))
        migrating.quorum.start()
        migrating.world.until(migrating.migrated)
        assert any(migrating.image.topics["new"].topic_id)


def test_an_old_tree_without_ids_is_named_before_it_is_copied() -> None:
    world = World()
    old = Controller(world.server)
    old.change(*a_topic("old", 2, BROKERS))
    forget_id(world, "old")
    waited = controller_awaited(found_in(world.server.tree(), lambda _name: b"x" * 16))
    assert "['old']" in str(waited)
    migrating = Migrating(world=world)
    node = world.node(paths.topic("old"))
    assert node is not None
    named = decode_topic("", node.data).topic_id
    assert named is not None
    migrating.quorum.start()
    migrating.register()
    world.until(migrating.migrated)
    assert migrating.image.topics["old"].topic_id == named
    assert set(migrating.image.topics["old"].partitions) == {0, 1}
    migrating.stop()


def test_broker_that_takes_the_claim_back_keeps_it(migrating: Migrating) -> None:
    migrating.quorum.start()
    migrating.register()
    migrating.world.until(migrating.migrated)
    epoch = migrating.epoch()
    migrating.world.write(Delete(paths.CONTROLLER))
    migrating.world.until(lambda: migrating.epoch() > epoch and migrating.world.node(paths.CONTROLLER) is not None)
    migrating.change(*a_topic("later"))
    migrating.quorum.kill(migrating.active_id())
    migrating.change(*a_topic("later-2"))
    migrating.world.run(20)
    node = migrating.world.node(paths.CONTROLLER)
    assert node is not None
    assert node.owner != 0, "a broker's"
    assert not {"later", "later-2"} & set(migrating.tree()["topics"])


def test_invalid_name_stops_the_tree_until_it_is_undone(migrating: Migrating) -> None:
    migrating.quorum.start()
    migrating.register()
    migrating.world.until(migrating.migrated)
    migrating.change(a_setting(GROUP, UNHOLDABLE, "consumer.session.timeout.ms", "50000"))
    epoch = migrating.epoch()
    migrating.change(*a_topic("later"))
    migrating.world.run(40)
    assert migrating.epoch() == epoch, "the claim is not made again and again"
    assert "later" not in migrating.tree()["topics"]
    assert migrating.active().behind() > 0
    migrating.change(ConfigRecord(resource_type=GROUP, resource_name=UNHOLDABLE, name="consumer.session.timeout.ms"))
    migrating.world.until(migrating.equal)
    migrating.world.until(lambda: migrating.active().behind() == 0)


def test_stopping_controller_writes_its_committed_records(migrating: Migrating) -> None:
    migrating.quorum.start()
    migrating.register()
    migrating.world.until(migrating.migrated)
    life, victim = migrating.active(), migrating.active_id()
    reported: list[Any] = []

    def make(name: str) -> None:
        result = ControllerResult([versioned(each) for each in a_topic(name)], None)
        life.controller.submit(lambda _image, _context: result, lambda _none, error: reported.append(error))

    for number in range(8):
        make(f"late-{number}")
    migrating.world.until(lambda: len(reported) == 8)
    assert reported == [None] * 8
    assert life.behind() > 0
    for each in IDS:
        if each != victim:
            migrating.quorum.kill(each)
    stop = migrating.world.loop.create_task(life.broker.stop())
    migrating.world.until(stop.done)
    stop.result()
    migrating.quorum.kill(victim)
    assert {f"late-{number}" for number in range(8)} <= set(migrating.tree()["topics"])


def test_lag_is_reported_while_zookeeper_is_unreachable(migrating: Migrating) -> None:
    migrating.quorum.start()
    migrating.register()
    migrating.world.until(migrating.migrated)
    life = migrating.active()
    migrating.world.until(lambda: life.behind() == 0)
    life.session.cut(away_s=20.0)
    migrating.change(*a_topic("later"))
    assert "later" in migrating.image.topics, "the quorum continues"
    assert life.behind() > 0
    migrating.world.until(migrating.equal)
    migrating.world.until(lambda: life.behind() == 0)


class LargeTree:
    """A tree of brokers that don't run, and the quorum to come."""

    def __init__(self) -> None:
        world = self.world = World()
        tree = Controller(world.server)
        tree.change(*a_topic("large", LARGE, (7,)), *a_topic("small", 2, (7,)))
        tree.change(a_setting(TOPIC, "large", "retention.ms", "5"))
        cluster_id = "c" * 22
        world.write(Create(paths.CLUSTER_FOLDER, b""), Create(paths.CLUSTER_ID, encode_cluster_id(cluster_id)))
        self.quorum = Quorum(world, cluster_id)
        self.registrar = Registrar(self.quorum, (7,))

    def start(self) -> None:
        self.quorum.start()
        self.world.until(lambda: 7 in self.quorum.image.brokers)
        made = registration(self.quorum.image.brokers[7], 0)
        self.world.write(Create(made.path, made.data))
        self.world.write(SetData(made.path, made.data))  # its controller has seen it

    def tree(self) -> dict[str, Any]:
        return content(seen(self.world.server))

    def until_equal(self) -> None:
        self.world.run(5)
        self.world.until(lambda: self.quorum.active, 200)
        life = self.quorum.active
        assert life is not None
        self.world.until(lambda: life.behind() == 0, 200)
        assert content(life.broker.image) == self.tree()


class TestLargeTrees:
    """More than fits into one batch. Only registered brokers exist."""

    @pytest.fixture
    def large(self) -> Iterator[LargeTree]:
        made = LargeTree()
        yield made
        made.registrar.stop()

    def test_tree_is_copied_in_batches_without_followers(self, large: LargeTree) -> None:
        before = large.tree()["topics"]
        large.start()
        partial: set[int] = set()

        def is_migrated() -> bool:
            image = large.quorum.image
            if image.zk_migration_state is PRE:
                partial.add(image.partition_count())
                assert not image.zk_migration_complete
            return image.zk_migration_state is MIGRATION

        large.world.until(is_migrated, 200)
        assert len(partial) > LARGE // COPIED_AT_ONCE
        large.until_equal()
        assert {name: each[0] for name, each in large.tree()["topics"].items()} == {
            name: each[0] for name, each in before.items()
        }

    def test_settings_that_exceed_a_batch_are_copied_in_several(self, large: LargeTree) -> None:
        tree = Controller(large.world.server)
        for topic in range(19):
            settings = [a_setting(TOPIC, f"t{topic}", f"plugin.{each}", "v" * 30_000) for each in range(15)]
            tree.change(*a_topic(f"t{topic}", 1, (7,)), *settings)
        large.start()
        large.world.until(lambda: large.quorum.image.zk_migration_state is MIGRATION, 60)
        large.until_equal()
        assert len(large.quorum.image.topic_configs("t18")) == 15

    def test_what_goes_from_the_tree_in_between_is_not_copied(self, large: LargeTree) -> None:
        large.start()
        large.world.until(lambda: large.quorum.image.partition_count() >= LARGE, 200)
        assert large.quorum.image.zk_migration_state is PRE
        for each in IDS:
            large.quorum.kill(each)
        large.world.write(Create(paths.deletion("large"), b""))
        large.quorum.start()
        large.world.until(lambda: large.quorum.image.zk_migration_state is MIGRATION, 200)
        large.until_equal()
        assert set(large.quorum.image.topics) == {"small"}

    @pytest.mark.parametrize("copied", size((COPIED_AT_ONCE,), (1, COPIED_AT_ONCE, LARGE)))
    def test_interrupted_copy_is_restarted(self, large: LargeTree, copied: int) -> None:
        before = large.tree()["topics"]
        large.start()
        large.world.until(lambda: large.quorum.image.partition_count() >= copied, 200)
        life = large.quorum.active
        assert life is not None
        large.quorum.kill(next(each for each, one in large.quorum.lives.items() if one is life))
        large.quorum.start()
        large.world.until(lambda: large.quorum.image.zk_migration_state is MIGRATION, 200)
        large.until_equal()
        image = large.quorum.image
        assert {name: topic.topic_id for name, topic in image.topics.items()} == {
            name: each[0] for name, each in before.items()
        }
        assert len(image.topics["large"].partitions) == LARGE
        assert image.topic_configs("large") == {"retention.ms": "5"}
