"""Clients of a simulated cluster: metadata lookup and producers, which report responses to the history.

They behave like correct clients: idempotent producers with acks=all and one batch in flight per partition, whose
retries have the same sequence number. The tables below contain the errors that the protocol expects clients to handle;
any other error is a finding.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.builder import RecordData, build_batch
from simulation.checkers import Violation
from simulation.client import Client, RequestLost
from simulation.history import LogHistory
from simulation.loop import SimLoop
from simulation.network import Address, Network
from simulation.rng import SimRng

PRODUCE_VERSION = 9
METADATA_VERSION = 12
INIT_PRODUCER_ID_VERSION = 4

BACKOFF_S = (0.05, 0.4)
PAUSE_S = (0.0, 1.3)
PRODUCE_TIMEOUT_MS = 3_000
MAX_BATCH_RECORDS = 4

RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
    }
)
PRODUCE_RETRIABLE = RETRIABLE | {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
LOSS_SHOWS = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


@dataclass
class LogWorld:
    """The shared state of all clients of one topic."""

    loop: SimLoop
    network: Network
    bootstrap: list[Address]
    topic: str
    partitions: int
    racks: list[str]
    history: LogHistory
    time_ms: Callable[[], int]
    leads: Callable[[Address | None, str, int], int]
    """The leader epoch in which the broker at an address leads a partition by the newest metadata, negative if it does
    not."""
    topic_id: bytes = b""
    """Known once the topic was created."""
    operations: int = 0
    """Number of answered client requests."""
    stopping: bool = False
    progress: dict[str, set[int]] = field(default_factory=dict)
    """Partitions in which each producer was acknowledged since the last `clear`."""


class LogClient:
    """Routing of producers and consumers: one connection per broker, metadata on demand."""

    def __init__(self, world: LogWorld, name: str, rng: SimRng) -> None:
        self.world = world
        self.name = name
        self.rng = rng
        self._clients: dict[Address, Client] = {}
        self._addresses: dict[int, Address] = {}
        self._leaders: dict[int, tuple[int, int]] = {}
        """Leader and leader epoch of each partition, from Metadata."""
        self._newest_epochs: dict[int, int] = {}
        """Metadata with an older epoch is outdated (KIP-320)."""

    async def backoff(self) -> None:
        """Wait before the next attempt, which refreshes metadata first."""
        self._leaders.clear()
        await asyncio.sleep(self.rng.uniform(*BACKOFF_S))

    def close(self) -> None:
        """The client ends."""
        for client in self._clients.values():
            client.close()

    def client(self, address: Address) -> Client:
        """The connection to a broker."""
        found = self._clients.get(address)
        if found is None:
            found = self._clients[address] = Client(self.world.loop, self.world.network, self.name, address)
        return found

    async def ask_any(self, key: ApiKey, version: int, message: object) -> Any:
        """Send a request to one of the bootstrap brokers. Raises RequestLost."""
        return await self.client(self.rng.choice(self.world.bootstrap)).request(key, version, message)

    async def leader(self, partition: int) -> tuple[Client, int]:
        """The connection to the leader, and its epoch; retries until there is a leader."""
        while True:
            known = self._leaders.get(partition)
            if known is not None and known[0] in self._addresses:
                return self.client(self._addresses[known[0]]), known[1]
            with contextlib.suppress(RequestLost):
                await self._refresh()
            if partition not in self._leaders:
                await self.backoff()

    async def _refresh(self) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.world.topic)], allow_auto_topic_creation=False)
        response = await self.ask_any(ApiKey.METADATA, METADATA_VERSION, request)
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        for topic in response.topics:
            for partition in topic.partitions:
                index, epoch = partition.partition_index, partition.leader_epoch
                if partition.leader_id >= 0 and epoch >= self._newest_epochs.get(index, 0):
                    self._newest_epochs[index] = epoch
                    self._leaders[index] = (partition.leader_id, epoch)


class Producer(LogClient):
    """An idempotent producer."""

    def __init__(self, world: LogWorld, name: str, rng: SimRng) -> None:
        super().__init__(world, name, rng)
        self._numbers = 0
        self._producer_id = self._producer_epoch = -1
        self._sequences: dict[int, int] = {}

    async def run(self) -> None:
        """Send batch after batch, each until it is acknowledged, until the stop."""
        await self._init()
        while not self.world.stopping:
            await asyncio.sleep(self.rng.uniform(*PAUSE_S))
            partition = self.rng.randrange(self.world.partitions)
            values = [
                f"{self.name}:{self._numbers + step}" for step in range(1 + self.rng.randrange(MAX_BATCH_RECORDS))
            ]
            self._numbers += len(values)
            for value in values:
                self.world.history.sent(partition, value)
            await self._send(partition, values)
        self.close()

    async def _init(self) -> None:
        """Get a producer id, with sequences that restart at 0."""
        self._sequences.clear()
        while True:
            try:
                response = await self.ask_any(
                    ApiKey.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, InitProducerIdRequest()
                )
            except RequestLost:
                await self.backoff()
                continue
            if response.error_code == ErrorCode.NONE:
                self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
                return
            if response.error_code not in RETRIABLE:
                raise Violation(f"InitProducerId returned {ErrorCode(response.error_code).name}")
            await self.backoff()

    def _batch(self, partition: int, values: list[str]) -> bytearray:
        now_ms = self.world.time_ms()
        return build_batch(
            [RecordData(now_ms, self.world.history.key_of(value), value.encode()) for value in values],
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._sequences.get(partition, 0),
        )

    async def _send(self, partition: int, values: list[str]) -> None:
        batch = self._batch(partition, values)
        while True:
            client, _ = await self.leader(partition)
            try:
                response = await client.request(ApiKey.PRODUCE, PRODUCE_VERSION, self._request(partition, batch))
            except RequestLost:
                await self.backoff()
                continue
            self.world.operations += 1
            answer = response.responses[0].partition_responses[0]
            if answer.error_code == ErrorCode.NONE:
                self.world.history.acknowledged(self.name, partition, answer.base_offset, values)
                break
            # so old that the broker no longer knows the offset
            if answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                for value in values:
                    self.world.history.acknowledged_somewhere(partition, value)
                break
            if answer.error_code not in PRODUCE_RETRIABLE:
                self._refused(partition, answer.error_code)
                await self._init()
                batch = self._batch(partition, values)
            await self.backoff()
        self._sequences[partition] = self._sequences.get(partition, 0) + len(values)
        self.world.progress.setdefault(self.name, set()).add(partition)

    def _refused(self, partition: int, code: int) -> None:
        """Only a loss explains a sequence gap; if losses are allowed, the producer restarts."""
        what = f"{self.name} received {ErrorCode(code).name} in partition {partition}"
        if code not in LOSS_SHOWS:
            raise Violation(what)
        self.world.history.broken("lost-write", what)

    def _request(self, partition: int, batch: bytes | bytearray) -> ProduceRequest:
        data = PartitionProduceData(index=partition, records=batch)
        return ProduceRequest(
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self.world.topic, partition_data=[data])],
        )
