"""Three brokers on a simulated ZooKeeper: one of them is the controller, the others follow and ask it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.harness import Connection

from ottla.common.kafka.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import decode_controller

from .brokers import Life, Machines, World

IDS = (1, 2, 3)


class Cluster:
    """Three machines and their lives."""

    def __init__(self, world: World, **settings: str) -> None:
        self.world = world
        self.settings = settings
        self.machines = {each: Machines(world, each) for each in IDS}
        self.lives: dict[int, Life] = {}

    def start(self, *broker_ids: int) -> None:
        for each in broker_ids:
            self.begin(each)
        for each in broker_ids:
            self.lives[each].serves()
        self.world.until(self.agree)

    def begin(self, broker_id: int) -> None:
        """A new process, which is not up yet."""
        self.lives[broker_id] = self.machines[broker_id].begin(**self.settings)

    def agree(self) -> bool:
        """Whether every broker has all brokers in the newest image of one term."""
        images = [life.broker.image for life in self.lives.values()]
        return all(set(image.brokers) == set(self.lives) for image in images) and len({i.offset for i in images}) == 1

    def kill(self, broker_id: int) -> None:
        self.lives.pop(broker_id).kill()

    def stop(self, broker_id: int) -> None:
        """Stop like SIGTERM."""
        life = self.lives.pop(broker_id)
        over = self.world.loop.create_task(life.broker.hand_over())
        self.world.until(over.done)
        over.result()
        self.handed_over = self.partition(life)
        life.stop()

    @property
    def controller(self) -> int:
        claim = self.world.node(paths.CONTROLLER)
        assert claim is not None
        return decode_controller("", claim.data).broker_id

    @property
    def followers(self) -> list[int]:
        return [each for each in self.lives if each != self.controller]

    def partition(self, life: Life | None = None) -> Any:
        life = life or next(iter(self.lives.values()))
        return life.broker.image.topics["t"].partitions[0]

    def led(self) -> bool:
        """Led by a live broker, as known to all."""
        leaders = {self.partition(life).leader for life in self.lives.values()}
        return len(leaders) == 1 and leaders <= set(self.lives)

    def in_sync(self) -> bool:
        return all(set(self.partition(life).isr) == set(self.lives) for life in self.lives.values())

    def ends(self) -> set[int]:
        """Of all replicas' logs."""
        logs = [log for life in self.lives.values() for log in life.broker.parts.logs.logs() if log.topic == "t"]
        assert len(logs) == len(self.lives)
        return {log.log_end_offset for log in logs}

    def leader(self) -> Connection:
        self.world.until(self.led)
        return self.lives[self.partition().leader].connect()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def cluster(world: World) -> Cluster:
    cluster = Cluster(world)
    cluster.start(*IDS)
    return cluster


def create(cluster: Cluster, asked: int, *replicas: int, name: str = "t", **configs: str) -> None:
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=settings
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    (made,) = cluster.lives[asked].connect().ask(request, 7).topics
    assert made.error_code == 0, made.error_message
    cluster.world.until(lambda: all(name in life.broker.image.topics for life in cluster.lives.values()))


def produce(cluster: Cluster, value: bytes) -> None:
    """Acknowledged by all that are in sync."""

    def attempt() -> bool:
        return bool(cluster.leader().produce("t", value).error_code == 0)

    assert any(attempt() for _ in range(20))


def test_every_broker_can_create_topics(cluster: Cluster) -> None:
    create(cluster, cluster.followers[0], *IDS)
    assert cluster.partition().leader == 1
    for life in cluster.lives.values():
        response = life.connect().ask(MetadataRequest(topics=None), 12)
        assert response.controller_id == cluster.controller
        assert sorted(broker.node_id for broker in response.brokers) == list(IDS)
    produce(cluster, b"x")
    cluster.world.until(cluster.in_sync)


def test_producer_ids_are_given_to_each(cluster: Cluster) -> None:
    found = set()
    for life in cluster.lives.values():
        response = life.connect().ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        assert response.error_code == 0
        found.add(response.producer_id)
    assert len(found) == 3


def test_internal_topics_get_replicas_on_brokers_that_come(world: World) -> None:
    cluster = Cluster(world)
    cluster.start(1, 2)
    cluster.lives[2].connect().ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)

    def partition() -> Any:
        topic = cluster.lives[1].broker.image.topics.get(TRANSACTION_STATE_TOPIC)
        return None if topic is None else topic.partitions[0]

    world.until(partition)
    assert set(partition().replicas) == {1, 2}
    cluster.start(3)
    world.until(lambda: set(partition().isr) == {*IDS})


@pytest.mark.parametrize("target", ["controller", "leader"])
def test_nothing_is_lost_with_one_that_is_killed(world: World, cluster: Cluster, target: str) -> None:
    controller = cluster.controller
    leader = controller % 3 + 1
    create(cluster, controller, leader, *({*IDS} - {leader}))
    produce(cluster, b"a")
    victim = controller if target == "controller" else leader
    epoch = cluster.partition().leader_epoch
    cluster.kill(victim)
    world.until(cluster.agree)
    world.until(cluster.led)
    if victim == leader:
        assert cluster.partition().leader_epoch > epoch
    else:
        assert cluster.controller != controller
    produce(cluster, b"b")
    cluster.start(victim)
    world.until(cluster.in_sync)
    produce(cluster, b"c")
    world.until(lambda: cluster.ends() == {3})


@pytest.mark.promise("Z2")
def test_returning_broker_follows_the_new_controller(world: World, cluster: Cluster) -> None:
    controller = cluster.controller
    create(cluster, controller, controller, *({*IDS} - {controller}))
    before = cluster.partition().leader_epoch
    paused = cluster.lives[controller]
    paused.process.pause()
    epoch = paused.epoch
    others = [life for each, life in cluster.lives.items() if each != controller]
    world.until(lambda: all(cluster.partition(life).leader not in (-1, controller) for life in others))
    rules = cluster.controller
    paused.process.resume()
    world.until(lambda: paused.epoch > epoch and cluster.agree() and cluster.in_sync())
    assert cluster.controller == rules != controller
    assert not paused.fatal
    assert cluster.partition(paused).leader_epoch > before
    produce(cluster, b"x")


def test_stopping_broker_hands_over_leadership(world: World, cluster: Cluster) -> None:
    create(cluster, 1, 1, 2, 3)
    produce(cluster, b"a")
    world.until(cluster.in_sync)
    for each in (cluster.controller, cluster.followers[0]):
        cluster.stop(each)
        assert cluster.handed_over.leader not in (-1, each)
        world.until(cluster.agree)
        produce(cluster, b"b")
        cluster.start(each)
        world.until(cluster.in_sync)


def test_cluster_stop_with_a_dead_broker_survives_its_disk(world: World, cluster: Cluster) -> None:
    dead = cluster.followers[0]
    first, second = {*IDS} - {dead}
    create(cluster, first, first, second, dead)
    produce(cluster, b"a")
    world.until(cluster.in_sync)
    cluster.kill(dead)
    stopping = [world.loop.create_task(cluster.lives[each].broker.hand_over()) for each in (first, second)]
    world.until(lambda: all(task.done() for task in stopping))
    for each in (first, second):
        cluster.lives.pop(each).stop()
    cluster.start(first, second)
    world.until(cluster.led)
    assert cluster.ends() == {1}
    produce(cluster, b"b")
