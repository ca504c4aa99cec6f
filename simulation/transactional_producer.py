"""A transactional producer of a simulated cluster, which reports responses to the history.

It supports both versions of transactions, chosen when each transaction begins. In the first it adds partitions to the
transaction and ends it by EndTxn below 5, and takes a new epoch after an abort with an unknown outcome (KIP-360). In
the second the broker adds them, and each end returns the epoch of the next transaction (KIP-890). The tables below
contain the errors that the protocol expects clients to handle; any other error is a finding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.record.builder import RecordData, build_batch
from simulation.checkers import Violation
from simulation.client import Client, Proxy, RequestLost
from simulation.group_clients import CoordinatorClient, codes_of
from simulation.history import Transactions
from simulation.log_clients import BACKOFF_S, PRODUCE_RETRIABLE, PRODUCE_TIMEOUT_MS, RETRIABLE, LogClient, LogWorld
from simulation.members import OUT
from simulation.network import Address
from simulation.rng import SimRng
from simulation.trace import Trace

FEATURE = "transaction.version"
FIRST_WITH_IMPLICIT_ADD = 2
"""The level of the feature from which on clients use the second version."""
API_VERSIONS_VERSION = 4
INIT_VERSIONS = (3, 4, 5)
ADD_VERSION, ADD_OFFSETS_VERSION = 3, 3
PRODUCE_VERSIONS = ((9, 10, 11), (12, 13))
"""Versions of the requests in the first and the second version of transactions; likewise the next ones."""
END_VERSIONS = ((3, 4), (5,))
OFFSET_VERSIONS = ((3, 4), (5, 6))
GIVE_UP_CHANCE = 0.2

AGAIN = RETRIABLE | {ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS}
UNTOUCHED = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS})
"""Errors after which the request can have had no effect."""
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
ABORTABLE = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE})
OVERTAKEN = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})
"""A repeated batch is being verified, and those after it wait for it without effect."""


class FencedProcess(Exception):
    """Another process took the transactional id over, or the coordinator ended the transaction: this process is
    fenced."""


class Abortable(Exception):
    """The transaction has to be aborted."""


@dataclass
class TransactionWorld:
    """The shared state of all transactional clients."""

    trace: Trace
    transactions: Transactions
    coordinator: Callable[[str, SimRng, str], CoordinatorClient]
    """A connection to the coordinator of a transactional id, by the client's name."""
    group_coordinator: Callable[[str, SimRng], CoordinatorClient]
    timeout_ms: int
    proxy: Proxy
    faults: asyncio.Event
    """Set while clients misbehave."""
    committed: dict[str, int] = field(default_factory=dict)
    """Transactions of each transactional id since the last `clear`."""


class _Router(LogClient):
    """Routing to the leaders of one topic."""

    def __init__(self, world: LogWorld, name: str, rng: SimRng, proxy: Proxy) -> None:
        super().__init__(world, name, rng)
        self._proxy = proxy

    def client(self, address: Address) -> Client:
        """See `LogClient`."""
        client = super().client(address)
        client.proxy = self._proxy
        return client

    def die(self) -> None:
        """The process ends; sent requests may still arrive."""
        for client in self._clients.values():
            client.die()


