"""A simulated cluster and its faults; workloads define the clients and the checks.

The seed decides the number of nodes (all are brokers and controllers, the first three vote), the number of simultaneous
faults, and their frequency.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import new_uuid, uuid_from_string, uuid_to_string
from ottla.common.platform.endpoint import Endpoint
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.registry import ApiKey
from ottla.quorum.raft_types import Voter
from simulation.checkers import Violation
from simulation.client import Client, RequestLost
from simulation.cluster_admin import Administrator
from simulation.cluster_faults import ClusterNemesis
from simulation.cluster_view import ClusterView
from simulation.history import LogHistory
from simulation.log_clients import RETRIABLE, LogWorld
from simulation.loop import SimClock
from simulation.network import Network
from simulation.node import DATA_DIR, SimNode
from simulation.replicas import compare_replicas
from simulation.rng import SimRng
from simulation.simulation import RunOutcome, Simulation

REPLICATION_FACTOR = 3
ROLL_MS = "10000"
"""Segment lifetime of compacted logs, in seconds: short, so that the cleaner works during faults."""
TOPIC_CONFIGS = {"min.insync.replicas": "2", "internal.segment.bytes": "4096", "segment.ms": "604800000"}
"""Minimum segment lifetime of other logs: a roll is followed by a flush, and with many of them a power failure would
lose nothing."""
VOTERS = 3
"""Number of initial voters; a fourth node is an observer."""
SETUP_S = 120.0
PROGRESS_S = 180.0
"""Limit in seconds from the end of the faults to full service: restarts, a fencing, elections, and the longest backoff
of each."""
READ_ALL_S = 120.0
WATCH_S = 0.5
MOST_BETWEEN_S = (8.0, 20.0)
"""Delay between faults, in seconds."""
CREATE_TOPICS_VERSION = 7
BROKER_PORT = 9092
CONTROLLER_PORT = 9093


@dataclass
class ClusterRunOutcome(RunOutcome):
    """Results of a cluster run."""

    operations: int = 0
    faults: int = 0
    acknowledged: int = 0
    served: int = 0
    node_starts: int = 0
    leader_changes: int = 0

    @property
    def counts(self) -> bool:
        """Whether enough happened for the run to be significant."""
        return True

    @property
    def too_little(self) -> str:
        """Why the run is not significant."""
        return ""

    def summary(self) -> str:
        """See `RunOutcome`."""
        return (
            f"{self.operations} operations, {self.faults} faults, {self.node_starts} node starts, "
            f"{self.leader_changes} leaders, {self.acknowledged} records acknowledged, {super().summary()}"
        )


class ClusterSimulation(Simulation):
    """One cluster run."""

    def __init__(
        self,
        seed: int,
        nodes: int | None,
        cpu_time: Callable[[], float],
        *,
        beyond: bool = False,
        damage: bool = False,
    ) -> None:
        """Three or four `nodes` by the seed if None; `beyond` and `damage` as in `ClusterNemesis`."""
        super().__init__(seed, cpu_time)
        self._rng = rng = SimRng(seed)
        plan = rng.fork("plan")
        by_seed = 3 + plan.randrange(2)
        count = nodes or by_seed
        self._at_once = 1 + plan.randrange(2)
        self._most_between_s = plan.choice(MOST_BETWEEN_S)
        self._beyond = beyond
        self._hosts = hosts = [f"broker-{number}" for number in range(1, count + 1)]
        self.network = Network(self.loop, rng.fork("network"), self.trace, (hosts[0], BROKER_PORT))
        self.nodes: list[SimNode] = []
        self.view = ClusterView(self.nodes, may_lose_committed=beyond or damage)
        self.admin = Administrator(self.nodes, self.loop, self.network, rng.fork("admin"), self.trace, self.view.newest)
        self.nemesis = ClusterNemesis(
            self.nodes,
            self.network,
            rng.fork("nemesis"),
            self.trace,
            self.admin,
            most_between_s=self._most_between_s,
            all_in_sync=self.view.all_in_sync,
            beyond=beyond,
            damage=damage,
        )

    def _log_world(self, topic: str, partitions: int, history: LogHistory) -> LogWorld:
        """The shared state of the clients of one topic."""
        return LogWorld(
            loop=self.loop,
            network=self.network,
            bootstrap=[(host, BROKER_PORT) for host in self._hosts],
            topic=topic,
            partitions=partitions,
            racks=[f"rack-{number}" for number in range(1, len(self._hosts) + 1)],
            history=history,
            time_ms=SimClock(self.loop).time_ms,
            leads=self.view.leads,
        )

    def _make_nodes(self, settings: Mapping[str, str]) -> None:
        """All nodes, formatted; `settings` come from the workload."""
        hosts, rng = self._hosts, self._rng.fork("ids")
        cluster_id = uuid_to_string(new_uuid(rng.random_bytes(16)))
        directories = [uuid_to_string(new_uuid(rng.random_bytes(16))) for _ in hosts]
        voters = [
            Voter(number, uuid_from_string(directory), (("CONTROLLER", host, CONTROLLER_PORT),))
            for number, (host, directory) in enumerate(zip(hosts, directories, strict=True), 1)
        ][:VOTERS]
        for number, (host, directory) in enumerate(zip(hosts, directories, strict=True), 1):
            endpoints = [
                Endpoint("PLAINTEXT", "PLAINTEXT", host, BROKER_PORT),
                Endpoint("CONTROLLER", "PLAINTEXT", host, CONTROLLER_PORT),
            ]
            all_settings = {**_settings(number, [f"{each}:{CONTROLLER_PORT}" for each in hosts]), **settings}
            node = SimNode(self.loop, self._rng.fork(host), self.trace, self.network, endpoints, all_settings)
            node.may_lose_committed = self._beyond
            node.format(cluster_id, directory, voters if number <= VOTERS else ())
            self.nodes.append(node)

    def _fill_in(self, outcome: ClusterRunOutcome) -> None:
        """Fill in the results common to all clusters."""
        outcome.faults = self.nemesis.count
        outcome.node_starts = sum(node.starts for node in self.nodes)
        outcome.leader_changes = self.view.leader_changes

    # -- phases of a run

    def _run(self) -> None:
        for node in self.nodes:
            node.start()
        self._set_up()
        watch = self._begin(self._watch())
        self._begin_clients()
        nemeses = [self._begin(self.nemesis.run()) for _ in range(self._at_once)]
        self.loop.run_until(self.loop.time() + self._faults_s())
        for nemesis in nemeses:
            nemesis.cancel()
        self.nemesis.repair()
        self._calm()
        self._finish(self.admin.repair(), PROGRESS_S, "not every voter has its directory")
        self._recover()
        watch.cancel()
        self._compare_replicas()

    @abstractmethod
    def _faults_s(self) -> float:
        """Virtual seconds of faults."""

    @abstractmethod
    def _set_up(self) -> None:
        """Create the topics."""

    @abstractmethod
    def _begin_clients(self) -> None:
        """Start the clients."""

    @abstractmethod
    def _calm(self) -> None:
        """The last fault is over."""

    @abstractmethod
    def _recover(self) -> None:
        """Wait for full recovery, end the clients, and check the contents."""

    async def _create_topic(self, world: LogWorld, configs: Mapping[str, str] = MappingProxyType({})) -> None:
        """With `configs` in addition to those of all topics."""
        client = Client(self.loop, self.network, "admin")
        topic = CreatableTopic(
            name=world.topic,
            num_partitions=world.partitions,
            replication_factor=REPLICATION_FACTOR,
            configs=[
                CreatableTopicConfig(name=name, value=value) for name, value in {**TOPIC_CONFIGS, **configs}.items()
            ],
        )
        while True:
            await asyncio.sleep(0.5)
            try:
                response = await client.request(
                    ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, CreateTopicsRequest(topics=[topic])
                )
            except RequestLost:
                continue
            code = response.topics[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                break
            if code not in RETRIABLE and code != ErrorCode.INVALID_REPLICATION_FACTOR:
                raise Violation(f"CreateTopics returned {ErrorCode(code).name}")
        client.close()
        while (made := self.view.newest().topic(world.topic)) is None:
            await asyncio.sleep(0.5)
        world.topic_id = made.topic_id

    async def _watch(self) -> None:
        """Check every node continuously."""
        while True:
            await asyncio.sleep(WATCH_S)
            self._look()

    def _look(self) -> None:
        """Raises Violation."""
        self.view.look()

    def _wait_for_replicas(self) -> None:
        """Wait until every replica is in sync, and all nodes have the same metadata."""
        self._wait("not all replicas are in sync", PROGRESS_S, self.view.all_in_sync)
        self._wait("the nodes do not agree on the metadata", PROGRESS_S, self.view.all_agree)

    def _compare_replicas(self) -> None:
        """Check that the batches of all replicas of a partition are identical bytes."""
        brokers = {node.config.node_id: node.broker for node in self.nodes}
        for topic in self.view.newest().topics.values():
            for index, partition in topic.partitions.items():
                replicas = []
                for broker_id in partition.replicas:
                    broker = brokers[broker_id]
                    if broker is None:
                        raise Violation(f"node {broker_id} does not run at the end")
                    replicas.append((f"node {broker_id}", broker.parts.replicas))
                compare_replicas(topic.name, index, replicas)

    def _abandon(self) -> None:
        for node in self.nodes:
            node.abandon()


def _settings(node_id: int, controllers: list[str]) -> dict[str, str]:
    return {
        "node.id": str(node_id),
        "broker.rack": f"rack-{node_id}",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "min.insync.replicas": "2",
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(controllers),
        "log.dirs": DATA_DIR,
        "broker.heartbeat.interval.ms": "2000",
        "broker.session.timeout.ms": "6000",
        "replica.lag.time.max.ms": "8000",
        "replica.fetch.wait.max.ms": "2000",
        # Small enough that logs roll, and that a node after a pause gets the start of the metadata log only from a
        # snapshot.
        "metadata.log.max.record.bytes.between.snapshots": "20000",
        "metadata.log.segment.ms": "60000",
        "metadata.max.retention.bytes": "40000",
        "log.roll.ms": ROLL_MS,  # of the coordinators' logs
        "log.cleaner.backoff.ms": "3000",
        "log.cleaner.dedupe.buffer.size": "1048576",
        "log.cleaner.min.cleanable.ratio": "0.2",
    }
