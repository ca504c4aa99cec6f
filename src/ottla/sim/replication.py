"""The workload of a replicated cluster: real nodes, clients, faults; then calm, where all must come right.

A run is a function of its seed. Three or four nodes are brokers and controllers, the first three vote; the topic has
three replicas a partition and `min.insync.replicas` 2; producers want acks=all, a consumer reads for itself, and the
members of a consumer group read and commit. While things go wrong the history of the clients is checked
(`sim.history`), what the group was promised (`sim.checkers`), and that no epoch of a partition or of the quorum has two
leaders.
After the last fault every producer must get every partition acknowledged again within a bounded time, the group must
read and commit all that was acknowledged, and all replicas must be in sync; then the contents are compared with the
history, and the replicas with one another, byte for byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.common.endpoint import Endpoint
from ottla.common.errors import ErrorCode
from ottla.common.ids import new_uuid, uuid_from_string, uuid_to_string
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.registry import ApiKey
from ottla.quorum.raft_types import Voter
from ottla.sim.checkers import Violation
from ottla.sim.client import Client, RequestLost
from ottla.sim.cluster_admin import Administrator
from ottla.sim.cluster_faults import ClusterNemesis
from ottla.sim.cluster_group import ClusterGroup
from ottla.sim.cluster_view import ClusterView
from ottla.sim.history import LogHistory, Losses
from ottla.sim.log_clients import RETRIABLE, LogWorld, Producer
from ottla.sim.log_consumers import Consumer, Reader
from ottla.sim.loop import SimClock
from ottla.sim.network import Network
from ottla.sim.node import DATA_DIR, SimNode
from ottla.sim.replicas import compare_replicas
from ottla.sim.rng import SimRng
from ottla.sim.simulation import RunOutcome, Simulation

TOPIC = "events"
REPLICATION_FACTOR = 3
TOPIC_CONFIGS = {"min.insync.replicas": "2", "internal.segment.bytes": "4096"}
VOTERS = 3
"""At first; a fourth node is an observer."""
SETUP_S = 120.0
PROGRESS_S = 180.0
"""From the end of the faults to full service: restarts, a fencing, elections, and the longest back-off of each."""
READ_ALL_S = 120.0
WATCH_S = 0.5
MOST_BETWEEN_S = (8.0, 20.0)
"""From one fault to the next."""
CREATE_TOPICS_VERSION = 7
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
MIN_OPERATIONS = 2_000
MIN_FAULTS = 20
"""A seed counts as tried only above these."""


@dataclass(frozen=True)
class ClusterOptions:
    """What a run does not take from its seed."""

    nodes: int | None = None
    """Three or four by the seed when None."""
    partitions: int = 20
    producers: int = 2
    consumers: int = 1
    members: int = 2
    """Of the group; none where more is lost than is promised, since committed offsets would be lost as well."""
    protocol: str | None = None
    """Of the group, one of PROTOCOLS; by the seed when None."""
    faults_s: float = 600.0
    """Virtual seconds in which things go wrong."""
    beyond: bool = False
    """Take unsynced data from more replicas than the promises cover; then losses are counted, not refused."""


@dataclass
class ClusterOutcome(RunOutcome):
    """What came of a run."""

    operations: int = 0
    faults: int = 0
    acknowledged: int = 0
    served: int = 0
    node_starts: int = 0
    leader_changes: int = 0
    losses: Losses = field(default_factory=lambda: Losses(0, 0))
    conflicts: int = 0

    @property
    def counts(self) -> bool:
        """Whether enough happened for the run to say something."""
        return self.operations >= MIN_OPERATIONS and self.faults >= MIN_FAULTS


class ReplicationSimulation(Simulation):
    """One run."""

    def __init__(
        self, seed: int, options: ClusterOptions | None = None, cpu_time: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`cpu_time` in seconds, only to report it."""
        super().__init__(seed, cpu_time)
        self.options = options = options or ClusterOptions()
        self._rng = rng = SimRng(seed)
        plan = rng.fork("plan")
        by_seed = 3 + plan.randrange(2)
        count = options.nodes or by_seed
        self._at_once = 1 + plan.randrange(2)
        most_between_s = plan.choice(MOST_BETWEEN_S)
        hosts = [f"broker-{number}" for number in range(1, count + 1)]
        self.network = Network(self.loop, rng.fork("network"), self.trace, (hosts[0], BROKER_PORT))
        self.history = LogHistory(self.trace, allow_loss=options.beyond)
        self.nodes: list[SimNode] = []
        self.view = ClusterView(self.nodes)
        self.world = LogWorld(
            loop=self.loop,
            network=self.network,
            bootstrap=[(host, BROKER_PORT) for host in hosts],
            topic=TOPIC,
            partitions=options.partitions,
            racks=[f"rack-{number}" for number in range(1, count + 1)],
            history=self.history,
            time_ms=SimClock(self.loop).time_ms,
            leads=self.view.leads,
        )
        members = 0 if options.beyond else options.members
        self.group = ClusterGroup(self.world, self.view, rng.fork("group"), self.trace, options.protocol, members)
        self._make_nodes(hosts)
        self.admin = Administrator(self.nodes, self.loop, self.network, rng.fork("admin"), self.trace, self.view.newest)
        self.nemesis = ClusterNemesis(
            self.nodes,
            self.network,
            rng.fork("nemesis"),
            self.trace,
            self.admin,
            most_between_s=most_between_s,
            all_in_sync=self.view.all_in_sync,
            beyond=options.beyond,
        )
        self.description = (
            f"{count} nodes, {options.partitions} partitions, {self.group.description}, "
            f"{self._at_once} faults at once within {most_between_s:.0f} s"
        )
        self._losses = Losses(0, 0)

    def _make_nodes(self, hosts: list[str]) -> None:
        rng = self._rng.fork("ids")
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
            settings = _settings(number, [f"{each}:{CONTROLLER_PORT}" for each in hosts]) | self.group.settings()
            node = SimNode(self.loop, self._rng.fork(host), self.trace, self.network, endpoints, settings)
            node.format(cluster_id, directory, voters if number <= VOTERS else ())
            self.nodes.append(node)

    def run(self) -> ClusterOutcome:
        """To the end, or to the first violation."""
        outcome = ClusterOutcome(self.seed, self.description)
        self._run_into(outcome)
        outcome.operations = self.world.operations
        outcome.faults = self.nemesis.count
        outcome.acknowledged = self.history.acknowledged_count
        outcome.served = self.history.served_count
        outcome.node_starts = sum(node.starts for node in self.nodes)
        outcome.leader_changes = self.view.leader_changes
        outcome.commits = self.group.commits
        outcome.rebalances = self.group.rebalances
        outcome.losses = self._losses
        outcome.conflicts = self.history.forgiven.total()
        return outcome

    # -- the course of a run

    def _run(self) -> None:
        for node in self.nodes:
            node.start()
        self._finish(self._create_topic(), SETUP_S, "the cluster is not ready")
        clients: list[Producer | Consumer] = [
            Producer(self.world, f"p{number}", self._rng.fork(f"producer {number}"))
            for number in range(self.options.producers)
        ]
        clients += [
            Consumer(self.world, f"c{number}", self._rng.fork(f"consumer {number}"))
            for number in range(self.options.consumers)
        ]
        tasks = [self._begin(client.run()) for client in clients]
        self.group.start(self._follow)
        watch = self._begin(self._watch())
        nemeses = [self._begin(self.nemesis.run()) for _ in range(self._at_once)]
        self.loop.run_until(self.loop.time() + self.options.faults_s)
        for nemesis in nemeses:
            nemesis.cancel()
        self.nemesis.mend()
        self.group.calm()
        self._finish(self.admin.repair(), PROGRESS_S, "not every voter has its directory")
        self._wait_for_progress()
        self.world.stopping = True
        self._wait("a client is still waiting", PROGRESS_S, lambda: all(task.done() for task in tasks))
        self._wait("not all replicas are in sync", PROGRESS_S, self.view.all_in_sync)
        self._wait("the nodes do not agree on the metadata", PROGRESS_S, self.view.all_agree)
        if self.options.members and not self.options.beyond:
            self._wait_for_group()
        reader = Reader(self.world, self._rng.fork("reader"))
        self._finish(reader.run(), READ_ALL_S, "the topic can't be read to its end")
        self._losses = self.history.finish(reader.contents)
        watch.cancel()
        self._compare_replicas()

    async def _create_topic(self) -> None:
        client = Client(self.loop, self.network, "admin")
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=self.options.partitions,
            replication_factor=REPLICATION_FACTOR,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in TOPIC_CONFIGS.items()],
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
                raise Violation(f"CreateTopics was answered {ErrorCode(code).name}")
        client.close()
        while (made := self.view.newest().topic(TOPIC)) is None:
            await asyncio.sleep(0.5)
        self.world.topic_id = made.topic_id

    async def _watch(self) -> None:
        """Look at every node all the time."""
        while True:
            await asyncio.sleep(WATCH_S)
            self.view.look()

    def _wait_for_progress(self) -> None:
        """Every producer is acknowledged somewhere again, and together they are everywhere."""
        calm_s = self.loop.time()
        progress = self.world.progress
        progress.clear()
        wanted = set(range(self.options.partitions))

        def progressed() -> bool:
            return len(progress) == self.options.producers and set().union(*progress.values()) == wanted

        if not self.loop.run_until(calm_s + PROGRESS_S, progressed):
            reached = set().union(*progress.values()) if progress else set()
            raise Violation(
                f"{PROGRESS_S:.0f} s after the last fault nothing was acknowledged in partitions "
                f"{sorted(wanted - reached)}; producers that go on: {sorted(progress)}"
            )
        self.trace.note("observer", f"all is well {self.loop.time() - calm_s:.1f} s after the last fault")

    def _wait_for_group(self) -> None:
        """The members read and commit everything."""
        ends = self.history.acknowledged_ends()
        if not self.loop.run_until(self.loop.time() + PROGRESS_S, lambda: not self.group.lacks(ends)):
            raise Violation(f"{PROGRESS_S:.0f} s after the last record the group lacks {self.group.lacks(ends)}")

    def _compare_replicas(self) -> None:
        """The batches of all replicas of a partition are the same bytes."""
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
        # Small enough that logs roll, and that who was away finds the beginning of the metadata log only in a snapshot.
        "metadata.log.max.record.bytes.between.snapshots": "20000",
        "metadata.log.segment.ms": "60000",
        "metadata.max.retention.bytes": "40000",
    }
