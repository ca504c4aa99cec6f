"""Faults of share groups: late requests to share coordinators, jumps of clocks, and a topic that is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.common.platform.disk import Buffer
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.builder import RecordData, build_batch
from simulation.checkers import Violation
from simulation.client import Client, RequestLost
from simulation.history.shares import ShareHistory
from simulation.log_clients import PRODUCE_RETRIABLE, PRODUCE_TIMEOUT_MS, RETRIABLE, LogWorld
from simulation.network import Address
from simulation.node import SimNode
from simulation.proxy import LateProxy
from simulation.rng import SimRng
from simulation.share_routing import ShareRouting
from simulation.trace import Trace

LATE_APIS = frozenset(
    {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
    }
)
LATE_CHANCE = 0.25
"""Of requests to share coordinators: there are few, since calls are combined."""
JUMP_S = (5.0, 40.0)
"""Time between two jumps of clocks."""
MAX_JUMP_MS = 3_000_000
"""Below an hour: brokers refuse records from further in the future (`message.timestamp.after.max.ms`)."""
LIFE_S = (10.0, 45.0)
"""Life of the topic that is deleted."""
PAUSE_S = (0.2, 2.0)
AGAIN_S = 0.5
TOPIC_CONFIGS = {"min.insync.replicas": "2"}
CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION, PRODUCE_VERSION = 7, 6, 13
TIMEOUT_MS = 4_000
GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class LateStateRequests(LateProxy):
    """A network between brokers that repeats requests for share state late, or only delivers them late.

    A sender that gave up has a retransmission under way (TCP sends it after the end of a network partition).
    """

    def between_nodes(self, address: Address, key: int, version: int, body: Buffer, frame: bytes) -> bool:
        """See `simulation.network.BetweenNodes`."""
        return key not in LATE_APIS or self._passes(address, frame)

    def _chance(self) -> float:
        return LATE_CHANCE


class ClockJumps:
    """Sets the wall clocks of nodes forward and back; the clock of the locks is another one."""

    def __init__(self, nodes: Sequence[SimNode], rng: SimRng, trace: Trace) -> None:
        self._nodes = nodes
        self._rng = rng
        self._trace = trace

    async def run(self) -> None:
        """One jump after another until cancelled."""
        while True:
            await asyncio.sleep(self._rng.uniform(*JUMP_S))
            node = self._rng.choice(self._nodes)
            node.clock.skew_ms = self._rng.randrange(2 * MAX_JUMP_MS) - MAX_JUMP_MS
            self._trace.note("nemesis", f"the clock of {node.host} is {node.clock.skew_ms} ms ahead")


class ShortLivedTopic:
    """A topic with one partition that is written, deleted and created again, with another id each time."""

    def __init__(
        self, world: LogWorld, history: ShareHistory, name: str, rng: SimRng, trace: Trace, replicas: int
    ) -> None:
        self._world = world
        self._history = history
        self._name = name
        self._rng = rng
        self._trace = trace
        self._replicas = replicas
        self._numbers = 0
        self._routing = ShareRouting(world, (name,), "short-lived", rng.fork("routing"))
        self.topic_id = b""
        """Id of the present topic."""
        self.created_count = 0

    async def run(self, is_over: Callable[[], bool]) -> None:
        """One life after another; the topic of the last one exists when it returns, after `is_over`."""
        while True:
            await self.create()
            end_s = self._world.loop.time() + self._rng.uniform(*LIFE_S)
            while not is_over() and self._world.loop.time() < end_s:
                await asyncio.sleep(self._rng.uniform(*PAUSE_S))
                await self._write()
            if is_over():
                return
            await self.delete()

    async def create(self) -> None:
        """Create the topic; retries until it exists."""
        topic = CreatableTopic(
            name=self._name,
            num_partitions=1,
            replication_factor=self._replicas,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in TOPIC_CONFIGS.items()],
        )
        while True:
            await asyncio.sleep(AGAIN_S)
            response = await self._ask(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, CreateTopicsRequest(topics=[topic]))
            if response is None:
                continue
            created = response.topics[0]
            if created.error_code == ErrorCode.NONE:
                self.topic_id = created.topic_id
                break
            if created.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                await self.delete()  # by a request without response, so that its id is not known here
            elif created.error_code not in RETRIABLE | {ErrorCode.INVALID_REPLICATION_FACTOR}:
                raise Violation(f"CreateTopics returned {ErrorCode(created.error_code).name}")
        self.created_count += 1
        self._trace.note("short-lived", f"created as {self.topic_id.hex()[:6]}")

    async def delete(self) -> None:
        """Delete the topic; retries until it is gone."""
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=self._name)], timeout_ms=TIMEOUT_MS)
        while True:
            response = await self._ask(ApiKey.DELETE_TOPICS, DELETE_TOPICS_VERSION, request)
            if response is not None:
                code = response.responses[0].error_code
                if code in GONE or code == ErrorCode.NONE:
                    break
                if code not in RETRIABLE:
                    raise Violation(f"DeleteTopics returned {ErrorCode(code).name}")
            await asyncio.sleep(AGAIN_S)
        self._trace.note("short-lived", "deleted")
        self._routing.forget()

    async def _write(self) -> None:
        """Produce one record by topic id, once: it may be lost, or written without response."""
        place = (self.topic_id, 0)
        try:
            leader = self._routing.leader(place)
            if leader is None:
                await self._routing.refresh()
                return
            self._numbers += 1
            value = f"brief:{self._numbers}"
            batch = build_batch([RecordData(self._world.time_ms(), None, value.encode())])
            data = PartitionProduceData(index=0, records=batch)
            request = ProduceRequest(
                acks=-1,
                timeout_ms=PRODUCE_TIMEOUT_MS,
                topic_data=[TopicProduceData(topic_id=self.topic_id, partition_data=[data])],
            )
            response = await self._routing.client(leader).request(ApiKey.PRODUCE, PRODUCE_VERSION, request)
        except RequestLost:
            self._routing.forget()
            return
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.NONE:
            self._history.produced(place, answer.base_offset, value)
        elif answer.error_code in PRODUCE_RETRIABLE | GONE:
            self._routing.forget()
        else:
            raise Violation(f"Produce returned {ErrorCode(answer.error_code).name}")

    async def _ask(self, key: ApiKey, version: int, message: object) -> Any:
        client = Client(self._world.loop, self._world.network, "short-lived", self._rng.choice(self._world.bootstrap))
        try:
            return await client.request(key, version, message)
        except RequestLost:
            return None
        finally:
            client.close()
