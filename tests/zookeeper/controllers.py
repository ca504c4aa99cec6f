"""The controllers of a quorum to which a cluster migrates from a simulated ZooKeeper, and the registrar of brokers
there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from simulation.disk import Mount, SimDisk
from simulation.loop import Process, ProcessKilled, SimClock
from simulation.network import ListeningProcess
from simulation.peer import SimPeerNetwork
from simulation.zookeeper_session import SimSession

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.peer import Peers
from ottla.common.platform.runtime import NodeRuntime
from ottla.controller.driver import Controller
from ottla.controller.registration import handle_broker_heartbeat, handle_broker_registration
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import SUPPORTED_FEATURES
from ottla.metrics.exposition import render
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    RegistrationFeature,
    RegistrationListener,
)
from ottla.quorum.format import format_directory
from ottla.server.broker import Broker

from .brokers import TIMEOUT_MS, World

IDS = (101, 102, 103)
PORT = 9093
HEARTBEAT_S = 0.5


def _host(node_id: int) -> str:
    return f"controller-{node_id}"


class ControllerMachine:
    """The formatted disk of a controller; its lives come and go."""

    def __init__(self, world: World, node_id: int, cluster_id: str) -> None:
        self.world = world
        self.node_id = node_id
        rng = world.rng.fork(f"controller {node_id}")
        self.disk = SimDisk(SimClock(world.loop), rng.fork("disk"))
        self._rng = rng
        self.lives = 0
        process = Process(world.loop, rng.fork("format"))
        format_directory(
            Mount(self.disk, process), SimClock(world.loop), rng, "/data", node_id=node_id, cluster_id=cluster_id
        )

    def begin(self, *, migrates: bool = True, **settings: str) -> ControllerLife:
        self.lives += 1
        return ControllerLife(self, self._rng.fork(f"life {self.lives}"), migrates=migrates, settings=settings)


class ControllerLife:
    """One process of a controller."""

    def __init__(self, machine: ControllerMachine, rng: Any, *, migrates: bool, settings: dict[str, str]) -> None:
        world = self.world = machine.world
        self._machine = machine
        process = self.process = Process(world.loop, rng.fork("pool"))
        process.on_death = lambda: world.network.refuse(process)
        self.session = SimSession(world.ensemble, process, rng.fork("session"), TIMEOUT_MS)
        host = _host(machine.node_id)
        own = {
            "node.id": str(machine.node_id),
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{host}:{PORT}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{each}@{_host(each)}:{PORT}" for each in IDS),
            "log.dirs": "/data",
            "broker.session.timeout.ms": "4000",
            **({"zookeeper.connect": "z:2181", "zookeeper.metadata.migration.enable": "true"} if migrates else {}),
            **settings,
        }
        config, self.warnings = BrokerConfig.parse(own)
        peers = SimPeerNetwork(world.network, process, host)
        self.registry = MetricsRegistry()
        self.fatal: list[BaseException] = []
        self.broker = Broker(
            config,
            NodeRuntime(Mount(machine.disk, process), SimClock(world.loop), rng.fork("broker"), process, process),
            self.registry,
            peers=Peers(peers, peers),
            on_fatal=self.fatal.append,
            zookeeper=self.session if migrates else None,
        )
        self.opened = False
        self._endpoint = Endpoint("CONTROLLER", "PLAINTEXT", host, PORT)
        self.start: asyncio.Task[None] = world.loop.create_task(self._start())

    async def _start(self) -> None:
        try:
            self.broker.open([self._endpoint])
            self.opened = True
            listening = ListeningProcess(self.process, self.broker.controller_dispatcher, self._endpoint.listener)
            self.world.network.listen((self._endpoint.host, PORT), listening)
            await self.broker.start()
        except ProcessKilled:
            return

    @property
    def controller(self) -> Controller:
        return self.broker.parts.control.controller

    def behind(self) -> int:
        """The lag of the tree by its metrics."""
        name = "kafka_controller_kafkacontroller_zkwritebehindlag "
        lines = b"".join(render(self.registry)).decode().splitlines()
        return next(int(float(line.removeprefix(name))) for line in lines if line.startswith(name))

    def kill(self) -> None:
        self.process.kill()
        self._machine.disk.process_died()
        if not self.start.done():
            self.world.loop.call_soon(self.start.cancel)


class Quorum:
    """Three controllers."""

    def __init__(self, world: World, cluster_id: str) -> None:
        self.world = world
        self.machines = {each: ControllerMachine(world, each, cluster_id) for each in IDS}
        self.lives: dict[int, ControllerLife] = {}

    def start(self, *, migrates: bool = True) -> None:
        for each in IDS:
            if each not in self.lives:
                self.begin(each, migrates=migrates)

    def begin(self, node_id: int, *, migrates: bool = True) -> None:
        life = self.lives[node_id] = self.machines[node_id].begin(migrates=migrates)
        self.world.until(lambda: life.opened)  # a task that never ran would be complained of

    def kill(self, node_id: int) -> None:
        self.lives.pop(node_id).kill()

    @property
    def active(self) -> ControllerLife | None:
        """The one that decides, and that has published all that it found."""
        found = [life for life in self.lives.values() if life.process.alive and life.opened and life.controller.active]
        return max(found, key=lambda life: life.controller.image.epoch, default=None)

    @property
    def image(self) -> MetadataImage:
        """The newest known committed image."""
        return max((life.broker.image for life in self.lives.values()), key=lambda image: image.offset)

    def decide(self, operation: Callable[..., Any]) -> None:
        """Have an active controller decide, again and again until it is committed."""
        asked: list[ControllerLife] = []
        answers: list[BaseException | None] = []

        def committed() -> bool:
            active = self.active
            if active is not None and (active not in asked or (answers and answers[-1] is not None)):
                asked.append(active)
                answers.clear()
                active.controller.submit(operation, lambda _response, error: answers.append(error))
            return bool(answers) and answers[-1] is None

        self.world.until(committed)


class Registrar:
    """Registers brokers with the quorum and keeps them alive there, as a migrating broker does itself."""

    def __init__(self, quorum: Quorum, broker_ids: tuple[int, ...]) -> None:
        self._quorum = quorum
        self.broker_ids = set(broker_ids)
        self.migrating = True
        self._task = quorum.world.loop.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            active = self._quorum.active
            if active is not None:
                for broker_id in sorted(self.broker_ids):
                    self._speak(active.controller, broker_id)

    def _speak(self, controller: Controller, broker_id: int) -> None:
        broker = controller.image.brokers.get(broker_id)
        request: Any
        if broker is None or broker.is_migrating_zk_broker != self.migrating:
            request = BrokerRegistrationRequest(
                broker_id=broker_id,
                cluster_id=controller.context().cluster_id,
                incarnation_id=bytes([broker_id, self.migrating]) * 8,
                is_migrating_zk_broker=self.migrating,
                listeners=[RegistrationListener(name="PLAINTEXT", host=f"broker-{broker_id}", port=9092)],
                features=[
                    RegistrationFeature(name=name, min_supported_version=each.low, max_supported_version=each.high)
                    for name, each in SUPPORTED_FEATURES.items()
                ],
                log_dirs=[bytes([broker_id]) * 16],
                previous_broker_epoch=-1 if broker is None else broker.broker_epoch,
            )
            controller.submit(lambda image, context: handle_broker_registration(image, request, context), _ignored)
            return
        request = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=broker.broker_epoch, current_metadata_offset=controller.image.offset
        )
        controller.submit(lambda image, context: handle_broker_heartbeat(image, request, context), _ignored)

    def stop(self) -> None:
        self._task.cancel()


def _ignored(_response: object, _error: BaseException | None) -> None:
    """The next attempt repeats it."""
