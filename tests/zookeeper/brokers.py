"""Whole brokers on a simulated ZooKeeper: the machine of each, and its lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from simulation.disk import Mount, SimDisk
from simulation.loop import Process, ProcessKilled, SimClock, SimLoop
from simulation.network import Address, ListeningProcess, Network
from simulation.peer import SimPeerNetwork
from simulation.rng import SimRng
from simulation.trace import Trace
from simulation.zookeeper_session import Ensemble, SimSession
from tests.server.harness import Connection, MemoryChannel

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import OperatorError
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.peer import Peers
from ottla.common.platform.runtime import NodeRuntime
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.znodes.operations import Znode
from ottla.server.broker import Broker

TIMEOUT_MS = 2_000
FOREVER_MS = 10**9


def address_of(broker_id: int) -> Address:
    """Address of a broker's listener."""
    return f"broker-{broker_id}", 9092


class World:
    """The loop, the servers, and what tools do there."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = SimLoop()
        self.rng = SimRng(seed)
        self.ensemble = Ensemble(self.loop)
        self.server = self.ensemble.server
        self.tool = self.server.connect(FOREVER_MS)
        self.network = Network(self.loop, self.rng.fork("network"), Trace(self.loop), address_of(1))

    def until(self, condition: Callable[[], object], within_s: float = 60.0) -> None:
        assert self.loop.run_until(self.loop.time() + within_s, lambda: bool(condition())), "condition not reached"

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.time() + seconds)

    def write(self, *operations: Any) -> None:
        self.server.multi(self.tool, operations)
        self.ensemble.deliver()

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
        process.on_death = lambda: world.network.refuse(process)
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
        host, port = address_of(machine.broker_id)
        peers = SimPeerNetwork(world.network, process, host)
        self.broker = Broker(
            config,
            NodeRuntime(Mount(machine.disk, process), SimClock(world.loop), rng.fork("broker"), process, process),
            MetricsRegistry(),
            peers=Peers(peers, peers),
            on_fatal=self.fatal.append,
            zookeeper=self.session if config.on_zookeeper else None,
        )
        self.start: asyncio.Task[None] = world.loop.create_task(self._start(host, port))

    async def _start(self, host: str, port: int) -> None:
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", host, port)
        try:
            await self.broker.start([endpoint])
        except ProcessKilled:
            return
        self.world.network.listen(
            (host, port), ListeningProcess(self.process, self.broker.dispatcher, endpoint.listener)
        )

    def serves(self) -> None:
        self.world.until(self.start.done)
        self.start.result()

    @property
    def is_up(self) -> bool:
        """Whether its start has succeeded, and it lives."""
        return self.process.alive and self.start.done() and self.start.exception() is None

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
        """Runs the world until a condition holds, for connections."""
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
