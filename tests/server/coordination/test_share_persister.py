"""Three nodes in memory: real persisters and share coordinators, and their messages as bytes between them.

The nodes share one log. `elect` moves the leadership of its partition, as an image would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.share_state import SharePartitionKey, ShareState, StateBatch
from ottla.common.platform.disk import Buffer
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.common.platform.peer import PeerConnection, PeerDone
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.share.config import ShareCoordinatorConfig
from ottla.coordinator.share.context import ShardContext
from ottla.coordinator.share.coordinator import ShareCoordinator
from ottla.coordinator.share.memory import ShareMemory
from ottla.coordinator.share.records import ShareRecordSerde
from ottla.coordinator.share.shard import ShareCoordinatorShard
from ottla.coordinator.share.statistics import ShareCoordinatorStatistics
from ottla.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from ottla.protocol.codec import read_message, write_message
from ottla.protocol.registry import API
from ottla.server.coordination.share_persister import TIME_LIMIT_S, CoordinatorSharePersister
from ottla.server.coordination.share_state import SHARE_STATE_TOPIC, ShareStateCoordination

from ...coordinator.runtime.harness import MemoryLog, VirtualTime

TOPIC_ID = b"t" * 16
KEY = SharePartitionKey("a:b", TOPIC_ID, 0)
NODES = (1, 2, 3)


class Node:
    """A broker: its share coordinator, and the part of the host that the persister uses."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.topic = SHARE_STATE_TOPIC
        self.requests: list[Any] = []
        statistics = ShareCoordinatorStatistics()
        context = ShardContext(
            config=ShareCoordinatorConfig(),
            image=lambda: cluster.image,
            clock=cluster.time,
            memory=ShareMemory(lambda: 1 << 30, cluster.time, lambda: 0),
            prune=lambda partition, offset: False,
            statistics=statistics,
        )
        self.runtime: CoordinatorRuntime[ShareCoordinatorShard] = CoordinatorRuntime(
            name=self.topic.name,
            log=cluster.log,
            serde=ShareRecordSerde,
            shard_factory=partial(ShareCoordinatorShard, context),
            clock=cluster.time,
            scheduler=EndOfTickScheduler(cluster.time),
            failures=cluster.failed,
        )
        self.runtime.start(1)
        self.coordinator = ShareCoordinator(self.runtime, statistics, clock=cluster.time, scheduler=cluster.time)
        self.persister = CoordinatorSharePersister(
            node_id,
            cast(ShareStateCoordination, self),
            cluster,
            image=lambda: cluster.image,
            address_of=lambda broker_id: (str(broker_id), 9092),
            create_topic=cluster.create_topic,
            clock=cluster.time,
            scheduler=EndOfTickScheduler(cluster.time),
        )

    def leader(self, key: str, image: MetadataImage) -> int | None:
        leader = image.topics[self.topic.name].partitions[0].leader
        return None if leader == NO_LEADER else leader

    def load(self, then: Callable[[], None]) -> None:
        self.cluster.time.call_soon(then)


