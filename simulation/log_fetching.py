"""Fetching of simulated consumers: fetch sessions (KIP-227), from a replica in their rack if there is one (KIP-392).

A `Fetcher` requests from one broker at a time all partitions that it would read there. A session is the client side of
the protocol: it sends changes, and restarts after every error and lost response. With read_committed the broker returns
the aborted transactions, and the client skips their records as all clients do: by producer id, from the first offset of
the transaction to its marker (KIP-98).
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


class WantedPosition(NamedTuple):
    """The fetch position of a partition."""

    offset: int
    leader_epoch: int


class FetchSession:
    """The client side of a session with one broker."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._sent: dict[int, WantedPosition] = {}

    def request(
        self, topic: str, topic_id: bytes, wanted: Mapping[int, WantedPosition], isolation_level: int
    ) -> FetchRequest:
        """The session request for `wanted`: changed and forgotten partitions."""
        gone = [partition for partition in self._sent if partition not in wanted] if self._epoch else []
        news = [
            FetchPartition(
                partition=partition,
                current_leader_epoch=each.leader_epoch,
                fetch_offset=each.offset,
                partition_max_bytes=MAX_BYTES,
            )
            for partition, each in wanted.items()
            if not self._epoch or self._sent.get(partition) != each
        ]
        self._sent = dict(wanted)
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
        """The partitions of a response; raises Violation for one that was not requested."""
        self._id = response.session_id
        self._epoch = self._epoch + 1 if self._id else 0
        answers = [each for topic in response.responses for each in topic.partitions]
        for each in answers:
            if each.partition_index not in self._sent:
                raise Violation(f"a Fetch response contains partition {each.partition_index}, which was not requested")
        return answers


class Fetcher(LogClient):
    """A reading client; subclasses define its partitions and positions."""

    def __init__(self, world: LogWorld, name: str, rng: SimRng, *, committed: bool = False) -> None:
        """`committed`: by read_committed."""
        super().__init__(world, name, rng)
        self.committed = committed
        self.polls = 0
        """Number of responses so far."""
        self._version = rng.choice(VERSIONS)
        self._rack = rng.choice(["", *world.racks])
        self._sessions: dict[int, FetchSession] = {}
        self._preferred: dict[int, int] = {}

    def positions_wanted(self) -> Mapping[int, int]:
        """The next offset of each partition to be read."""
        raise NotImplementedError

    def found(self, partition: int, offset: int, value: str) -> None:
        """A record was read, at the requested offset or after the previous record."""
        raise NotImplementedError

    def out_of_range(self, partition: int, offset: int) -> None:
        """The leader does not have that offset."""
        raise NotImplementedError

    def passed(self, partition: int, position: int) -> None:
        """All records below were returned; missing ones are not visible to this reader."""

    def end_fetched(self, partition: int, end: int) -> None:
        """End of the readable records: the high watermark, or the last stable offset."""

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
        sources: dict[int, dict[int, WantedPosition]] = {}
        for partition, offset in positions.items():
            node = self._source(partition)
            if node != NO_NODE:
                sources.setdefault(node, {})[partition] = WantedPosition(offset, self._leaders[partition][1])
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
        """After an error: fetch from the leaders, once they are known."""
        self._preferred.clear()
        await self.backoff()

    async def _fetch(self, node: int, wanted: dict[int, WantedPosition], wait_ms: int) -> None:
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
                raise Violation(f"{self.name}: Fetch returned {ErrorCode(response.error_code).name}")
            return
        self.polls += 1
        took = [self._took(each, wanted[each.partition_index], node) for each in session.answered(response)]
        if not all(took):
            del self._sessions[node]
            await self._again()

    def _took(self, answer: Any, wanted: WantedPosition, node: int) -> bool:
        """Process the response for a partition; False: refresh its leader."""
        partition, offset = answer.partition_index, wanted.offset
        if answer.preferred_read_replica >= 0:
            self._preferred[partition] = answer.preferred_read_replica
        if answer.error_code == ErrorCode.NONE:
            self.end_fetched(partition, answer.last_stable_offset if self.committed else answer.high_watermark)
            self._use(partition, offset, answer.records or b"", answer.aborted_transactions or ())
            return True
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Followers may lag behind. So may a replaced leader that does not know it; a client without a later epoch
            # accepts its response, as with Apache Kafka.
            if wanted.leader_epoch == self.world.leads(self._addresses[node], self.world.topic, partition):
                self.out_of_range(partition, offset)
        elif answer.error_code not in RETRIABLE_HERE:
            raise Violation(f"{self.name} received {ErrorCode(answer.error_code).name} at {partition}@{offset}")
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
    """The base offsets of batches that a read_committed reader skips."""
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
