"""A controller on ZooKeeper: its decisions are in the tree, with any deaths, restarts and expired sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from simulation.rng import SimRng
from tests.scale import size

from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller import registration, result
from ottla.controller.features import handle_update_features
from ottla.controller.replication import FIRST_VERSION_WITH_EPOCHS, handle_alter_partition
from ottla.controller.topics import handle_create_topics
from ottla.metadata.image import NO_LEADER
from ottla.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.fields import encode
from ottla.protocol.znodes.operations import Create, Delete, SetData
from ottla.zookeeper.controller_election import claim_controller
from ottla.zookeeper.log import first_offset

from .nodes import TIMEOUT_MS, Node, World
from .world import content


def cluster(*broker_ids: int, nodes: int = 3, **properties: str) -> World:
    world = World(properties={name.replace("_", "."): text for name, text in properties.items()})
    world.start(*range(1, nodes + 1))
    world.join(*broker_ids)
    world.settled()
    return world


def made(world: World, name: str, *replicas: tuple[int, ...], **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    results = world.settled().create(name, *replicas, configs=settings)
    world.until(lambda: results)
    response, error = results[0]
    assert error is None
    assert [topic.error_code for topic in response.topics] == [0]


def listed(*partitions: tuple[str, int]) -> bytes:
    """A preferred election, as old tools request it."""
    return encode({"version": 1, "partitions": [{"topic": topic, "partition": number} for topic, number in partitions]})


def moves(replicas: Mapping[tuple[str, int], Sequence[int]]) -> bytes:
    """A reassignment, as old tools request it."""
    rows = [{"topic": topic, "partition": number, "replicas": ids} for (topic, number), ids in replicas.items()]
    return encode({"version": 1, "partitions": rows})


def test_acknowledged_change_is_in_tree_and_image() -> None:
    world = cluster(1, 2)
    made(world, "t", (1, 2), (2, 1), retention_ms="5")
    node = world.settled()
    assert content(world.tree) == content(node.publisher.image) == content(node.log.latest)
    assert [world.partition("t", number).leader for number in (0, 1)] == [1, 2]
    assert world.tree.topic_configs("t") == {"retention.ms": "5"}
    assert world.tree.brokers == node.publisher.image.brokers
    epoch = node.log.leader.epoch
    assert first_offset(epoch) < node.publisher.image.offset < first_offset(epoch + 1)


def test_the_partition_epoch_is_the_version_of_the_state() -> None:
    world = cluster(1, 2)
    made(world, "t", (1, 2))
    world.leave(1)
    world.until(lambda: world.partition("t").leader == 2)
    node = world.settled()
    state = world.server.tree()[paths.state("t", 0)]
    assert node.publisher.image.topics["t"].partitions[0].partition_epoch == state.version > 0


class TestBrokers:
    def test_one_that_goes_leads_nothing_and_is_none(self) -> None:
        world = cluster(1, 2)
        made(world, "t", (1, 2))
        made(world, "alone", (1,))
        world.leave(1)
        node = world.settled()
        world.until(lambda: world.partition("alone").leader == NO_LEADER)
        assert (world.partition("t").leader, world.partition("t").isr) == (2, (2,))
        assert world.partition("alone").isr == (1,)
        world.until(lambda: list(node.publisher.image.brokers) == [2])
        world.join(1)
        world.until(lambda: world.partition("alone").leader == 1)
        assert world.partition("t").leader == 2

    def test_one_that_is_another_process_has_left_the_isr(self) -> None:
        """Between two reads of the registrations: no controller saw that it was away."""
        world = cluster(1, 2)
        made(world, "t", (1, 2), (2, 1))
        world.leave(1)
        world.join(1)
        world.until(lambda: world.partition("t").isr == world.partition("t", 1).isr == (2,))
        node = world.settled()
        epoch = world.server.tree()[paths.broker(1)].created
        world.until(lambda: node.publisher.image.brokers[1].broker_epoch == epoch)

    def test_broker_that_returned_without_a_controller_left_the_isr(self) -> None:
        world = cluster(1, 2, nodes=1)
        made(world, "t", (1, 2))
        world.nodes[1].kill()
        world.run(2 * TIMEOUT_MS / 1000)
        world.leave(1)
        world.join(1)
        assert world.partition("t").leader == 1
        world.start(2)
        world.until(lambda: world.partition("t").leader == 2)
        assert world.partition("t").isr == (2,)

    @pytest.mark.promise("Z3")
    def test_broker_that_no_controller_accepted_left_the_isr(self) -> None:
        """By a controller that had not seen it yet, and then died."""
        world = cluster(1, 2, nodes=1)
        made(world, "t", (1, 2))
        world.nodes[1].kill()
        world.leave(1)
        world.join(1)
        path = paths.state("t", 0)
        world.write(SetData(path, world.server.tree()[path].data))
        first = world.partition("t").leader_epoch
        world.start(2)
        world.until(lambda: world.partition("t").leader == 2)
        assert world.partition("t").isr == (2,)
        assert world.partition("t").leader_epoch > first

    def test_topics_use_all_brokers_registered_at_term_start(self) -> None:
        world = World()
        world.start(1)
        world.until(lambda: world.active)
        world.nodes[1].kill()
        world.join(1, 2, 3)
        world.start(2)
        asked = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
        request = CreateTopicsRequest(topics=[asked], timeout_ms=1000)
        world.until(lambda: world.active)  # and nothing else has happened since it is
        results = world.nodes[2].submit(lambda image, context: handle_create_topics(image, request, context))
        world.until(lambda: results)
        assert [topic.error_code for topic in results[0][0].topics] == [0]
        assert set(world.partition("t").replicas) == {1, 2, 3}

    def test_leader_of_more_than_a_slice_is_accepted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        slice_size = size(50, result.SLICE)
        monkeypatch.setattr(registration, "SLICE", slice_size)
        world = cluster(1, 2, nodes=1)
        made(world, "t", *[(1, 2)] * (slice_size + 1))
        world.nodes[1].kill()
        world.leave(1)
        world.join(1)
        world.start(2)
        world.until(lambda: set(world.nodes[2].log.latest.brokers) == {1, 2})
        partitions = world.nodes[2].log.latest.topics["t"].partitions.values()
        assert {(each.leader, each.isr) for each in partitions} == {(2, (2,))}

    def test_one_that_was_taken_in_is_not_taken_in_again(self) -> None:
        world = cluster(1, 2, nodes=1)
        made(world, "t", (1, 2))
        before = world.server.tree()[paths.state("t", 0)]
        world.nodes[1].kill()
        world.start(2)
        world.until(lambda: world.active)
        world.settled()
        assert world.server.tree()[paths.state("t", 0)] == before

    def test_leaders_remain_through_a_controller_change(self) -> None:
        world = cluster(1, 2)
        made(world, "t", (1, 2))
        before = world.partition("t")
        first = world.settled()
        first.kill()
        world.until(lambda: world.active not in (None, first))
        world.settled()
        assert world.partition("t") == before

    def test_one_that_is_not_heard_of_by_heartbeats_is_not_fenced(self) -> None:
        world = cluster(1, 2, broker_session_timeout_ms="1000")
        made(world, "t", (1, 2))
        world.run(30)
        assert world.partition("t").isr == (1, 2)
        assert not any(broker.fenced for broker in world.settled().publisher.image.brokers.values())


class TestReassignmentRequests:
    def test_a_deletion(self) -> None:
        world = cluster(1, 2)
        made(world, "t", (1, 2))
        made(world, "kept", (1, 2))
        epoch = world.settled().log.leader.epoch
        world.write(Create(paths.deletion("t"), b""), Create(paths.deletion("never"), b""))
        world.until(lambda: not world.there(paths.topic("t")) and not world.there(paths.deletion("never")))
        world.until(lambda: not world.there(paths.deletion("t")))
        assert list(world.settled().publisher.image.topics) == ["kept"]
        made(world, "t", (2, 1))
        assert world.settled().log.leader.epoch == epoch, "no request may end a term"

    def test_a_deletion_where_they_are_disabled(self) -> None:
        world = cluster(1, 2, delete_topic_enable="false")
        made(world, "t", (1, 2))
        world.write(Create(paths.deletion("t"), b""))
        world.until(lambda: not world.there(paths.deletion("t")))
        assert list(world.tree.topics) == ["t"]

    def test_preferred_leaders(self) -> None:
        world = cluster(1, 2, auto_leader_rebalance_enable="false")
        made(world, "t", (1, 2))
        world.leave(1)
        world.until(lambda: world.partition("t").leader == 2)
        world.join(1)
        node = world.settled()
        rejoin(world, node, "t", 1)
        world.until(lambda: world.partition("t").isr == (2, 1))
        world.write(Create(paths.PREFERRED_REPLICA_ELECTION, listed(("t", 0), ("never", 7))))
        world.until(lambda: not world.there(paths.PREFERRED_REPLICA_ELECTION))
        assert world.partition("t").leader == 1

    def test_a_reassignment(self) -> None:
        world = cluster(1, 2, 3)
        made(world, "t", (1, 2))
        world.write(Create(paths.REASSIGN_PARTITIONS, moves({("t", 0): (3, 2)})))
        world.until(lambda: not world.there(paths.REASSIGN_PARTITIONS))
        assert world.partition("t").adding_replicas == (3,)
        rejoin(world, world.settled(), "t", 3)
        world.until(lambda: world.partition("t").replicas == (3, 2))

    def test_refused_reassignment_request_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        world = cluster(1, 2, 3)
        made(world, "t", (1, 2))
        requested = {("t", 0): (3, 2), ("t", 1): (3, 2), ("never", 0): (1, 2)}
        world.write(Create(paths.REASSIGN_PARTITIONS, moves(requested)))
        world.until(lambda: not world.there(paths.REASSIGN_PARTITIONS))
        assert world.partition("t").adding_replicas == (3,)
        assert "rejected for 2 of 3 partitions, the first is t-1: " in caplog.text

    def test_a_reassignment_to_a_broker_that_has_just_come(self) -> None:
        world = cluster(1, 2)
        made(world, "t", *[(1, 2)] * 10)
        for number in range(10):  # report and read, at two times
            world.join(3 + number)
            world.write(Create(paths.REASSIGN_PARTITIONS, moves({("t", number): (3 + number, 2)})))
            world.until(lambda: not world.there(paths.REASSIGN_PARTITIONS))
            assert world.partition("t", number).adding_replicas == (3 + number,)

    def test_a_reassignment_that_was_written_before_the_claim(self) -> None:
        """To brokers that no controller has taken in, one of which came after all was read."""
        world = cluster(1, 2, nodes=1)
        made(world, "t", (1, 2))
        made(world, "u", (1, 2))
        world.nodes[1].kill()
        world.join(3)
        requested = {("t", 0): (3, 2), ("u", 0): (4, 2)}
        world.write(Create(paths.REASSIGN_PARTITIONS, moves(requested)))
        world.start(2)
        world.until(lambda: world.nodes[2].log.newcomers)
        world.join(4)
        world.until(lambda: not world.there(paths.REASSIGN_PARTITIONS))
        assert world.partition("t").adding_replicas == (3,)
        assert world.partition("u").adding_replicas == (4,)

    @pytest.mark.parametrize("path", [paths.PREFERRED_REPLICA_ELECTION, paths.REASSIGN_PARTITIONS])
    def test_one_that_makes_no_sense_goes_away(self, path: str) -> None:
        world = cluster(1, 2)
        made(world, "t", (1, 2))
        before = content(world.tree)
        world.write(Create(path, b'{"version":9}'))
        world.until(lambda: not world.there(path))
        assert content(world.tree) == before


def rejoin(world: World, node: Node, topic: str, broker_id: int) -> None:
    """The leader has the broker in sync."""
    image = node.publisher.image
    partition = image.topics[topic].partitions[0]
    isr = [
        BrokerState(broker_id=each, broker_epoch=image.brokers[each].broker_epoch)
        for each in (*partition.isr, broker_id)
    ]
    change = AlterPartitionPartition(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        new_isr_with_epochs=isr,
        partition_epoch=partition.partition_epoch,
    )
    request = AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=image.brokers[partition.leader].broker_epoch,
        topics=[AlterPartitionTopic(topic_id=image.topics[topic].topic_id, partitions=[change])],
    )
    node.submit(lambda image, context: handle_alter_partition(image, request, FIRST_VERSION_WITH_EPOCHS, context))


class TestTheEndOfAReign:
    def test_controller_paused_beyond_its_session_writes_nothing(self) -> None:
        world = cluster(1, 2)
        zombie = world.settled()
        zombie.process.pause()
        results = zombie.create("late", (1, 2))
        world.until(lambda: world.active not in (None, zombie))
        made(world, "t", (1, 2))
        zombie.process.resume()
        world.until(lambda: results)
        assert results[0][1].code is ErrorCode.NOT_CONTROLLER
        world.run(5)
        assert list(world.tree.topics) == ["t"]
        assert not zombie.controller.active

    def test_controller_with_a_lost_claim_writes_nothing(self) -> None:
        """The notification is in flight while it writes: only the epoch check rejects that."""
        world = cluster(1, 2, nodes=1)
        first = world.settled()
        epoch = first.log.leader.epoch
        claim, reign = claim_controller(9, 1, world.server.tree()[paths.CONTROLLER_EPOCH])
        results = first.create("late", (1, 2))
        world.write(Delete(paths.CONTROLLER), *claim)
        world.until(lambda: results)
        assert results[0][1].code is ErrorCode.NOT_CONTROLLER
        world.until(lambda: first.log.leader == (9, reign.controller_epoch))
        assert not world.tree.topics
        world.write(Delete(paths.CONTROLLER))
        assert world.settled().log.leader.epoch == epoch + 2
        assert not world.tree.topics

    def test_lost_connection_leads_to_a_new_epoch(self) -> None:
        world = cluster(1, 2, nodes=1)
        made(world, "t", (1, 2))
        node = world.settled()
        epoch, owner = node.log.leader.epoch, node.session.session
        results = node.create("u", (1, 2))
        world.run(0.001)
        node.session.cut()
        assert results[0][1].code is ErrorCode.NOT_CONTROLLER
        world.settled()
        assert (node.log.leader.epoch, node.session.session) == (epoch + 1, owner)
        assert content(world.tree) == content(node.publisher.image)

    def test_state_written_by_a_tool_is_read_before_next_write(self) -> None:
        world = cluster(1, 2, nodes=1)
        made(world, "t", (1, 2))
        path = paths.state("t", 0)
        data = world.server.tree()[path].data.replace(b'"isr":[1,2]', b'"isr":[1]')
        world.write(SetData(path, data))
        world.leave(1)
        world.until(lambda: world.partition("t").leader == NO_LEADER)
        assert world.partition("t").isr == (1,)


def test_eligible_leader_replicas_are_refused() -> None:
    world = cluster(1, 2, nodes=1)
    node = world.settled()
    assert "eligible.leader.replicas.version" not in node.publisher.image.features
    update = FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=1, upgrade_type=1)
    request = UpdateFeaturesRequest(feature_updates=[update])
    results = node.submit(lambda image, context: handle_update_features(image, request, 2, context))
    world.until(lambda: results)
    assert isinstance(results[0][1], KafkaError)
    assert results[0][1].code is ErrorCode.INVALID_UPDATE_VERSION


class Chaos:
    """Random faults while topics are created and deleted; acknowledged changes must persist."""

    def __init__(self, seed: int) -> None:
        self.rng = SimRng(seed)
        self.world = World(seed)
        self.world.start(1, 2, 3)
        self.world.join(1, 2, 3, 4)
        self.asked: list[tuple[str, str, list[Any]]] = []
        self.blocks: list[list[Any]] = []
        self.names = self.made = 0
        self.standing: set[str] = set()
        """Topics with an acknowledged creation, and without a deletion request."""

    def step(self) -> None:
        world, rng = self.world, self.rng
        world.run(rng.uniform(0.0, 0.3))
        world.check()
        for kind, name, results in list(self.asked):
            if results:
                self.asked.remove((kind, name, results))
                if kind == "create" and results[0][1] is None and results[0][0].topics[0].error_code == 0:
                    self.standing.add(name)
                    self.made += 1
                if kind == "delete" and results[0][1] is None:
                    assert name not in world.tree.topics
        node = rng.choice([each for each in world.nodes.values() if each.process.alive])
        if rng.chance(0.6) and world.active is not None:
            node = world.active
        rng.choice([*[self.create] * 5, self.delete, self.identify, self.fault, self.broker])(node)

    def create(self, node: Node) -> None:
        self.names += 1
        name = f"t{self.names}"
        results = node.create(name, *[(1, 2, 3)] * (1 + self.rng.randrange(3)), configs={"retention.ms": "7"})
        self.asked.append(("create", name, results))

    def delete(self, node: Node) -> None:
        if self.standing:
            name = self.rng.choice(sorted(self.standing))
            self.standing.discard(name)
            if self.rng.chance(0.3):
                if not self.world.there(paths.deletion(name)) and self.world.there(paths.DELETE_TOPICS):
                    self.world.write(Create(paths.deletion(name), b""))
            else:
                self.asked.append(("delete", name, node.delete(name)))

    def identify(self, node: Node) -> None:
        if 4 in node.log.latest.brokers:
            self.blocks.append(node.producer_ids(4))

    def fault(self, node: Node) -> None:
        world = self.world
        kind = self.rng.randrange(7)
        if kind == 0:
            node.session.cut()
        elif kind == 1:
            node.session.expire()
        elif kind == 2:
            node.process.pause()
            world.loop.call_later(self.rng.uniform(0.1, 2 * TIMEOUT_MS / 1000), node.process.resume)
        elif kind == 3:
            node.kill()
            world.start(node.node_id)
        elif kind == 4:
            world.wire.cut ^= {node.node_id}
        elif kind == 5:
            world.wire.lost = self.rng.choice([0.0, 0.0, 0.3])
        elif world.there(paths.CONTROLLER):
            world.write(Delete(paths.CONTROLLER))

    def broker(self, _node: Node) -> None:
        broker_id = 1 + self.rng.randrange(3)
        if broker_id in self.world.brokers:
            self.world.leave(broker_id)
        if self.rng.chance(0.7):
            self.world.join(broker_id)

    def end(self) -> None:
        world = self.world
        world.join(*({1, 2, 3} - set(world.brokers)))
        world.wire.cut.clear()
        world.wire.lost = 0.0
        world.run(5)
        node = world.settled()
        world.run(5)
        assert world.active is node
        assert content(world.tree) == content(node.publisher.image) == content(node.log.latest)
        world.until(lambda: all(each.publisher.image == node.publisher.image for each in world.nodes.values()))
        assert self.standing <= set(world.tree.topics)
        for topic in world.tree.topics.values():
            assert all(partition.leader in world.brokers for partition in topic.partitions.values())
        firsts = [results[0][0].producer_id_start for results in self.blocks if results and results[0][1] is None]
        assert len(firsts) == len(set(firsts))
        assert not [path for path in world.server.tree() if path.startswith(f"{paths.DELETE_TOPICS}/")]


@pytest.mark.promise("Z2")
@pytest.mark.parametrize("seed", range(1, size(2, 7)))
def test_whatever_happens_what_was_answered_holds(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(120):
        chaos.step()
    chaos.end()
    assert len(chaos.world.reigns) > 3
    assert chaos.made > 3