class Link:
    """A connection between two nodes. Implements `PeerConnection`."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self.cluster = cluster
        self.node = node
        self.failed = False
        self.waiting: list[PeerDone] = []

    def request(self, api_key: int, api_version: int, body: Buffer, done: PeerDone, timeout_s: float) -> None:
        message, _ = read_message(API[api_key].request, api_version, bytes(body), 0, len(body), 100_000)
        self.node.requests.append(message)
        self.waiting.append(done)
        if self.cluster.cut:
            self.cluster.time.call_soon(self.close)
            return

        def answered(response: Any) -> None:
            if self.cluster.lost_answers:
                self.cluster.lost_answers -= 1
                self.cluster.time.call_soon(self.close)
                return
            data = bytearray()
            write_message(response, api_version, data)
            if not self.failed:
                self.cluster.time.call_soon(self.waiting.pop(0), memoryview(data), None)

        self.cluster.time.call_soon(self.node.coordinator.answer, message, answered)

    def close(self) -> None:
        self.failed = True
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(None, ConnectionError("cut"))


class Cluster:
    """Three nodes on one virtual clock. Implements `PeerNetwork`."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self.log = MemoryLog(self.time, 1)
        self.defects: list[tuple[str, Exception]] = []
        self.cut = False
        self.lost_answers = 0
        self.created = 0
        self.epoch = 0
        partition = PartitionImage((1,), (1,), 1, 0, 0)
        self.subject = TopicImage("t", TOPIC_ID, dict.fromkeys(range(10), partition))
        self.image = MetadataImage(topics={"t": self.subject}, topics_by_id={TOPIC_ID: self.subject})
        self.nodes = {node_id: Node(self, node_id) for node_id in NODES}

    def failed(self, where: str, error: Exception) -> None:
        self.defects.append((where, error))

    def connect(self, host: str, port: int) -> PeerConnection:
        return Link(self, self.nodes[int(host)])

    def create_topic(self, done: Callable[[KafkaError | None], None]) -> None:
        self.created += 1
        self.elect(1)
        self.time.call_soon(done, None)

    def elect(self, leader: int) -> None:
        """Move the leadership; the old leader follows its image first."""
        self.epoch += 1
        state = TopicImage(
            SHARE_STATE_TOPIC.name, b"s" * 16, {0: PartitionImage(NODES, NODES, leader, self.epoch, self.epoch)}
        )
        topics = {"t": self.subject, state.name: state}
        self.image = MetadataImage(topics=topics, topics_by_id={each.topic_id: each for each in topics.values()})
        for node in self.nodes.values():
            if node.node_id != leader:
                node.runtime.resign(0, self.epoch)
        if leader != NO_LEADER:
            self.log.leader_epoch[0] = self.epoch
            self.log.high_watermark_updated = self.nodes[leader].runtime.high_watermark_updated
            self.nodes[leader].runtime.become_leader(0, self.epoch)

    def start(self, call: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(call)

    async def run(self, *calls: Any) -> list[Any]:
        """Run calls to their ends, with time passing for retries; returns results and errors."""
        tasks = [self.start(call) for call in calls]
        await asyncio.sleep(0)
        for _ in range(2_000):
            self.time.settle()
            await asyncio.sleep(0)
            if all(task.done() for task in tasks):
                break
            self.time.advance(0.05)
        assert not self.defects, self.defects
        return await asyncio.gather(*tasks, return_exceptions=True)


def write(node: Node, key: SharePartitionKey, first: int, leader_epoch: int = 0) -> Any:
    return node.persister.write(
        key,
        state_epoch=1,
        leader_epoch=leader_epoch,
        start_offset=-1,
        delivery_complete_count=-1,
        batches=[StateBatch(first, first, 2, 1)],
    )


def test_every_node_reaches_the_coordinator_of_a_new_topic() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        keys = [SharePartitionKey("a:b", TOPIC_ID, partition) for partition in range(10)]
        first = [cluster.nodes[1].persister.initialize(key, 1, 0) for key in keys]
        assert await cluster.run(*first) == [None] * 10
        assert cluster.created == 1
        writes = [write(cluster.nodes[1 + index % 3], key, index) for index, key in enumerate(keys)]
        assert await cluster.run(*writes) == [None] * 10
        reads = [cluster.nodes[3].persister.read(key, 0) for key in keys]
        assert await cluster.run(*reads) == [ShareState(1, 0, (StateBatch(index, index, 2, 1),)) for index in range(10)]

    asyncio.run(scenario())


def test_calls_of_one_group_are_combined() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.elect(1)
        keys = [SharePartitionKey("g", TOPIC_ID, partition) for partition in range(10)]
        assert await cluster.run(*(cluster.nodes[2].persister.initialize(key, 1, 0) for key in keys)) == [None] * 10
        assert len(cluster.nodes[1].requests) == 1
        twice = [write(cluster.nodes[2], keys[0], 1), write(cluster.nodes[2], keys[0], 2)]
        assert await cluster.run(*twice) == [None] * 2
        assert len(cluster.nodes[1].requests) == 3, "a request has a share partition once"

    asyncio.run(scenario())


def test_calls_continue_across_a_leader_change() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.elect(1)
        here, there = cluster.nodes[2], cluster.nodes[3]
        assert await cluster.run(here.persister.initialize(KEY, 1, 0), write(here, KEY, 1)) == [None, None]
        cluster.elect(NO_LEADER)
        waiting = cluster.start(write(here, KEY, 2))
        await cluster.run()
        assert not waiting.done()
        cluster.elect(2)
        assert await cluster.run(write(there, KEY, 3)) == [None]
        await cluster.run(waiting)
        cluster.elect(3)
        (found,) = await cluster.run(here.persister.read(KEY, 1))
        assert found == ShareState(1, 0, (StateBatch(1, 3, 2, 1),))
        assert await cluster.run(write(there, KEY, 9)) != [None], "the leader of epoch 0 is fenced"

    asyncio.run(scenario())


def test_write_with_a_lost_answer_is_repeated() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.elect(1)
        node = cluster.nodes[2]
        cluster.lost_answers = 2
        assert await cluster.run(node.persister.initialize(KEY, 1, 0)) == [None]
        cluster.lost_answers = 1
        assert await cluster.run(write(node, KEY, 4)) == [None]
        (found,) = await cluster.run(node.persister.read(KEY, 0))
        assert found == ShareState(1, 0, (StateBatch(4, 4, 2, 1),))

    asyncio.run(scenario())


def test_retries_end_with_the_last_error() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.elect(1)
        cluster.cut = True
        started_s = cluster.time.now_s
        (error,) = await cluster.run(cluster.nodes[2].persister.initialize(KEY, 1, 0))
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.NETWORK_EXCEPTION
        assert cluster.time.now_s - started_s <= TIME_LIMIT_S + 1
        cluster.elect(NO_LEADER)
        (error,) = await cluster.run(cluster.nodes[1].persister.initialize(KEY, 1, 0))
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(scenario())


def test_closed_persister_fails_all_calls() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.elect(NO_LEADER)
        node = cluster.nodes[2]
        waiting = [cluster.start(node.persister.initialize(KEY, 1, 0)), cluster.start(node.persister.read(KEY, 0))]
        await cluster.run()
        node.persister.close()
        late = cluster.start(node.persister.read(KEY, 0))
        for task in (*waiting, late):
            with pytest.raises(KafkaError) as raised:
                await task
            assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(scenario())
