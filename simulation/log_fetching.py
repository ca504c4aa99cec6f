"""How simulated consumers read: by fetch sessions (KIP-227), from a replica in their rack where there is one (KIP-392).

A `Fetcher` asks one broker at a time for all partitions that it wants and would read there. A session is the client's
half of the protocol: it sends what changed, and begins anew after every error and lost answer. By read_committed the
broker says which transactions were aborted, and the client leaves their records out, as all clients do: by producer id,
from the offset at which the transaction began to its marker (KIP-98).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.common.errors import ErrorCode
from ottla.common.platform.disk import Buffer
from ottla.protocol.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.registry import ApiKey
from ottla.record.batch import BatchView, iter_batches
from ottla.record.control import ControlRecordType, control_record_type
from simulation.checkers import Violation
from simulation.client import RequestLost
from simulation.log_clients import RETRIABLE, LogClient, LogWorld
from simulation.rng import SimRng

VERSIONS = (12, 13, 17)
"""Topics by name, by id, and with the endpoints of new leaders."""
MAX_BYTES = 1 << 20
NO_NODE = -1
RETRIABLE_HERE = RETRIABLE | {ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_ID}
SESSION_ERRORS = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})


class Wanted(NamedTuple):
    """Where to read a partition on."""

    offset: int
    leader_epoch: int


class FetchSession:
    """The client's half of a session with one broker."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._told: dict[int, Wanted] = {}

    def request(self, topic: str, topic_id: bytes, wanted: Mapping[int, Wanted], isolation_level: int) -> FetchRequest:
        """What the broker has to be told so that it reads `wanted`."""
        gone = [partition for partition in self._told if partition not in wanted] if self._epoch else []
        news = [
            FetchPartition(
                partition=partition,
                current_leader_epoch=each.leader_epoch,
                fetch_offset=each.offset,
                partition_max_bytes=MAX_BYTES,
            )
            for partition, each in wanted.items()
            if not self._epoch or self._told.get(partition) != each
        ]
        self._told = dict(wanted)
        return FetchRequest(
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=isolation_level,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=news)] if news else [],
            forgotten_topics_data=[ForgottenTopic(topic=topic, topic_id=topic_id, partitions=gone)] if gone else [],
        )

    def answered(self, response: Any) -> list[Any]:
        """The partitions of an answer; raises Violation for one that was not asked for."""
        self._id = response.session_id
        self._epoch = self._epoch + 1 if self._id else 0
        answers = [each for topic in response.responses for each in topic.partitions]
        for each in answers:
            if each.partition_index not in self._told:
                raise Violation(f"a fetch was answered for partition {each.partition_index}, which was not asked for")
        return answers


