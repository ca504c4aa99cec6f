"""In-memory cluster of replicas: real logs and handlers, a simple network and controller, virtual time.

A broker here has its log manager on a disk in memory, its replica manager, a dispatcher with Produce, Fetch and
ListOffsets. The controller is scripted by the test, and commits ISR changes that are based on its newest state.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ErrorCode, InvariantError, ProtocolError
from ottla.common.kafka.acl import ANONYMOUS
from ottla.common.kafka.ids import LOST_UUID, ZERO_UUID
from ottla.common.platform.channel import Part
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.common.platform.endpoint import Endpoint, ListenerInfo
from ottla.metadata.delta import MetadataChanges, all_changes
from ottla.metadata.image import BrokerImage, ConfigResource, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.log import NO_NODE, LeaderAndEpoch
from ottla.metadata.publisher import MetadataPublisher
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.header import decode_response, encode_request, request_frame, response_body
from ottla.protocol.messages.alter_partition import (
    AlterPartitionPartitionResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResult,
)
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import API
from ottla.record.builder import RecordData, build_batch
from ottla.replica.directory_assignments import DirectoryAssignments
from ottla.replica.fetch_session import FetchSessionCache
from ottla.replica.manager import ReplicaManager, ReplicationSettings
from ottla.replica.membership import Membership, alone
from ottla.replica.partition import Partition
from ottla.replica.purgatory import Purgatory
from ottla.replica.statistics import ReplicationStatistics
from ottla.server.handlers.data.apis import DATA_APIS
from ottla.server.handlers.data.context import DataContext
from ottla.server.handlers.data.produce_transactions import TransactionGate
from ottla.server.metadata.metadata_cache import MetadataCache
from ottla.server.requests.api import Listeners, served_on
from ottla.server.requests.dispatch import DispatcherContext, RequestDispatcher
from ottla.server.requests.failures import Failures
from ottla.server.requests.in_flight import InFlight
from ottla.server.requests.off_loop_work import OffLoopWork
from ottla.server.requests.pool_share import PoolShare
from ottla.server.requests.request_limits import RequestLimits
from ottla.server.requests.statistics import BrokerStatistics
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.log_config import LogConfig

TOPIC, TOPIC_ID = "events", bytes(range(1, 17))
LISTENER = "PLAINTEXT"
KEYS = {spec.request: spec.key for spec in API.values()}
NEWEST = {spec.request: spec.max_version for spec in API.values()}


class Timer:
    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.callback: Callable[..., Any] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None


class VirtualLoop:
    """Scheduler and clock: time advances only from one event to the next."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Timer]] = []

    def monotonic(self) -> float:
        return self.now_s

    def time_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now_s * 1000)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Timer:
        timer = Timer(callback, args)
        heapq.heappush(self._events, (self.now_s + delay, next(self._numbers), timer))
        return timer

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Timer:
        return self.call_later(0.0, callback, *args)

    def run_for(self, seconds: float) -> None:
        until = self.now_s + seconds
        while self._events and self._events[0][0] <= until:
            self._step()
        self.now_s = until

    def run_until(self, condition: Callable[[], bool], limit_s: float = 60.0) -> None:
        until = self.now_s + limit_s
        while not condition():
            assert self._events, "nothing happens any more"
            assert self._events[0][0] <= until, "it did not happen in time"
            self._step()

    def _step(self) -> None:
        at, _, timer = heapq.heappop(self._events)
        self.now_s = max(self.now_s, at)
        if timer.callback is not None:
            timer.callback(*timer.args)


