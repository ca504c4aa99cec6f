"""A cluster for the contract of `MetadataLog` on a simulated quorum."""

from __future__ import annotations

from itertools import count
from typing import Any

from simulation.disk import Mount, SimDisk
from simulation.loop import Process, SimClock, SimLoop
from simulation.network import ListeningProcess, Network
from simulation.peer import SimPeerNetwork
from simulation.rng import SimRng
from simulation.trace import Trace
from tests.quorum.driver_world import (
    CLUSTER_ID,
    DATA_DIR,
    LOG_CONFIG,
    PORT,
    ServiceDispatcher,
    host_of,
    voter_of,
)

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.feature_levels import ELIGIBLE_LEADER_REPLICAS_VERSION, NEW_CLUSTER_LEVELS
from ottla.common.platform.endpoint import Endpoint, ListenerInfo
from ottla.common.platform.runtime import NodeRuntime
from ottla.controller.driver import Controller
from ottla.controller.features import bootstrap_records
from ottla.controller.requests import operation_of
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import SUPPORTED_FEATURES
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    RegistrationFeature,
    RegistrationListener,
)
from ottla.quorum.config import LocalReplica, QuorumConfig
from ottla.quorum.driver import QuorumDriver
from ottla.quorum.format import format_directory

from .log_world import BROKERS, NODES, PROPERTIES, LogWorld, Member

HEARTBEAT_S = 0.4


class QuorumLogWorld(LogWorld):
    """Voters with disks; brokers send heartbeats to the active controller."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        self.loop = SimLoop()
        self.rng = SimRng(seed)
        self.network = Network(self.loop, self.rng.fork("network"), Trace(self.loop), (host_of(1), PORT))
        self._disks = {node_id: self._format(node_id) for node_id in NODES}
        self._incarnations: dict[int, bytes] = {}
        self._numbers = count(1)
        self._blocked: list[tuple[int, float]] = []
        self.start(*NODES)
        self.join(*BROKERS)
        self._speak()

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _format(self, node_id: int) -> SimDisk:
        clock, rng = SimClock(self.loop), self.rng.fork(f"node {node_id}")
        disk = SimDisk(clock, rng.fork("disk"))
        levels = {name: level for name, level in NEW_CLUSTER_LEVELS.items() if name != ELIGIBLE_LEADER_REPLICAS_VERSION}
        format_directory(
            Mount(disk, Process(self.loop, rng.fork("format"))),
            clock,
            rng,
            DATA_DIR,
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            voters=tuple(voter_of(each) for each in NODES),
            records=bootstrap_records(levels),
        )
        return disk

    def begin(self, node_id: int) -> Member:
        host, clock = host_of(node_id), SimClock(self.loop)
        rng = self.rng.fork(f"node {node_id} life {len(self.lives)}")
        process = Process(self.loop, rng.fork("process"))
        publisher = MetadataPublisher()
        failures: list[BaseException] = []
        log = QuorumDriver(
            runtime=NodeRuntime(Mount(self._disks[node_id], process), clock, rng, process, process),
            local=LocalReplica(node_id, voter_of(node_id).directory_id, DATA_DIR, LOG_CONFIG),
            publisher=publisher,
            on_failure=failures.append,
            peers=SimPeerNetwork(self.network, process, host),
            quorum=QuorumConfig(cluster_id=CLUSTER_ID, bootstrap=tuple((host_of(each), PORT) for each in NODES)),
        )
        config, _ = BrokerConfig.parse({"node.id": str(node_id), **PROPERTIES})
        controller = Controller(
            metadata_log=log,
            config=config,
            cluster_id=CLUSTER_ID,
            log_dirs=lambda: (),
            cordoned=lambda: (),
            clock=clock,
            rng=rng,
            scheduler=process,
            registry=MetricsRegistry(),
        )
        log.start([Endpoint("CONTROLLER", "PLAINTEXT", host, PORT)])
        member = Member(self, node_id, process, publisher, log, controller, failures)
        log.listen(controller)
        listening = ListeningProcess(process, ServiceDispatcher(log), ListenerInfo("CONTROLLER", "PLAINTEXT"))
        self.network.listen((host, PORT), listening)
        return member

    def kill(self, node_id: int) -> None:
        process = self.members[node_id].process
        process.kill()
        self.network.refuse(process)
        self._disks[node_id].process_died()

    def isolate(self, node_id: int, seconds: float) -> None:
        entry = (node_id, self.loop.time() + seconds)
        self._blocked.append(entry)
        self._block()
        self.loop.call_later(seconds, self._unblock, entry)

    def _block(self) -> None:
        for node_id, _ in self._blocked:
            for other in NODES:
                self.network.block(host_of(node_id), host_of(other))
                self.network.block(host_of(other), host_of(node_id))

    def _unblock(self, entry: tuple[int, float]) -> None:
        self._blocked.remove(entry)
        self.network.unblock_all()
        self._block()

    def forces_snapshot(self) -> bool:
        active = self.active
        assert active is not None
        assert isinstance(active.log, QuorumDriver)
        stopped = [each.log for each in self.members.values() if not each.process.alive]
        ends = [log.log_end.end_offset for log in stopped if isinstance(log, QuorumDriver)]
        return bool(ends) and max(ends) < active.log.log.start_offset

    # -- brokers ---------------------------------------------------------------------------------------------------

    def join(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self._incarnations[broker_id] = next(self._numbers).to_bytes(16, "big")
        self.brokers.update(broker_ids)

    def leave(self, *broker_ids: int) -> None:
        self.brokers.difference_update(broker_ids)

    def _speak(self) -> None:
        """All brokers that live send what their processes would."""
        self.loop.call_later(HEARTBEAT_S, self._speak)
        active = self.active
        if active is None:
            return
        for broker_id in sorted(self.brokers):
            broker = active.log.latest.brokers.get(broker_id)
            if broker is None or broker.incarnation_id != self._incarnations[broker_id]:
                active.ask(operation_of(self._registration(broker_id)))
                continue
            heartbeat = BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=broker.broker_epoch,
                current_metadata_offset=active.image.offset,
            )
            active.ask(operation_of(heartbeat))

    def _registration(self, broker_id: int) -> BrokerRegistrationRequest:
        features: list[Any] = [
            RegistrationFeature(name=name, min_supported_version=each.low, max_supported_version=each.high)
            for name, each in SUPPORTED_FEATURES.items()
        ]
        return BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=self._incarnations[broker_id],
            listeners=[RegistrationListener(name="PLAINTEXT", host=f"h{broker_id}", port=9092)],
            features=features,
            log_dirs=[bytes([broker_id]) * 16],
            previous_broker_epoch=-1,
        )
