"""Producers and consumers of a simulated cluster: they find leaders, retry, and tell the history what they were told.

As a good client would: idempotent producers with acks=all and one batch under way for a partition, whose retries carry
the same sequence number; consumers that go on where they were, whoever leads. What the protocol lets them do on an
error is in the tables below; any other error is a finding.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.batch import iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.sim.checkers import Violation
from ottla.sim.client import Client, RequestLost
from ottla.sim.history import LogHistory
from ottla.sim.loop import SimLoop
from ottla.sim.network import Address, Network
from ottla.sim.rng import SimRng

PRODUCE_VERSION = 9
FETCH_VERSION = 12
METADATA_VERSION = 12
LIST_OFFSETS_VERSION = 6
INIT_PRODUCER_ID_VERSION = 4
LATEST = -1

BACKOFF_S = (0.05, 0.4)
PAUSE_S = (0.0, 0.6)
PRODUCE_TIMEOUT_MS = 3_000
FETCH_WAIT_MS = 500
FETCH_BYTES = 1 << 20
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
FETCH_RETRIABLE = RETRIABLE | {ErrorCode.OFFSET_NOT_AVAILABLE}


@dataclass
class LogWorld:
    """What all clients of one topic share."""

    loop: SimLoop
    network: Network
    bootstrap: list[Address]
    topic: str
    partitions: int
    history: LogHistory
    time_ms: Callable[[], int]
    operations: int = 0
    """Requests of producers and consumers that were answered."""
    stopping: bool = False
    progress: dict[str, set[int]] = field(default_factory=dict)
    """Partitions in which each producer was acknowledged since the last `clear`."""


class LogClient:
    """Routing that producers and consumers have in common: one connection a broker, metadata when it is needed."""

    def __init__(self, world: LogWorld, name: str, rng: SimRng) -> None:
        self.world = world
        self.name = name
        self.rng = rng
        self._clients: dict[Address, Client] = {}
        self._addresses: dict[int, Address] = {}
        self._leaders: dict[int, tuple[int, int]] = {}
        """For each partition its leader and leader epoch, as Metadata told."""

    async def backoff(self) -> None:
        """A moment before the next try, which asks for metadata first."""
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
        """Ask one of the brokers that were given at the start. Raises RequestLost."""
        return await self.client(self.rng.choice(self.world.bootstrap)).request(key, version, message)

    async def leader(self, partition: int) -> tuple[Client, int]:
        """The connection to the leader, and its epoch; asks until there is one."""
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
                if partition.leader_id >= 0:
                    self._leaders[partition.partition_index] = (partition.leader_id, partition.leader_epoch)


class Producer(LogClient):
    """An idempotent producer."""

    def __init__(self, world: LogWorld, name: str, rng: SimRng) -> None:
        super().__init__(world, name, rng)
        self._numbers = 0
        self._producer_id = self._producer_epoch = -1
        self._sequences: dict[int, int] = {}

    async def run(self) -> None:
        """Batch after batch, each until it is acknowledged, until the world stops."""
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
        """A producer id, with which sequences begin anew."""
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
                raise Violation(f"InitProducerId was answered {ErrorCode(response.error_code).name}")
            await self.backoff()

    def _batch(self, partition: int, values: list[str]) -> bytearray:
        now_ms = self.world.time_ms()
        return build_batch(
            [RecordData(now_ms, None, value.encode()) for value in values],
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
            if answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:  # so old that the broker has forgotten where
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
        """Nothing but a loss explains a gap in the sequence; where losses are allowed, the producer begins anew."""
        what = f"{self.name} was answered {ErrorCode(code).name} in partition {partition}"
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


class Consumer(LogClient):
    """Reads all partitions from the beginning, each from its leader, and asks now and then where they end."""

    def __init__(self, world: LogWorld, name: str, rng: SimRng) -> None:
        super().__init__(world, name, rng)
        self.positions = dict.fromkeys(range(world.partitions), 0)

    async def run(self) -> None:
        """Partition after partition, until the world stops."""
        while not self.world.stopping:
            await asyncio.sleep(self.rng.uniform(*PAUSE_S))
            partition = self.rng.randrange(self.world.partitions)
            try:
                if self.rng.chance(0.2):
                    await self._ask_for_the_end(partition)
                else:
                    await self.read(partition)
            except RequestLost:
                await self.backoff()
        self.close()

    async def read(self, partition: int, wait_ms: int = FETCH_WAIT_MS) -> int | None:
        """One fetch; the high watermark, None when the answer was an error. Raises RequestLost."""
        client, leader_epoch = await self.leader(partition)
        position = self.positions[partition]
        wanted = FetchPartition(
            partition=partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=position,
            partition_max_bytes=FETCH_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[FetchTopic(topic=self.world.topic, partitions=[wanted])],
        )
        response = await client.request(ApiKey.FETCH, FETCH_VERSION, request)
        self.world.operations += 1
        answer = response.responses[0].partitions[0]
        if answer.error_code != ErrorCode.NONE:
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.world.history.broken("lost-read", f"{self.name} finds nothing at {partition}@{position} any more")
                self.positions[partition] = 0
            elif answer.error_code not in FETCH_RETRIABLE:
                raise Violation(
                    f"{self.name} was answered {ErrorCode(answer.error_code).name} at {partition}@{position}"
                )
            await self.backoff()
            return None
        for batch in iter_batches(answer.records or b""):
            for record in batch.records():
                if record.offset >= position:
                    self.found(partition, record.offset, (record.value or b"").decode())
                    self.positions[partition] = record.offset + 1
        high_watermark: int = answer.high_watermark
        return high_watermark

    def found(self, partition: int, offset: int, value: str) -> None:
        """A record was read."""
        self.world.history.served(self.name, partition, offset, value)

    async def _ask_for_the_end(self, partition: int) -> None:
        client, leader_epoch = await self.leader(partition)
        served_before = self.world.history.served_end(partition)
        wanted = ListOffsetsPartition(partition_index=partition, current_leader_epoch=leader_epoch, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=self.world.topic, partitions=[wanted])]
        )
        response = await client.request(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request)
        self.world.operations += 1
        answer = response.topics[0].partitions[0]
        if answer.error_code == ErrorCode.NONE:
            self.world.history.told_latest(self.name, partition, answer.offset, served_before)
        elif answer.error_code in FETCH_RETRIABLE:
            await self.backoff()
        else:
            raise Violation(f"ListOffsets of {partition} was answered {ErrorCode(answer.error_code).name}")


class Reader(Consumer):
    """Reads what there is at the end of a run."""

    def __init__(self, world: LogWorld, rng: SimRng) -> None:
        super().__init__(world, "reader", rng)
        self.contents: dict[int, dict[int, str]] = {partition: {} for partition in range(world.partitions)}
        """For each partition the value at each offset."""

    def found(self, partition: int, offset: int, value: str) -> None:
        """A record was read."""
        self.contents[partition][offset] = value

    async def run(self) -> None:
        """Each partition up to its high watermark."""
        for partition in range(self.world.partitions):
            while True:
                try:
                    high_watermark = await self.read(partition, 0)
                except RequestLost:
                    await self.backoff()
                    continue
                if high_watermark is not None and self.positions[partition] >= high_watermark:
                    break
        self.close()
