"""Quorum drivers of several nodes in a simulated world: virtual time, disks that crash, a network that fails."""

from __future__ import annotations

from typing import Any

from simulation.disk import Mount, SimDisk
from simulation.loop import Process, SimClock, SimLoop
from simulation.network import ListeningProcess, Network
from simulation.peer import SimPeerNetwork
from simulation.rng import SimRng
from simulation.trace import Trace
from tests.request_header import parse_request_header

from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.common.kafka.ids import ZERO_UUID
from ottla.common.platform.channel import Channel, Part
from ottla.common.platform.endpoint import Endpoint, ListenerInfo
from ottla.common.platform.runtime import NodeRuntime
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage
from ottla.metadata.log import LeaderAndEpoch
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.protocol.codec import read_message
from ottla.protocol.header import encode_response
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.messages.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord
from ottla.protocol.registry import API, ApiKey
from ottla.quorum.config import LocalReplica, QuorumConfig
from ottla.quorum.driver import QuorumDriver
from ottla.quorum.format import format_directory
from ottla.quorum.metadata_log import MetadataLogConfig
from ottla.quorum.raft_types import Voter

PORT = 9093
DATA_DIR = "/data"
CLUSTER_ID = "2v6DyEs_QqqMYFjaPzw5Ow"
LOG_CONFIG = MetadataLogConfig(
    segment_bytes=4096, snapshot_bytes=3000, snapshot_interval_ms=0, retention_bytes=0, retention_ms=0
)


def host_of(node_id: int) -> str:
    return f"node-{node_id}"


def voter_of(node_id: int, directory: int = 0) -> Voter:
    return Voter(node_id, bytes([node_id]) * 15 + bytes([directory]), (("CONTROLLER", host_of(node_id), PORT),))


class ServiceDispatcher:
    """Hands the frames of a controller's listener to the service. Implements `Dispatcher`."""

    def __init__(self, driver: QuorumDriver) -> None:
        service = driver.service
        self._now: dict[ApiKey, Any] = {
            ApiKey.VOTE: service.vote,
            ApiKey.BEGIN_QUORUM_EPOCH: service.begin_quorum_epoch,
            ApiKey.END_QUORUM_EPOCH: service.end_quorum_epoch,
            ApiKey.DESCRIBE_QUORUM: service.describe,
            ApiKey.API_VERSIONS: lambda _: ApiVersionsResponse(),
        }
        self._later: dict[ApiKey, Any] = {
            ApiKey.FETCH: service.fetch,
            ApiKey.FETCH_SNAPSHOT: service.fetch_snapshot,
            ApiKey.ADD_RAFT_VOTER: service.add_voter,
            ApiKey.REMOVE_RAFT_VOTER: service.remove_voter,
            ApiKey.UPDATE_RAFT_VOTER: service.update_voter,
        }

    def handle(self, channel: Channel, buffer: bytearray, start: int, end: int) -> list[Part] | None:
        header = parse_request_header(buffer, start, end)
        key, version = ApiKey(header.api_key), header.api_version
        message: Any
        message, _ = read_message(API[key].request, version, buffer, header.body_start, end)

        def respond(response: object) -> None:
            channel.respond([encode_response(key, version, header.correlation_id, response)])

        try:
            if key in self._now:
                response = self._now[key](message)
                return [encode_response(key, version, header.correlation_id, response)]
            self._later[key](message, respond)
        except KafkaError as error:
            failed = API[key].response(error_code=error.code)
            return [encode_response(key, version, header.correlation_id, failed)]
        return None

    def connection_closed(self, channel: Channel) -> None:
        """Nothing is kept for it."""