class TransactionalProducer:
    """One process: starts with `init`, ends when it is closed or fenced."""

    def __init__(
        self,
        world: TransactionWorld,
        logs: Iterable[LogWorld],
        transactional_id: str,
        name: str,
        rng: SimRng,
        *,
        modern: bool,
    ) -> None:
        """Writes to `logs`; a producer that is not `modern` only knows the first version."""
        self.world = world
        self.name = name
        self.rng = rng
        self._transactional_id = transactional_id
        self._modern = modern
        self._coordinator = world.coordinator(name, rng, transactional_id)
        self._coordinator.proxy = world.proxy
        self._group_coordinator = world.group_coordinator(name, rng)
        self._group_coordinator.proxy = world.proxy
        self._routers = {log.topic: _Router(log, name, rng.fork(log.topic), world.proxy) for log in logs}
        self._producer_id = self._producer_epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        self._second = False
        """Whether this transaction uses the second version."""
        self._count = 0
        self._transaction = ""
        self._added: set[tuple[str, int]] = set()
        self._started = False
        """Whether the coordinator may know this transaction."""
        self._in_doubt = False
        """Whether a request of this transaction may still arrive."""

    def close(self, *, died: bool) -> None:
        """The process ends."""
        clients: list[Client | _Router] = [self._coordinator, self._group_coordinator, *self._routers.values()]
        for client in clients:
            if died:
                client.die()
            else:
                client.close()

    # -- phases of a transaction

    async def init(self) -> None:
        """Take over the transactional id. Raises Fenced."""
        await self._init(-1, -1)

    async def _init(self, producer_id: int, producer_epoch: int) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self.world.timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        response = await self._ask(self._coordinator, ApiKey.INIT_PRODUCER_ID, self.rng.choice(INIT_VERSIONS), request)
        self._take(response)

    def _take(self, response: Any) -> None:
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()
        self.world.trace.note(self.name, f"is producer {self._producer_id} in epoch {self._producer_epoch}")

    async def begin(self) -> None:
        """Begin the next transaction. Raises Fenced."""
        second = self._modern and await self._level() >= FIRST_WITH_IMPLICIT_ADD
        if second and not self._second and self._count:
            # Markers of the last transaction may be in flight, and its partitions then have this epoch: like Java's
            # client, use another one (KAFKA-18227).
            await self._init(self._producer_id, self._producer_epoch)
        self._second = second
        self._count += 1
        self._transaction = f"{self.name}#{self._count}"
        self._added.clear()
        self._started = self._in_doubt = False
        self.world.transactions.began(self._transaction)

    async def _level(self) -> int:
        """The level of the feature, as known by some broker."""
        router = next(iter(self._routers.values()))
        request = ApiVersionsRequest(client_software_name="sim", client_software_version="1")
        while True:
            try:
                response = await router.ask_any(ApiKey.API_VERSIONS, API_VERSIONS_VERSION, request)
            except RequestLost:
                await router.backoff()
                continue
            return next((each.max_version_level for each in response.finalized_features if each.name == FEATURE), 0)

    async def send(self, topic: str, partition: int, values: list[str]) -> None:
        """Send one batch, until it is acknowledged. Raises Fenced and Abortable."""
        router = self._routers[topic]
        await self._add(topic, partition)
        self._started = True
        for value in values:
            router.world.history.sent(partition, value, self._transaction)
        now_ms = router.world.time_ms()
        place = (topic, partition)
        batch = build_batch(
            [RecordData(now_ms, None, value.encode()) for value in values],
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._sequences.get(place, 0),
            is_transactional=True,
        )
        request = self._produce_request(router.world, partition, batch)
        version = self.rng.choice(PRODUCE_VERSIONS[self._second])
        while True:
            client, _ = await router.leader(partition)
            try:
                response = await client.request(ApiKey.PRODUCE, version, request)
            except RequestLost:
                self._in_doubt = True
                if self.world.faults.is_set() and self.rng.chance(GIVE_UP_CHANCE):
                    raise Abortable from None
                await router.backoff()
                continue
            router.world.operations += 1
            answer = response.responses[0].partition_responses[0]
            if answer.error_code == ErrorCode.NONE:
                router.world.history.acknowledged(self.name, partition, answer.base_offset, values)
                break
            # so old that the broker no longer knows the offset
            if answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                for value in values:
                    router.world.history.acknowledged_somewhere(partition, value)
                break
            self._in_doubt = True
            self.world.trace.note(
                self.name, f"{topic}-{partition}: Produce returned {ErrorCode(answer.error_code).name}"
            )
            if answer.error_code not in PRODUCE_RETRIABLE | AGAIN:
                if answer.error_code in OVERTAKEN:
                    raise Abortable
                self._refuse(f"Produce of {topic}-{partition}", answer.error_code)
            await router.backoff()
        self._sequences[place] = self._sequences.get(place, 0) + len(values)

    def _produce_request(self, log: LogWorld, partition: int, batch: bytearray) -> ProduceRequest:
        data = PartitionProduceData(index=partition, records=batch)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=log.topic, topic_id=log.topic_id, partition_data=[data])],
        )

    async def _add(self, topic: str, partition: int) -> None:
        """First version: announce the partitions that it will write to."""
        if self._second or (topic, partition) in self._added:
            return
        self._started = True
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        await self._ask(self._coordinator, ApiKey.ADD_PARTITIONS_TO_TXN, ADD_VERSION, request)
        self._added.add((topic, partition))

    async def send_offsets(
        self, group: str, member: tuple[str, int], instance_id: str | None, log: LogWorld, offsets: Mapping[int, int]
    ) -> None:
        """Commit the offsets that `member` (its id, and generation or epoch) has read. Raises Fenced and Abortable."""
        if not self._second:
            self._started = True
            add = AddOffsetsToTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                group_id=group,
            )
            await self._ask(self._coordinator, ApiKey.ADD_OFFSETS_TO_TXN, ADD_OFFSETS_VERSION, add)
        self._started = True
        partitions = [
            TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
            for partition, offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            generation_id_or_member_epoch=member[1],
            member_id=member[0],
            group_instance_id=instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=log.topic, topic_id=log.topic_id, partitions=partitions)],
        )
        version = self.rng.choice(OFFSET_VERSIONS[self._second])
        await self._ask(self._group_coordinator, ApiKey.TXN_OFFSET_COMMIT, version, request)

    async def abort(self) -> None:
        """End the transaction without its effects. Raises Fenced."""
        if self._started:
            await self._end(committed=False)
        else:
            self.world.transactions.aborted(self._transaction)
        if self._in_doubt and not self._second:
            await self._init(self._producer_id, self._producer_epoch)

    async def commit(self) -> None:
        """End the transaction. Raises Fenced, and then the outcome is unknown."""
        self.world.transactions.asked(self._transaction)
        await self._end(committed=True)
        self.world.committed[self._transactional_id] = self.world.committed.get(self._transactional_id, 0) + 1

    async def _end(self, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            committed=committed,
        )
        transactions, name = self.world.transactions, self._transaction
        unknown = False
        version = self.rng.choice(END_VERSIONS[self._second])
        while True:
            try:
                response = await self._coordinator.request(ApiKey.END_TXN, version, request)
            except RequestLost:
                unknown = True
                await self._back_off()
                continue
            code = response.error_code
            self.world.trace.note(self.name, f"ends {name}, committed {committed}: {ErrorCode(code).name}")
            if code == ErrorCode.NONE:
                (transactions.committed if committed else transactions.aborted)(name)
                if self._second:
                    self._take(response)
                return
            if code in AGAIN:
                unknown = unknown or code not in UNTOUCHED
                await self._back_off()
                continue
            if not unknown or not committed:
                transactions.aborted(name)
            # A replaced coordinator that does not know it rejects by its old state.
            explained = unknown or not committed or not self._coordinator.genuine
            if code not in FENCED and not (code in ABORTABLE and explained):
                raise self._unexpected(f"EndTxn, committed {committed},", code)
            raise FencedProcess

    # -- responses

    async def _ask(self, client: CoordinatorClient, key: ApiKey, version: int, message: object) -> Any:
        """Retry until there is a response without an error. Raises Fenced and Abortable."""
        while True:
            try:
                response = await client.request(key, version, message)
            except RequestLost:
                await self._back_off()
                continue
            code = next(filter(None, codes_of(response)), ErrorCode.NONE)
            if code == ErrorCode.NONE:
                return response
            self.world.trace.note(self.name, f"{key.name} returned {ErrorCode(code).name}")
            if code not in AGAIN:
                self._refuse(key.name, code)
            await self._back_off()

    def _refuse(self, what: str, code: int) -> None:
        if code in FENCED:
            raise FencedProcess
        if code in ABORTABLE | OUT:
            raise Abortable
        raise self._unexpected(what, code)

    def _unexpected(self, what: str, code: int) -> Violation:
        return Violation(f"{self.name}: {what} returned {ErrorCode(code).name}")

    async def _back_off(self) -> None:
        await asyncio.sleep(self.rng.uniform(*BACKOFF_S))