class Fetcher(LogClient):
    """A client that reads; what and from where on, its subclasses say."""

    def __init__(self, world: LogWorld, name: str, rng: SimRng, *, committed: bool = False) -> None:
        """`committed`: by read_committed."""
        super().__init__(world, name, rng)
        self.committed = committed
        self.polls = 0
        """Answers so far."""
        self._version = rng.choice(VERSIONS)
        self._rack = rng.choice(["", *world.racks])
        self._sessions: dict[int, FetchSession] = {}
        self._preferred: dict[int, int] = {}

    def positions_wanted(self) -> Mapping[int, int]:
        """The next offset of each partition to be read."""
        raise NotImplementedError

    def found(self, partition: int, offset: int, value: str) -> None:
        """A record was read, at the offset wanted or behind the record before."""
        raise NotImplementedError

    def out_of_range(self, partition: int, offset: int) -> None:
        """The leader has nothing there."""
        raise NotImplementedError

    def passed(self, partition: int, position: int) -> None:
        """All below came; where nothing did, it is not for this reader."""

    def told_end(self, partition: int, end: int) -> None:
        """Up to where there is something to be read: the high watermark, or the last stable offset."""

    async def poll(self, wait_ms: int) -> None:
        """One fetch from one broker. Raises RequestLost."""
        positions = self.positions_wanted()
        if not positions:
            return
        if any(
            partition not in self._leaders or self._preferred.get(partition, NO_NODE) not in (NO_NODE, *self._addresses)
            for partition in positions
        ):
            await self._refresh()
        sources: dict[int, dict[int, Wanted]] = {}
        for partition, offset in positions.items():
            node = self._source(partition)
            if node != NO_NODE:
                sources.setdefault(node, {})[partition] = Wanted(offset, self._leaders[partition][1])
        if not sources:
            await self._again()
            return
        node = self.rng.choice(sorted(sources))
        await self._fetch(node, sources[node], wait_ms)

    def _source(self, partition: int) -> int:
        """The broker to read a partition from; -1 while it has no leader."""
        leader, _ = self._leaders.get(partition, (NO_NODE, NO_NODE))
        if leader not in self._addresses:
            return NO_NODE
        preferred = self._preferred.get(partition, leader)
        return preferred if preferred in self._addresses else leader

    async def _again(self) -> None:
        """After an error: from the leaders, once it is known who they are."""
        self._preferred.clear()
        await self.backoff()

    async def _fetch(self, node: int, wanted: dict[int, Wanted], wait_ms: int) -> None:
        session = self._sessions.setdefault(node, FetchSession())
        request = session.request(self.world.topic, self.world.topic_id, wanted, int(self.committed))
        request.max_wait_ms = wait_ms
        request.rack_id = self._rack
        try:
            response = await self.client(self._addresses[node]).request(ApiKey.FETCH, self._version, request)
        except RequestLost:
            del self._sessions[node]
            self._preferred.clear()
            raise
        self.world.operations += 1
        if response.error_code:
            del self._sessions[node]
            if response.error_code not in SESSION_ERRORS:
                raise Violation(f"{self.name}: Fetch was answered {ErrorCode(response.error_code).name}")
            return
        self.polls += 1
        took = [self._took(each, wanted[each.partition_index], node) for each in session.answered(response)]
        if not all(took):
            del self._sessions[node]
            await self._again()

    def _took(self, answer: Any, wanted: Wanted, node: int) -> bool:
        """Use what came for a partition; False: look again who has it."""
        partition, offset = answer.partition_index, wanted.offset
        if answer.preferred_read_replica >= 0:
            self._preferred[partition] = answer.preferred_read_replica
        if answer.error_code == ErrorCode.NONE:
            self.told_end(partition, answer.last_stable_offset if self.committed else answer.high_watermark)
            self._use(partition, offset, answer.records or b"", answer.aborted_transactions or ())
            return True
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Followers may not have got so far; nor may a leader that was replaced and does not know it, which a client
            # that heard of no later epoch believes, as with Apache Kafka.
            if wanted.leader_epoch == self.world.leads(self._addresses[node], self.world.topic, partition):
                self.out_of_range(partition, offset)
        elif answer.error_code not in RETRIABLE_HERE:
            raise Violation(f"{self.name} was answered {ErrorCode(answer.error_code).name} at {partition}@{offset}")
        return False

    def _use(
        self, partition: int, offset: int, records: Buffer, aborted_transactions: Sequence[AbortedTransaction]
    ) -> None:
        position = offset
        aborted = _aborted(records, aborted_transactions) if self.committed else frozenset()
        for batch in iter_batches(records):
            position = batch.next_offset
            if batch.is_control or batch.base_offset in aborted:
                continue
            for record in batch.records():
                if record.offset >= offset:
                    self.found(partition, record.offset, (record.value or b"").decode())
        if position > offset:
            self.passed(partition, position)


def _aborted(records: Buffer, transactions: Sequence[AbortedTransaction]) -> frozenset[int]:
    """The base offsets of batches that a reader by read_committed leaves out."""
    return frozenset(_aborted_batches(iter_batches(records), transactions))


def _aborted_batches(batches: Iterator[BatchView], transactions: Sequence[AbortedTransaction]) -> Iterator[int]:
    waiting = deque(sorted(transactions, key=lambda each: each.first_offset))
    under_way: set[int] = set()
    for batch in batches:
        while waiting and waiting[0].first_offset <= batch.last_offset:
            under_way.add(waiting.popleft().producer_id)
        if not batch.is_control:
            if batch.is_transactional and batch.producer_id in under_way:
                yield batch.base_offset
        elif _is_abort_marker(batch):
            under_way.discard(batch.producer_id)


def _is_abort_marker(batch: BatchView) -> bool:
    return control_record_type(next(iter(batch.records()))) is ControlRecordType.ABORT
