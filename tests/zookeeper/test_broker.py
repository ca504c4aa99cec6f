"""A whole broker on a simulated ZooKeeper: its starts and ends, its session's, and who may not be one beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.server.harness import Connection, MemoryChannel, fetch_request, fetched

from ottla.common.broker_configs import BrokerConfig
from ottla.common.endpoint import Endpoint
from ottla.common.errors import OperatorError
from ottla.common.machine import Machine
from ottla.controller import tree_intake
from ottla.metadata.image import NO_LEADER
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import ControllerClaim, decode_cluster_id, encode_controller
from ottla.protocol.znodes.operations import Create, Delete, Znode
from ottla.protocol.znodes.topics import decode_state
from ottla.server.broker import Broker
from ottla.sim.disk import Mount, SimDisk
from ottla.sim.loop import Process, SimClock, SimLoop
from ottla.sim.rng import SimRng
from ottla.sim.zookeeper_session import Ensemble, SimSession
from ottla.zookeeper.registration import LATE_MS

TIMEOUT_MS = 2_000
WAIT_S = (TIMEOUT_MS + LATE_MS) / 1000
FOREVER_MS = 10**9


class World:
    """The loop, the servers, and what tools do there."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = SimLoop()
        self.rng = SimRng(seed)
        self.ensemble = Ensemble(self.loop)
        self.server = self.ensemble.server
        self.tool = self.server.connect(FOREVER_MS)

    def until(self, condition: Callable[[], object], within_s: float = 60.0) -> None:
        assert self.loop.run_until(self.loop.time() + within_s, lambda: bool(condition())), "it never came to be"

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.time() + seconds)

    def write(self, *operations: Any) -> None:
        self.server.multi(self.tool, operations)
        self.ensemble.tell()

    def node(self, path: str) -> Znode | None:
        return self.server.tree().get(path)


class Machines:
    """The disk of a broker; its lives come and go."""

    def __init__(self, world: World, broker_id: int = 1) -> None:
        self.world = world
        self.broker_id = broker_id
        self.disk = SimDisk(SimClock(world.loop), world.rng.fork("disk"))
        self.lives = 0

    def begin(self, **settings: str) -> Life:
        self.lives += 1
        return Life(self, {name.replace("_", "."): value for name, value in settings.items()})

    def up(self) -> Life:
        life = self.begin()
        life.serves()
        return life


class Life:
    """One process of a broker."""

    def __init__(self, machine: Machines, settings: dict[str, str]) -> None:
        world = self.world = machine.world
        self._machine = machine
        rng = world.rng.fork(f"life {machine.broker_id} {machine.lives}")
        process = self.process = Process(world.loop, rng.fork("pool"))
        self.session = SimSession(world.ensemble, process, rng.fork("session"), TIMEOUT_MS)
        self.fatal: list[BaseException] = []
        own = {
            "zookeeper.connect": "z:2181",
            "zookeeper.session.timeout.ms": str(TIMEOUT_MS),
            "broker.id": str(machine.broker_id),
            "log.dirs": "/data",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            **settings,
        }
        config, _ = BrokerConfig.parse(own)
        self.broker = Broker(
            config,
            Machine(Mount(machine.disk, process), SimClock(world.loop), rng.fork("broker"), process, process),
            MetricsRegistry(),
            on_fatal=self.fatal.append,
            zookeeper=self.session,
        )
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)
        self.start: asyncio.Task[None] = world.loop.create_task(self.broker.start([endpoint]))

    def serves(self) -> None:
        self.world.until(self.start.done)
        self.start.result()

    def refusal(self) -> str:
        self.world.until(self.start.done)
        with pytest.raises(OperatorError) as caught:
            self.start.result()
        self.kill()
        return str(caught.value)

    def kill(self) -> None:
        self.process.kill()
        self._machine.disk.process_died()

    def stop(self) -> None:
        stop = self.world.loop.create_task(self.broker.stop())
        self.world.until(stop.done)
        stop.result()
        self.process.kill()

    def connect(self) -> Connection:
        return Connection(self, MemoryChannel(2))  # type: ignore[arg-type]

    def run_until(self, condition: Callable[[], bool]) -> None:
        """What a connection waits by."""
        self.world.until(condition)

    @property
    def epoch(self) -> int:
        return self.broker.broker_epoch()

    def leader_epoch(self, topic: str = "t") -> int:
        partition = self.broker.image.topics[topic].partitions[0]
        assert partition.leader == self._machine.broker_id
        return partition.leader_epoch

    def leads_again(self, epoch: int) -> None:
        """Registered with a higher epoch than that, and a leader by it."""

        def leads() -> bool:
            own = self.broker.image.brokers.get(self._machine.broker_id)
            known = own is not None and own.broker_epoch == self.epoch > epoch
            return known and self.broker.image.topics["t"].partitions[0].leader == self._machine.broker_id

        self.world.until(leads)


@pytest.fixture
def world() -> World:
    return World()


def high_watermark(client: Connection, topic_id: bytes) -> int:
    (found,) = fetched(client.ask(fetch_request((topic_id, 0, 0)), 13)).values()
    assert found.error_code == 0
    return int(found.high_watermark)


