"""Controllers on a simulated ZooKeeper, each a process with a session; brokers are registrations that come and go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simulation.disk import Mount, SimDisk
from simulation.loop import Process, SimClock, SimLoop
from simulation.rng import SimRng
from simulation.zookeeper_session import Ensemble, SimSession

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.runtime import NodeRuntime
from ottla.controller.driver import Controller
from ottla.controller.external_topic_changes import ExternalTopicChanges
from ottla.controller.producer_ids import handle_allocate_producer_ids
from ottla.controller.result import ControllerResult
from ottla.controller.topics import handle_create_topics, handle_delete_topics
from ottla.controller.znode_requests import ZnodeRequestWatcher
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import BrokerImage, MetadataImage
from ottla.metadata.log import LeaderAndEpoch
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import SUPPORTED_FEATURES
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Operation
from ottla.zookeeper.log import ZooKeeperLog
from ottla.zookeeper.writing import registration

from .wire import Wire
from .world import check_valid, content, seen

TIMEOUT_MS = 2_000
FOREVER_MS = 10**9


class World:
    """The loop, the ensemble, and the observations of all nodes."""

    def __init__(self, seed: int = 1, properties: Mapping[str, str] | None = None) -> None:
        self.loop = SimLoop()
        self.rng = SimRng(seed)
        self.ensemble = Ensemble(self.loop)
        self.server = self.ensemble.server
        self.tool = self.server.connect(FOREVER_MS)
        self.reigns: dict[int, int] = {}
        """The active node, by controller epoch."""
        self.brokers: dict[int, int] = {}
        """Sessions of those that are registered."""
        self.properties = dict(properties or {})
        self.nodes: dict[int, Node] = {}
        self.wire = Wire(self)
        self.images: dict[int, Any] = {}
        """The image published by the controller at that time, by offset."""

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.nodes[node_id] = Node(self, node_id)

    # -- time ------------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.time() + seconds)

    def until(self, condition: Callable[[], object], within_s: float = 30.0) -> None:
        assert self.loop.run_until(self.loop.time() + within_s, lambda: bool(condition())), "condition not reached"

    # -- the tree --------------------------------------------------------------------------------------------------

    def write(self, *operations: Operation) -> None:
        """A tool does."""
        self.server.multi(self.tool, operations)
        self.ensemble.deliver()

    def there(self, path: str) -> bool:
        return path in self.server.tree()

    @property
    def tree(self) -> MetadataImage:
        return seen(self.server)

    # -- brokers ---------------------------------------------------------------------------------------------------

    def join(self, *broker_ids: int) -> None:
        self.until(lambda: self.there(paths.BROKER_IDS))
        for broker_id in broker_ids:
            session = self.brokers[broker_id] = self.server.connect(FOREVER_MS)
            endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", f"h{broker_id}", 9092)
            features = SUPPORTED_FEATURES
            image = BrokerImage(broker_id, -1, b"", (endpoint,), features, None, False, False, ())
            self.server.multi(session, [registration(image, 1)])
        self.ensemble.deliver()

    def leave(self, broker_id: int) -> None:
        self.server.close(self.brokers.pop(broker_id))
        self.ensemble.deliver()

    # -- the controller --------------------------------------------------------------------------------------------

    @property
    def active(self) -> Node | None:
        """The one that thinks so and is right."""
        claim = self.server.tree().get(paths.CONTROLLER)
        for node in self.nodes.values():
            if node.controller.active and claim and claim.owner == node.session.session and node.process.alive:
                return node
        return None

    def settled(self) -> Node:
        """The active node, once it has accepted all registered brokers."""
        self.until(lambda: self.active and set(self.active.log.latest.brokers) == set(self.brokers))
        node = self.active
        assert node is not None
        done = node.submit(lambda _image, _context: ControllerResult([], None))
        self.until(lambda: done)
        return self.settled() if done[0][1] is not None else node

    def partition(self, topic: str, number: int = 0) -> Any:
        return self.tree.topics[topic].partitions[number]

    def check(self) -> None:
        """Invariants of the tree at any time."""
        check_valid(self.tree)


class Node:
    """One life of a process that may be the controller."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.process = Process(world.loop, world.rng.fork(f"process {node_id} {world.loop.time()}"))
        rng = world.rng.fork(f"node {node_id} {world.loop.time()}")
        self.session = SimSession(world.ensemble, self.process, rng, TIMEOUT_MS)
        publisher = self.publisher = MetadataPublisher()
        publisher.register(self.published)
        config, _ = BrokerConfig.parse({"node.id": str(node_id), **world.properties})
        clock = SimClock(world.loop)
        self.address = f"h{node_id}", 9092
        disk = Mount(SimDisk(clock, rng.fork("disk")), self.process)
        self.log = ZooKeeperLog(
            session=self.session,
            broker_id=node_id,
            cluster_id="c" * 22,
            listener_name="PLAINTEXT",
            peers=world.wire.of(self),
            publisher=publisher,
            runtime=NodeRuntime(disk, clock, rng, self.process, self.process),
            on_failure=world.loop.failures.append,
        )
        self.controller = Controller(
            metadata_log=self.log,
            config=config,
            cluster_id="c" * 22,
            log_dirs=lambda: (),
            cordoned=lambda: (),
            clock=clock,
            rng=rng,
            scheduler=self.process,
            registry=MetricsRegistry(),
        )
        self.log.listen(self)
        self.log.listen(self.controller)
        self.log.listen(ZnodeRequestWatcher(self.session, self.log, self.controller))
        self.log.listen(ExternalTopicChanges(self.session, self.log, self.controller))
        self.log.start([Endpoint("CONTROLLER", "PLAINTEXT", "h", 9090 + node_id)])

    def on_leader_change(self, leader: LeaderAndEpoch, active: bool) -> None:
        if active:
            assert self.world.reigns.setdefault(leader.epoch, self.node_id) == self.node_id, leader
            assert leader.leader_id == self.node_id

    def published(self, image: MetadataImage, _changes: MetadataChanges) -> None:
        """Images of one node rise by the publisher's own rule; those of a reign are its controller's, wherever."""
        known = content(image), dict(image.brokers)
        if self.world.reigns.get(image.epoch, self.node_id) == self.node_id:
            self.world.images[image.offset] = known
        assert known == self.world.images[image.offset]

    def kill(self) -> None:
        self.process.kill()

    def submit(self, operation: Callable[..., Any]) -> list[tuple[Any, BaseException | None]]:
        """The result, once it is complete."""
        results: list[tuple[Any, BaseException | None]] = []
        self.process.call_soon(self.controller.submit, operation, lambda *answer: results.append(answer))
        return results

    def create(
        self, name: str, *replicas: tuple[int, ...], configs: Mapping[str, str] | None = None
    ) -> list[tuple[Any, BaseException | None]]:
        """A partition for each of `replicas`."""
        assigned = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(ids))
            for number, ids in enumerate(replicas)
        ]
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assigned, configs=settings
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        return self.submit(lambda image, context: handle_create_topics(image, request, context))

    def delete(self, name: str) -> list[tuple[Any, BaseException | None]]:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        return self.submit(lambda image, context: handle_delete_topics(image, request, context))

    def producer_ids(self, broker_id: int) -> list[tuple[Any, BaseException | None]]:
        def allocate(image: MetadataImage, _context: object) -> Any:
            broker = image.brokers[broker_id]
            request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker.broker_epoch)
            return handle_allocate_producer_ids(image, request)

        return self.submit(allocate)
