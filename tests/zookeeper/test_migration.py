"""The controllers' side of a migration from ZooKeeper: three of them, a simulated ZooKeeper, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.scale import size

from ottla.metrics.exposition import render
from ottla.protocol.messages.metadata_records import PartitionChangeRecord, RemoveTopicRecord
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Delete

from .controllers import IDS
from .migrating import MIGRATION, POST, PRE, Migrating
from .test_three_brokers import IDS as BROKERS
from .test_three_brokers import create
from .world import BROKER, EVERYTHING, TOPIC, a_limit, a_setting, a_topic, an_acl, id_of


@pytest.fixture
def migrating() -> Iterator[Migrating]:
    made = Migrating()
    yield made
    made.stop()


def test_nothing_is_claimed_before_all_brokers_are_known(migrating: Migrating) -> None:
    before = migrating.epoch()
    migrating.quorum.start()
    migrating.register(1, 2)
    migrating.world.until(lambda: set(migrating.image.brokers) == {1, 2} and len(migrating.image.controllers) == 3)
    migrating.world.run(20)
    assert migrating.state is PRE
    assert not migrating.image.topics
    assert migrating.epoch() == before
    assert migrating.world.node(paths.MIGRATION) is None


def test_migration_waits_for_an_absent_broker_with_replicas(migrating: Migrating) -> None:
    migrating.cluster.kill(3)
    migrating.world.until(migrating.cluster.agree)
    migrating.quorum.start()
    migrating.register(1, 2)
    migrating.world.run(20)
    assert migrating.state is PRE
    assert migrating.registrar is not None
    migrating.registrar.broker_ids.add(3)
    migrating.world.until(migrating.migrated)


def test_a_controller_that_has_not_the_setting_is_waited_for(migrating: Migrating) -> None:
    migrating.quorum.start()
    migrating.world.until(lambda: migrating.state is PRE and len(migrating.image.controllers) == 3)
    other = next(each for each in IDS if each != migrating.active_id())
    migrating.quorum.kill(other)
    migrating.quorum.begin(other, migrates=False)
    migrating.world.until(lambda: not migrating.image.controllers[other].zk_migration_ready)
    migrating.register()
    migrating.world.run(20)
    assert migrating.state is PRE


def test_the_quorum_takes_over_all_that_the_tree_has(migrating: Migrating) -> None:
    before, epoch = migrating.tree(), migrating.epoch()
    migrating.quorum.start()
    migrating.register()
    migrating.world.until(migrating.migrated)
    after = migrating.tree()
    before.pop("features"), after.pop("features")
    assert after == before
    claim, owner = migrating.claim()
    assert (claim.broker_id, owner) == (migrating.active_id(), 0)
    assert claim.kraft_controller_epoch == migrating.active().broker.image.epoch
    assert migrating.epoch() > epoch
    migrating.world.until(lambda: migrating.said()["kraft_metadata_offset"] > 0)
    said = migrating.said()
    assert list(said) == [
        "version",
        "kraft_controller_id",
        "kraft_controller_epoch",
        "kraft_metadata_offset",
        "kraft_metadata_epoch",
    ]
    assert said["kraft_controller_id"] == claim.broker_id
    assert 0 < said["kraft_metadata_offset"] <= migrating.image.offset
    exposition = b"".join(render(migrating.active().registry)).decode()
    assert "kafka_controller_kafkacontroller_zkmigrationstate 1" in exposition
    assert "kafka_controller_kafkacontroller_zkwritebehindlag " in exposition
    assert all(migrating.image.brokers[each].is_migrating_zk_broker for each in BROKERS)


def test_decisions_are_written_to_both(migrating: Migrating) -> None:
    migrating.quorum.start()
    migrating.register()
    migrating.world.until(migrating.migrated)
    everything = [each for each in EVERYTHING if getattr(each, "name", "") not in ("t", "metadata.version")]
    everything = [each for each in everything if getattr(each, "topic_id", None) != id_of("t")]
    next_id = migrating.image.next_producer_id
    for each in everything:
        if hasattr(each, "next_producer_id"):
            each.next_producer_id = next_id + 1000
    migrating.change(*everything)
    migrating.world.until(migrating.equal)
    t, u = (migrating.image.topics[name].topic_id for name in ("t", "u"))
    migrating.change(PartitionChangeRecord(partition_id=0, topic_id=t, isr=[1, 2]))
    migrating.change(RemoveTopicRecord(topic_id=u), a_setting(TOPIC, "t", "retention.ms", "5"))
    migrating.change(a_setting(BROKER, "1", "num.io.threads", "9"), *a_topic("u", 2), an_acl(9, "z"))
    migrating.world.until(migrating.equal)
    assert migrating.image.topics["u"].topic_id == id_of("u")
    assert migrating.image.topics["t"].partitions[0].isr == (1, 2)


def test_each_new_controller_continues_the_migration(migrating: Migrating) -> None:
    migrating.quorum.start()
    migrating.register()
    migrating.world.until(migrating.migrated)
    epochs = [migrating.epoch()]
    for number in range(3):
        victim = migrating.active_id()
        migrating.change(*a_topic(f"before-{number}"))
        migrating.quorum.kill(victim)
        migrating.change(*a_topic(f"after-{number}"), a_limit("producer_byte_rate", 1.0 + number, user="ann"))
        migrating.quorum.begin(victim)
        migrating.world.until(migrating.equal)
        epochs.append(migrating.epoch())
        assert migrating.claim()[0].kraft_controller_epoch == migrating.active().broker.image.epoch
    assert epochs == sorted(set(epochs))


def test_former_controller_writes_nothing(migrating: Migrating) -> None:
    migrating.quorum.start()
    migrating.register()
    migrating.world.until(migrating.migrated)
    old = migrating.active()
    old.process.pause()
    paused = migrating.active_id()
    migrating.quorum.lives.pop(paused)
    migrating.change(*a_topic("new"))
    migrating.world.until(migrating.equal)
    epoch = migrating.epoch()
    old.process.resume()
    migrating.world.run(10)
    migrating.quorum.lives[paused] = old
    assert migrating.epoch() == epoch
    migrating.change(*a_topic("newer"))
    migrating.world.until(migrating.equal)


def test_it_is_finalised_by_controllers_without_the_setting(migrating: Migrating) -> None:
    migrating.quorum.start()
    migrating.register()
    migrating.world.until(migrating.migrated)
    assert migrating.registrar is not None
    migrating.registrar.migrating = False  # restarted as the quorum's own
    migrating.world.until(lambda: not any(each.is_migrating_zk_broker for each in migrating.image.brokers.values()))
    for each in IDS:
        migrating.quorum.kill(each)
    migrating.world.run(1)  # the pending call to ZooKeeper arrives
    before = migrating.world.server.tree()
    migrating.quorum.start(migrates=False)
    migrating.world.until(lambda: migrating.state is POST)
    migrating.change(*a_topic("later"))
    migrating.world.run(5)
    after = migrating.world.server.tree()
    assert after == before
    assert after[paths.CONTROLLER].owner == 0


def test_before_that_brokers_go_back_to_zookeeper_alone(migrating: Migrating) -> None:
    migrating.quorum.start()
    migrating.register()
    migrating.world.until(migrating.migrated)
    migrating.change(*a_topic("new"), a_setting(TOPIC, "t", "retention.ms", "5"))
    migrating.world.until(migrating.equal)
    assert migrating.registrar is not None
    migrating.registrar.stop()
    for each in IDS:
        migrating.quorum.kill(each)
    before = migrating.tree()
    epoch = migrating.epoch()
    migrating.world.write(Delete(paths.CONTROLLER), Delete(paths.MIGRATION))
    migrating.world.until(lambda: migrating.epoch() > epoch and migrating.cluster.controller in BROKERS)
    migrating.world.until(migrating.cluster.agree)
    migrating.world.until(lambda: "new" in migrating.cluster.lives[1].broker.image.topics)
    image = migrating.cluster.lives[1].broker.image
    assert image.topic_configs("t") == {"retention.ms": "5"}
    assert {name: topic.topic_id for name, topic in image.topics.items()} == {
        name: topic[0] for name, topic in before["topics"].items()
    }
    create(migrating.cluster, 2, 1, 2, 3, name="again")


@pytest.mark.promise("Z4")
@pytest.mark.parametrize("seed", range(1, size(3, 13)))
def test_whatever_breaks_off_nothing_is_lost_and_both_end_equal(seed: int) -> None:
    migrating = Migrating(seed)
    world, rng = migrating.world, migrating.world.rng.fork("faults")
    before = migrating.tree()["topics"]
    migrating.quorum.start()
    migrating.register()
    made: list[str] = []
    for number in range(25):
        world.run(rng.uniform(0.0, 1.5))
        lives = [(each, life) for each, life in migrating.quorum.lives.items() if life.process.alive]
        fault = rng.choice(["kill", "cut", "expire", "change", "cut active"])
        if fault == "kill" and len(lives) == 3:
            victim = migrating.active_id() if migrating.quorum.active and rng.chance(0.6) else rng.choice(lives)[0]
            migrating.quorum.kill(victim)
        elif fault == "cut":
            rng.choice(lives)[1].session.cut()
        elif fault == "cut active" and migrating.quorum.active is not None:
            migrating.quorum.active.session.cut()
        elif fault == "expire":
            rng.choice(lives)[1].session.expire()
        elif migrating.state is MIGRATION and migrating.quorum.active is not None:
            made.append(f"made-{number}")
            migrating.change(*a_topic(made[-1], 2))
        if rng.chance(0.5):
            migrating.quorum.start()
    migrating.quorum.start()
    world.until(migrating.migrated, 120)
    assert set(made) <= set(migrating.image.topics)
    assert {name: before[name][0] for name in before} == {
        name: migrating.image.topics[name].topic_id for name in before
    }
    assert all(world.node(f"{paths.BROKER_IDS}/{each}") for each in BROKERS)
    migrating.stop()