def test_a_broker_serves_stops_and_serves_on(world: World) -> None:
    machine = Machines(world)
    life = machine.up()
    client = life.connect()
    topic_id = client.create_topic("t")
    assert client.produce("t", b"x").error_code == 0
    assert client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4).error_code == 0
    node = world.node(paths.broker(1))
    assert node is not None
    assert (node.owner, node.created) == (life.session.session, life.epoch)
    first = life.leader_epoch()
    cluster_id = life.broker.cluster_id
    node = world.node(paths.CLUSTER_ID)
    assert node is not None
    assert decode_cluster_id("", node.data) == cluster_id
    life.stop()
    assert world.node(paths.broker(1)) is None
    assert world.node(paths.CONTROLLER) is None
    life = machine.up()
    assert life.broker.cluster_id == cluster_id
    client = life.connect()
    assert client.produce("t", b"y").error_code == 0
    assert high_watermark(client, topic_id) == 2
    assert life.leader_epoch() > first


def test_who_was_killed_is_succeeded_when_its_session_is_over(world: World) -> None:
    machine = Machines(world)
    life = machine.up()
    client = life.connect()
    topic_id = client.create_topic("t")
    assert client.produce("t", b"x").error_code == 0
    first, epoch = life.leader_epoch(), life.epoch
    life.kill()
    assert world.node(paths.broker(1)) is not None
    life = machine.up()
    assert life.epoch > epoch
    assert life.leader_epoch() > first, "what was lost of a leader epoch may be written again in it"
    assert high_watermark(life.connect(), topic_id) == 1


def test_no_life_leads_on_in_an_epoch_of_one_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_intake, "SLICE", 1)
    machine = Machines(world)
    life = machine.up()
    life.connect().create_topic("t", 6)
    life.stop()
    life = machine.begin()
    world.until(lambda: world.node(paths.broker(1)))
    tree = world.server.tree()
    assert {decode_state("", tree[paths.state("t", number)].data).leader for number in range(6)} == {NO_LEADER}
    life.serves()
    assert {partition.leader for partition in life.broker.image.topics["t"].partitions.values()} == {1}


@pytest.mark.parametrize(
    ("broker_id", "named"),
    [(1, "Another process is registered in ZooKeeper as broker 1;"), (2, "broker 1 is the controller of the cluster")],
)
def test_a_second_one_is_refused(world: World, broker_id: int, named: str) -> None:
    first = Machines(world).up()
    began_s = world.loop.time()
    assert named in Machines(world, broker_id).begin().refusal()
    assert world.loop.time() - began_s > WAIT_S, "whoever was killed may be taken for one that lives"
    assert not first.fatal
    client = first.connect()
    client.create_topic("t")
    assert client.produce("t", b"x").error_code == 0


def test_a_session_that_expires_is_replaced(world: World) -> None:
    life = Machines(world).up()
    client = life.connect()
    topic_id = client.create_topic("t")
    assert client.produce("t", b"x").error_code == 0
    first, epoch = life.leader_epoch(), life.epoch
    life.session.expire()
    assert world.node(paths.broker(1)) is None
    life.leads_again(epoch)
    assert life.leader_epoch() > first
    assert client.produce("t", b"y").error_code == 0
    assert high_watermark(client, topic_id) == 2
    client.create_topic("u")
    assert not life.fatal


def test_a_lost_connection_leaves_the_registration(world: World) -> None:
    life = Machines(world).up()
    client = life.connect()
    client.create_topic("t")
    first, epoch = life.leader_epoch(), life.epoch
    life.session.cut()
    assert client.produce("t", b"x").error_code == 0, "what needs no controller goes on"
    world.until(lambda: life.broker.parts.control.controller.active)
    client.create_topic("u")
    assert (life.leader_epoch(), life.epoch) == (first, epoch)


def test_a_registration_that_a_tool_removed_is_made_again(world: World) -> None:
    life = Machines(world).up()
    life.connect().create_topic("t")
    epoch = life.epoch
    world.write(Delete(paths.broker(1)))
    life.leads_again(epoch)
    assert not life.fatal


def test_who_comes_back_where_another_rules_ends(world: World) -> None:
    life = Machines(world).up()
    client = life.connect()
    client.create_topic("t")
    life.process.pause()
    world.until(lambda: world.node(paths.CONTROLLER) is None)
    claim = encode_controller(ControllerClaim(5, 0))
    world.write(Create(paths.CONTROLLER, claim, ephemeral=True))
    before = world.server.tree()
    life.process.resume()
    world.until(lambda: life.fatal)
    assert "broker 5 is the controller of the cluster" in str(life.fatal[0])
    assert world.server.tree() == before


def test_data_of_one_cluster_enters_no_other(world: World) -> None:
    machine = Machines(world)
    machine.up().stop()
    other = World(1_000)
    stranger = Machines(other)
    stranger.disk = machine.disk
    before = set(other.server.tree())
    assert f"a tree without {paths.CLUSTER_ID}" in stranger.begin().refusal()
    assert set(other.server.tree()) == before
    Machines(other).up().stop()
    before = set(other.server.tree())
    assert "the data in log.dirs is of cluster" in stranger.begin().refusal()
    assert set(other.server.tree()) == before


def test_a_start_waits_for_servers_for_so_long(world: World) -> None:
    machine = Machines(world)
    life = machine.begin(zookeeper_connection_timeout_ms="1")
    assert "no server of zookeeper.connect has answered" in life.refusal()