class Node:
    """One node: its disk, and the driver of its present life."""

    def __init__(self, world: World, node_id: int, voter: Voter, voters: tuple[Voter, ...]) -> None:
        self.world = world
        self.node_id = node_id
        self.voter = voter
        self.host = host_of(node_id)
        self.clock = SimClock(world.loop)
        self.rng = world.rng.fork(f"{node_id} {voter.directory_id.hex()}")
        self.disk = SimDisk(self.clock, self.rng.fork("disk"))
        self.process: Process | None = None
        self.mount: Mount | None = None
        self.driver: QuorumDriver | None = None
        self.publisher = MetadataPublisher()
        self.image = self.publisher.image
        self.changes: list[tuple[LeaderAndEpoch, bool]] = []
        self.was_full = False
        self.lives = 0
        self.format(voters)

    def format(self, voters: tuple[Voter, ...]) -> None:
        process = Process(self.world.loop, self.rng.fork("format"))
        format_directory(
            Mount(self.disk, process),
            self.clock,
            self.rng,
            DATA_DIR,
            node_id=self.node_id,
            cluster_id=CLUSTER_ID,
            voters=voters,
        )

    def start(self) -> None:
        if self.process is not None:
            return
        self.lives += 1
        process = self.process = Process(self.world.loop, self.rng.fork(f"life {self.lives}"))
        process.on_death = self._died
        process.run(self._start, process)

    def space_again(self) -> None:
        self.disk.full = False

    def _failed(self, error: BaseException) -> None:
        """Its metadata log failed: such a process ends and is started again."""
        assert self.was_full, f"the log failed on a disk that works: {error}"
        self.world.loop.call_soon(self.kill)

    def _start(self, process: Process) -> None:
        self.mount = Mount(self.disk, process)
        self.publisher = MetadataPublisher()
        self.publisher.register(self._published)
        self.image = self.publisher.image
        driver = QuorumDriver(
            runtime=NodeRuntime(self.mount, self.clock, self.rng, process, process),
            local=LocalReplica(self.node_id, self.voter.directory_id, DATA_DIR, LOG_CONFIG),
            publisher=self.publisher,
            on_failure=self._failed,
            peers=SimPeerNetwork(self.world.network, process, self.host),
            quorum=QuorumConfig(
                cluster_id=CLUSTER_ID,
                bootstrap=tuple((host_of(each), PORT) for each in self.world.nodes),
                voters=self.world.configured,
                auto_join=self.world.auto_join,
            ),
        )
        try:
            driver.start([Endpoint("CONTROLLER", "PLAINTEXT", self.host, PORT)])
        except OperatorError:
            assert self.was_full
            process.kill()
            return
        self.driver = driver
        driver.listen(self)
        self.world.network.listen(
            (self.host, PORT),
            ListeningProcess(process, ServiceDispatcher(driver), ListenerInfo("CONTROLLER", "PLAINTEXT")),
        )

    def _published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        self.world.published(self, image, changes)

    def on_leader_change(self, leader: LeaderAndEpoch, active: bool) -> None:
        self.changes.append((leader, active))
        if active:
            self.world.became_active(self, leader.epoch)

    def kill(self, *, power: bool = False) -> None:
        process = self.process
        if process is not None:
            self.world.power_fails = power
            process.kill()

    def _died(self) -> None:
        process, self.process, self.driver, self.mount = self.process, None, None, None
        if process is not None:
            self.world.network.refuse(process)
        if self.world.power_fails:
            self.disk.power_failed()
        else:
            self.disk.process_died()
        self.world.power_fails = False