class SoonPool:
    """Pool that runs blocking work in a later tick."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._loop.call_later(0.001, self._run, work, done)

    @staticmethod
    def _run(work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        try:
            result = work()
        except Exception as error:
            done(None, error)
        else:
            done(result, None)


class Channel:
    """A connection for the dispatcher."""

    _ids = itertools.count(1)

    def __init__(self) -> None:
        self.id = next(self._ids)
        self.client_host = "127.0.0.1"
        self.listener = ListenerInfo(LISTENER, LISTENER)
        self.principal = ANONYMOUS
        self.closed = False
        self.answered: Callable[[bytes | None], None] = lambda data: None

    def respond(self, parts: list[Part]) -> None:
        data = join(parts)
        if not self.closed:
            self.answered(data)

    def mute(self, duration_s: float, *, restart: bool = False, more: Callable[[], float] | None = None) -> None:
        """Ignored: nodes have no client quotas."""

    def close(self, reason: str) -> None:
        if not self.closed:
            self.closed = True
            self.answered(None)


def join(parts: list[Part]) -> bytes:
    out = bytearray()
    for part in parts:
        if isinstance(part, bytes | bytearray | memoryview):
            out += part
            continue
        data = bytearray(part.length)
        done = 0
        while done < len(data):
            done += part.read_into(memoryview(data)[done:], done)
        part.release()
        out += data
    return bytes(out)


class MemoryConnection:
    """A `PeerConnection` between two nodes: one request is served at a time, each direction takes a millisecond."""

    def __init__(self, world: World, source: int, target: int) -> None:
        self._world = world
        self._source = source
        self._target = target
        self._queue: list[tuple[int, int, bytes, Callable[..., None]]] = []
        self._serving: tuple[int, int, bytes, Callable[..., None]] | None = None
        self._channel: Channel | None = None
        self.failed = False
        world.connections.append(self)

    def request(self, api_key: int, api_version: int, body: Any, done: Any, timeout_s: float) -> None:
        frame = bytes(request_frame(api_key, api_version, 7, f"broker-{self._source}", body))
        self._world.loop.call_later(0.001, self._arrive, (api_key, api_version, frame, done))

    def close(self) -> None:
        self.fail(ConnectionError("closed"))

    def touches(self, node: int) -> bool:
        return node in (self._source, self._target)

    def fail(self, error: Exception) -> None:
        if self.failed:
            return
        self.failed = True
        waiting = [item for item in [self._serving, *self._queue] if item is not None]
        self._serving = None
        self._queue.clear()
        node = self._world.nodes.get(self._target)
        if self._channel is not None and node is not None:
            self._channel.closed = True
            node.dispatcher.connection_closed(self._channel)
        for item in waiting:
            self._world.loop.call_soon(item[3], None, error)

    def _arrive(self, item: tuple[int, int, bytes, Callable[..., None]]) -> None:
        node = self._world.nodes.get(self._target)
        if self.failed or node is None or self._world.cut(self._source, self._target):
            self.failed = True
            item[3](None, ConnectionError("unreachable"))
            return
        self._queue.append(item)
        self._serve()

    def _serve(self) -> None:
        node = self._world.nodes.get(self._target)
        if self._serving is not None or not self._queue or node is None:
            return
        self._serving = self._queue.pop(0)
        if self._channel is None:
            self._channel = Channel()
            self._channel.answered = self._answered
        frame = self._serving[2]
        try:
            parts = node.dispatcher.handle(self._channel, bytearray(frame[4:]), 0, len(frame) - 4)
        except ProtocolError as error:
            self.fail(ConnectionError(str(error)))
            return
        if parts is not None:
            self._answered(join(parts))

    def _answered(self, data: bytes | None) -> None:
        if data is None:
            self.fail(ConnectionError("the broker closed the connection"))
        else:
            self._world.loop.call_later(0.001, self._deliver, data)

    def _deliver(self, data: bytes) -> None:
        if self.failed or self._serving is None:
            return
        if self._world.cut(self._source, self._target):
            self.fail(ConnectionError("cut"))
            return
        (api_key, version, _, done), self._serving = self._serving, None
        _, start = response_body(api_key, version, data, 4, len(data))
        done(memoryview(data)[start:], None)
        self._serve()


class Network:
    """The `PeerNetwork` of one node; ports are node ids."""

    def __init__(self, world: World, source: int) -> None:
        self._world = world
        self._source = source

    def connect(self, host: str, port: int) -> MemoryConnection:
        return MemoryConnection(self._world, self._source, port)


class Node:
    """One broker."""

    def __init__(self, world: World, node_id: int, disk: Any, broker_epoch: int) -> None:
        self.world = world
        self.id = node_id
        self.disk = disk
        self.broker_epoch = broker_epoch
        self.clients: list[Channel] = []
        loop = world.loop
        self.logs = LogManager(disk, loop, world.rng, (f"/node{node_id}",), default_config=LogConfig())
        self.logs.open(node_id=node_id)
        self.logs.load_logs(lambda topic: LogConfig.from_properties(world.configs))
        config, _ = BrokerConfig.parse({"node.id": str(node_id)})
        self.failures = Failures(loop)
        purgatory = Purgatory(loop, self.failures)
        self.publisher = MetadataPublisher()
        self.statistics = ReplicationStatistics(MetricsRegistry())
        self.replicas = ReplicaManager(
            Membership(node_id, Network(world, node_id), world.controller_for(node_id), lambda: broker_epoch),
            self.logs,
            purgatory,
            config.topic_properties,
            clock=loop,
            scheduler=loop,
            pool=SoonPool(loop),
            settings=world.settings,
            statistics=self.statistics,
            assignments=DirectoryAssignments(alone(node_id, lambda: broker_epoch), world.controller_for(node_id), loop),
        )
        pool = SoonPool(loop)
        statistics = BrokerStatistics(MetricsRegistry())
        limits = RequestLimits(self.publisher)
        unused: Any = None
        self.context = DataContext(
            metadata=MetadataCache(
                node_id, "c" * 22, self.publisher, cast(Any, SimpleNamespace(leader=LeaderAndEpoch(NO_NODE, 0)))
            ),
            replicas=self.replicas,
            purgatory=purgatory,
            sessions=FetchSessionCache(1000, world.rng, purgatory),
            limits=limits,
            work=OffLoopWork(pool, PoolShare(pool), InFlight()),
            clock=loop,
            statistics=statistics,
            failures=self.failures,
            transactions=TransactionGate(unused, self.replicas, clock=loop, scheduler=EndOfTickScheduler(loop)),
        )
        self.context.use_config(config)
        rows = served_on(Listeners.BROKER, DATA_APIS, self.context)
        self.dispatcher = RequestDispatcher(
            DispatcherContext(loop, purgatory, limits, unused, statistics, self.failures), rows
        )
        self.publisher.register(self.replicas.apply)

    def partition(self, index: int = 0) -> Partition:
        return self.replicas.find(TOPIC, index)

    def log_bytes(self, start: int, end: int, index: int = 0) -> bytes:
        """Return all stored bytes of the batches in a range of offsets."""
        log = self.partition(index).log
        out = bytearray()
        while start < end:
            result = log.read(start, 1 << 20, max_offset=end)
            assert result.records is not None
            data = join([result.records])
            out += data
            position = 0
            while position < len(data):
                start = int.from_bytes(data[position : position + 8], "big") + 1
                start += int.from_bytes(data[position + 23 : position + 27], "big")
                position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        return bytes(out)


class World:
    """The cluster. `controller_refuses` returns the error code for each ISR change."""

    def __init__(self, fakes: Any, *, settings: ReplicationSettings | None = None, **configs: str) -> None:
        self.loop = VirtualLoop()
        self.rng = fakes.Rng(5)
        self.fakes = fakes
        self.settings = settings or ReplicationSettings()
        self.configs = {name.replace("_", "."): value for name, value in configs.items()}
        self.nodes: dict[int, Node] = {}
        self.disks: dict[int, Any] = {}
        self.connections: list[MemoryConnection] = []
        self.cuts: set[frozenset[int]] = set()
        self.deaf: set[int] = set()
        """Nodes that do not get the metadata."""
        self.isr_changes: list[tuple[int, ...]] = []
        self.controller_refuses: Callable[[AlterPartitionRequest], int] = lambda request: 0
        self._epochs = itertools.count(100)
        self.image = MetadataImage(
            offset=1, configs={ConfigResource(ConfigResourceType.TOPIC, TOPIC): dict(self.configs)}
        )

    def cut(self, one: int, other: int) -> bool:
        return frozenset((one, other)) in self.cuts

    # --- brokers ---------------------------------------------------------------------------------------------------

    def start(self, node_id: int, rack: str | None = None) -> Node:
        """Start a new incarnation on the disk of the last one."""
        disk = self.disks.get(node_id)
        if disk is None:
            disk = self.disks[node_id] = self.fakes.Disk(self.loop)
        epoch = next(self._epochs)
        node = self.nodes[node_id] = Node(self, node_id, disk, epoch)
        known = self.image.brokers.get(node_id)
        broker = BrokerImage(
            broker_id=node_id,
            broker_epoch=epoch,
            incarnation_id=bytes([node_id]) * 16,
            endpoints=(Endpoint(LISTENER, "PLAINTEXT", "node", node_id),),
            features={},
            rack=rack if rack is not None or known is None else known.rack,
            fenced=False,
            in_controlled_shutdown=False,
            log_dirs=(),
        )
        self.publish(MetadataChanges(brokers_changed=True), brokers={**self.image.brokers, node_id: broker})
        if node.publisher.image is not self.image:
            node.publisher.publish(self.image, all_changes(self.image))
        return node

    def kill(self, node_id: int, *, power: bool = False) -> None:
        """End a broker with its memory; with `power` the disk loses unsynced data."""
        node = self.nodes.pop(node_id)
        node.replicas.stop()
        for channel in node.clients:
            channel.closed = True
        for connection in self.connections:
            if connection.touches(node_id):
                connection.fail(ConnectionError("the broker is gone"))
        self.connections = [connection for connection in self.connections if not connection.failed]
        node.disk.locked.clear()
        if power:
            node.disk.crash(self.fakes.Rng(node_id))

    def fence(self, node_id: int, fenced: bool = True) -> None:
        broker = replace(self.image.brokers[node_id], fenced=fenced)
        self.publish(MetadataChanges(brokers_changed=True), brokers={**self.image.brokers, node_id: broker})

    # --- metadata --------------------------------------------------------------------------------------------------

    def publish(self, changes: MetadataChanges, **fields: Any) -> None:
        self.image = replace(self.image, offset=self.image.offset + 1, **fields)
        for node_id, node in self.nodes.items():
            if node_id in self.deaf:
                continue
            behind = node.publisher.image.offset < self.image.offset - 1
            node.publisher.publish(self.image, all_changes(self.image) if behind else changes)

    def deliver_metadata(self) -> None:
        """Deliver the missed metadata to all nodes."""
        self.publish(MetadataChanges())

    def create_topic(self, replicas: tuple[int, ...] = (1, 2, 3), partitions: int = 1) -> None:
        image = PartitionImage(replicas, replicas, replicas[0], 0, 0)
        topic = TopicImage(TOPIC, TOPIC_ID, dict.fromkeys(range(partitions), image))
        self._publish_topic(topic, list(topic.partitions))

    def _publish_topic(self, topic: TopicImage, changed: list[int]) -> None:
        changes = MetadataChanges(changed_partitions=[(topic, index) for index in changed])
        self.publish(changes, topics={TOPIC: topic}, topics_by_id={TOPIC_ID: topic})

    def change(self, index: int = 0, **fields: Any) -> None:
        """Commit a new state of a partition; a new leader gets a new epoch."""
        topic = self.image.topics[TOPIC]
        old = topic.partitions[index]
        epoch = old.leader_epoch + (fields.get("leader", old.leader) != old.leader or "bump" in fields)
        fields.pop("bump", None)
        new = old._replace(**{"partition_epoch": old.partition_epoch + 1, "leader_epoch": epoch, **fields})
        self._publish_topic(replace(topic, partitions={**topic.partitions, index: new}), [index])

    def state(self, index: int = 0) -> PartitionImage:
        return self.image.topics[TOPIC].partitions[index]

    def controller_for(self, node_id: int) -> Any:
        return ControllerOf(self, node_id)

    def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        refusal = self.controller_refuses(request)
        if request.broker_epoch != self.image.brokers[request.broker_id].broker_epoch:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        topics = []
        for topic in request.topics:
            results = []
            for asked in topic.partitions:
                code = refusal or self._alter(request.broker_id, asked)
                state = self.state(asked.partition_index)
                results.append(
                    AlterPartitionPartitionResult(
                        partition_index=asked.partition_index,
                        error_code=code,
                        leader_id=state.leader,
                        leader_epoch=state.leader_epoch,
                        isr=list(state.isr),
                        partition_epoch=state.partition_epoch,
                    )
                )
            topics.append(AlterPartitionTopicResult(topic_id=topic.topic_id, partitions=results))
        return AlterPartitionResponse(topics=topics)

    def _alter(self, broker_id: int, asked: Any) -> int:
        state = self.state(asked.partition_index)
        if state.leader != broker_id or asked.leader_epoch != state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if asked.partition_epoch != state.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for member in asked.new_isr_with_epochs:
            broker = self.image.brokers[member.broker_id]
            if not broker.active or member.broker_epoch not in (-1, broker.broker_epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        isr = tuple(member.broker_id for member in asked.new_isr_with_epochs)
        self.isr_changes.append(isr)
        self.change(asked.partition_index, isr=isr)
        return ErrorCode.NONE

    def assign_directories(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """A replica in no directory is not in the ISR and leads nothing, unless it is the only one in the ISR."""
        for directory in request.directories:
            for asked in [asked for topic in directory.topics for asked in topic.partitions]:
                state, broker_id = self.state(asked.partition_index), request.broker_id
                isr = state.isr
                if directory.id == LOST_UUID:
                    isr = tuple(member for member in state.isr if member != broker_id)
                    if not isr:
                        continue
                known = state.directories or (ZERO_UUID,) * len(state.replicas)
                directories = tuple(
                    bytes(directory.id) if replica == broker_id else each
                    for replica, each in zip(state.replicas, known, strict=True)
                )
                leader = state.leader if state.leader in isr else isr[0]
                self.change(asked.partition_index, isr=isr, leader=leader, directories=directories)
        return AssignReplicasToDirsResponse()

    # --- clients ---------------------------------------------------------------------------------------------------

    def ask(self, node_id: int, message: object, version: int = 0) -> Answer:
        """Send a request to a broker like a client."""
        version = version or NEWEST[type(message)]
        key = KEYS[type(message)]
        frame = encode_request(key, version, 1, "client", message)
        answer = Answer(self.loop, key, version)
        node = self.nodes[node_id]
        node.clients.append(answer.channel)
        try:
            parts = node.dispatcher.handle(answer.channel, bytearray(frame[4:]), 0, len(frame) - 4)
        except ProtocolError as error:
            raise InvariantError(str(error)) from error
        if parts is not None:
            answer.channel.answered(join(parts))
        return answer

    def produce(
        self, node_id: int, *values: bytes, acks: int = -1, timeout_ms: int = 30_000, index: int = 0
    ) -> ProduceAnswer:
        """Append one batch."""
        records = bytes(build_batch([RecordData(1_700_000_000_000, None, value) for value in values]))
        row = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=index, records=records)])
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[row])
        return ProduceAnswer(node_id, self.ask(node_id, request, 12))

    def delete_records(self, node_id: int, before: int, timeout_ms: int = 30_000) -> DeleteAnswer:
        """Raise the log start offset to `before`."""
        asked = DeleteRecordsPartition(partition_index=0, offset=before)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=TOPIC, partitions=[asked])], timeout_ms=timeout_ms
        )
        return DeleteAnswer(self.ask(node_id, request))

    def fetch(self, node_id: int, offset: int, rack: str = "", version: int = 12, **fields: Any) -> PartitionData:
        """Fetch like a consumer, without waiting."""
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, **fields)
        request = FetchRequest(
            max_bytes=1 << 20, rack_id=rack, topics=[FetchTopic(topic=TOPIC, partitions=[asked])], session_epoch=-1
        )
        return self.ask(node_id, request, version).message().responses[0].partitions[0]

    def latest(self, node_id: int, version: int = 11, *, replica_id: int = -1) -> ListOffsetsPartitionResponse:
        asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
        topics = [ListOffsetsTopic(name=TOPIC, partitions=[asked])]
        request = ListOffsetsRequest(replica_id=replica_id, topics=topics)
        return self.ask(node_id, request, version).message().topics[0].partitions[0]

    # --- what tests wait for ---------------------------------------------------------------------------------------

    def in_sync(self, *nodes: int, index: int = 0) -> bool:
        """Return whether these replicas are equal and fully committed, and are the whole ISR."""
        leader = self.nodes[self.state(index).leader].partition(index)
        end = leader.log.log_end_offset
        return (
            sorted(self.state(index).isr) == sorted(nodes)
            and leader.high_watermark == end
            and all(self.nodes[node].partition(index).log.log_end_offset == end for node in nodes)
            and all(self.nodes[node].partition(index).high_watermark == end for node in nodes)
        )

    def settle(self, *nodes: int, index: int = 0) -> None:
        """Wait until these replicas are in sync, and compare their records."""
        self.loop.run_until(lambda: self.in_sync(*nodes, index=index))
        logs = [self.nodes[node].partition(index).log for node in nodes]
        start, end = max(log.log_start_offset for log in logs), logs[0].log_end_offset
        contents = {self.nodes[node].log_bytes(start, end, index) for node in nodes}
        assert len(contents) == 1, "replicas differ"


class ControllerOf:
    """`ControllerRequests` of one node."""

    def __init__(self, world: World, node_id: int) -> None:
        self._world = world
        self._node_id = node_id

    def send(self, message: object, done: Any, timeout_s: float) -> None:
        self._world.loop.call_later(0.001, self._arrive, message, done)

    def _arrive(self, message: AlterPartitionRequest | AssignReplicasToDirsRequest, done: Any) -> None:
        if self._world.cut(self._node_id, 0):
            done(None, ConnectionError("cut off from the controller"))
        elif isinstance(message, AssignReplicasToDirsRequest):
            done(self._world.assign_directories(message), None)
        else:
            done(self._world.alter_partition(message), None)


class Answer:
    """The response to a client's request, now or later."""

    def __init__(self, loop: VirtualLoop, key: int, version: int) -> None:
        self._loop = loop
        self._key = key
        self._version = version
        self.data: bytes | None = None
        self.channel = Channel()
        self.channel.answered = self._set

    def _set(self, data: bytes | None) -> None:
        self.data = data

    @property
    def there(self) -> bool:
        return self.data is not None

    def message(self) -> Any:
        """Wait for it."""
        self._loop.run_until(lambda: self.there)
        assert self.data is not None
        return decode_response(self._key, self._version, self.data[4:])[1]


class ProduceAnswer:
    """The response for one batch."""

    def __init__(self, node_id: int, answer: Answer) -> None:
        self.node_id = node_id
        self._answer = answer

    @property
    def there(self) -> bool:
        return self._answer.there

    def result(self) -> tuple[int, int]:
        """(error code, base offset)."""
        partition = self._answer.message().responses[0].partition_responses[0]
        return partition.error_code, partition.base_offset


class DeleteAnswer:
    """The response to one deletion."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def result(self) -> tuple[int, int]:
        """(error code, low watermark)."""
        partition = self._answer.message().topics[0].partitions[0]
        return partition.error_code, partition.low_watermark