class World:
    """The nodes, the submitter of records, and the invariants."""

    def __init__(
        self, seed: int, voters: int = 3, observers: int = 0, *, configured: bool = False, auto_join: bool = False
    ) -> None:
        """`configured`: the configuration of each node names the voters, and no directory does.

        `auto_join`: a node without a vote adds itself.
        """
        self.auto_join = auto_join
        self.loop = SimLoop()
        self.rng = SimRng(seed)
        self.trace = Trace(self.loop)
        self.network = Network(self.loop, self.rng.fork("network"), self.trace, (host_of(1), PORT))
        self.power_fails = False
        first = tuple(voter_of(index + 1) for index in range(voters))
        self.configured = tuple(voter._replace(directory_id=ZERO_UUID) for voter in first) if configured else ()
        self.nodes: dict[int, Node] = {}
        for index in range(voters + observers):
            node_id = index + 1
            self.nodes[node_id] = Node(
                self, node_id, voter_of(node_id), first if index < voters and not configured else ()
            )
        self.active_in: dict[int, int] = {}
        self.content: dict[int, tuple[str, ...]] = {}
        self.acknowledged: list[str] = []
        self.removed: set[str] = set()
        self.submitted = 0
        for node in self.nodes.values():
            node.start()

    # -- invariants ---------------------------------------------------------------------------------------------------

    def published(self, node: Node, image: MetadataImage, changes: MetadataChanges) -> None:
        """All nodes see the same image at the same offset, and the changes lead from the last image to it."""
        names = tuple(sorted(image.topics))
        assert self.content.setdefault(image.offset, names) == names, f"another image at {image.offset}"
        before = set(node.image.topics)
        made = {topic.name for topic in changes.created_topics}
        gone = {topic.name for topic in changes.deleted_topics}
        assert (before - gone) | made == set(names)
        node.image = image

    def became_active(self, node: Node, epoch: int) -> None:
        assert self.active_in.setdefault(epoch, node.node_id) == node.node_id, f"two active in epoch {epoch}"
        assert node.driver is not None
        missing = set(self.acknowledged) - set(node.driver.latest.topics)
        assert not missing, f"the controller of epoch {epoch} lacks {sorted(missing)[:3]}"

    # -- what happens

    def active(self) -> Node | None:
        """The active controller of the newest epoch."""
        active = [node for node in self.nodes.values() if node.driver is not None and node.driver.active]
        return max(active, key=lambda node: node.driver.raft.state.epoch if node.driver else 0, default=None)

    def submit(self) -> None:
        """Create a topic on the active controller; sometimes delete one."""
        node = self.active()
        if node is None or node.process is None or node.driver is None:
            return
        driver = node.driver
        self.submitted += 1
        name = f"t{self.submitted:06}"
        if self.submitted % 2 == 0 and len(driver.latest.topics) > 20:
            oldest = next(iter(driver.latest.topics.values()))
            self.removed.add(oldest.name)
            if oldest.name in self.acknowledged:
                self.acknowledged.remove(oldest.name)
            records = [versioned(RemoveTopicRecord(topic_id=oldest.topic_id))]
            node.process.run(driver.submit, records, lambda error: None)
            return

        def done(error: BaseException | None) -> None:
            if error is None:
                if name not in self.removed:
                    self.acknowledged.append(name)
            else:
                assert isinstance(error, KafkaError)
                assert error.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR)

        node.process.run(driver.submit, topic_records(name), done)

    def run(self, seconds: float, *, faults: bool = False, submits: bool = True) -> None:
        """Let the time pass, with faults and records at random."""
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            self.loop.run_until(self.loop.time() + self.rng.uniform(0.0, 0.1))
            if submits and self.rng.chance(0.5):
                self.submit()
            if faults:
                self.fault()

    def fault(self) -> None:
        rng = self.rng
        node = rng.choice(list(self.nodes.values()))
        dice = rng.randrange(1000)
        if node.process is None:
            if dice < 100:
                node.start()
        elif dice < 4:
            node.kill(power=rng.chance(0.7))
        elif dice < 6 and node.mount is not None:
            self.power_fails = rng.chance(0.7)
            node.mount.die_in(rng.randrange(20))
        elif dice < 10:
            other = rng.choice(list(self.nodes.values()))
            self.network.block(node.host, other.host)
        elif dice < 25:
            self.network.unblock_all()
        elif dice < 33:
            node.disk.full = node.was_full = True
            self.loop.call_later(rng.uniform(0.2, 4.0), node.space_again)
        elif dice < 38:
            for link in self.network.links():
                if rng.chance(0.3):
                    link.cut()

    def calm(self, seconds: float = 60.0) -> None:
        """Without faults all nodes agree soon; raises AssertionError otherwise."""
        self.network.unblock_all()
        for node in self.nodes.values():
            node.disk.full = False
            node.start()
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            self.loop.run_until(self.loop.time() + 0.2)
            if self.agreed():
                break
            for node in self.nodes.values():
                node.start()  # a node that was set to die in a disk change died just now
        assert self.agreed(), "no agreement without faults"
        self.compare_logs()

    def agreed(self) -> bool:
        node = self.active()
        if node is None or node.driver is None:
            return False
        image, end = node.publisher.image, node.driver.next_offset
        return node.driver.raft.state.high_watermark == end and all(
            other.driver is not None
            and other.driver.raft.state.high_watermark == end
            and other.driver.leader == node.driver.leader
            and dict(other.publisher.image.topics) == dict(image.topics)
            for other in self.nodes.values()
        )

    def compare_logs(self) -> None:
        """Check that overlapping parts of two logs have the same bytes."""
        drivers = [node.driver for node in self.nodes.values() if node.driver is not None]
        start = max(driver.log.start_offset for driver in drivers)
        contents = set()
        for driver in drivers:
            batches = [batch.to_bytes() for batch in driver.log.batches(start)] if start < driver.next_offset else []
            contents.add(b"".join(batches))
        assert len(contents) == 1


def topic_records(name: str) -> list[ApiMessageAndVersion]:
    topic_id = name.encode().ljust(16, b"-")
    partition = PartitionRecord(
        partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0
    )
    return [versioned(TopicRecord(name=name, topic_id=topic_id)), versioned(partition)]
