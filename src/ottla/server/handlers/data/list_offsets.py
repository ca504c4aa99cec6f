"""ListOffsets (2): versions 0 to 11. Offsets by timestamp, or by one of the special timestamps.

Version notes: 0 answers several offsets (`replica.offsets.offsets_before`), 2 adds isolation, 4 leader epochs, 7 the
maximum timestamp (-3), 8 earliest local (-4), 9 latest tiered (-5), 10 a timeout, 11 earliest pending upload (-6).
Right after an election the latest offset may be unknown: LEADER_NOT_AVAILABLE below version 5, OFFSET_NOT_AVAILABLE
from then on (KIP-207).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.platform.clock import BlockingPool
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.replica.offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    MAX_TIMESTAMP,
    find_offset,
    offsets_before,
)
from ottla.server.handlers.data.context import DataContext
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division
from ottla.storage.files.off_loop import Known, WouldBlock, run_off_loop

CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
"""Requester that accepts the answer of any replica, such as Apache Kafka's ReplicaVerificationTool."""
FIRST_VERSION_WITH_ONE_OFFSET = 1

_FIRST_VERSION_OF = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


def handle(context: DataContext, request: Request, message: ListOffsetsRequest) -> ListOffsetsResponse | None:
    """Answer each partition separately and once; a repeated one is INVALID_REQUEST, as in Kafka."""
    context.check_partition_count(sum([len(topic.partitions) for topic in message.topics]))
    return Listing(context, request, message).proceed()


class Listing:
    """A request in progress, partition by partition. It parks while the pool reads or decompresses for one of them."""

    __slots__ = ("_context", "_known", "_message", "_request", "_times_asked", "_topics", "_waiting")

    def __init__(self, context: DataContext, request: Request, message: ListOffsetsRequest) -> None:
        self._context = context
        self._request = request
        self._message = message
        asked = [
            ((topic.name, partition.partition_index), partition)
            for topic in message.topics
            for partition in topic.partitions
        ]
        self._times_asked = Counter(key for key, _ in asked)
        self._waiting: list[tuple[tuple[str, int], ListOffsetsPartition]] = []
        """Unanswered partitions, the next one last."""
        named: set[tuple[str, int]] = set()
        for key, partition in asked:
            if key not in named:
                named.add(key)
                self._waiting.append((key, partition))
        self._waiting.reverse()
        self._known: Known = {}
        self._topics: dict[str, ListOffsetsTopicResponse] = {}

    def proceed(self) -> ListOffsetsResponse | None:
        """Continue until all partitions are answered, or return None if something has to be done off the loop."""
        while self._waiting:
            key, asked = self._waiting[-1]
            try:
                if self._times_asked[key] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                if self._known and self._request.dispatcher.stopped:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")
                answer = _find(self._context, self._request, self._message, key[0], asked, self._known)
            except WouldBlock as needed:
                self._context.in_flight.begin()
                run_off_loop([needed], self._known, self._pool_for(needed), self._resume)
                return None
            except KafkaError as error:
                answer = _failed(asked, error.code, self._request.api_version)
            self._known.clear()
            self._waiting.pop()
            self._topics.setdefault(key[0], ListOffsetsTopicResponse(name=key[0])).partitions.append(answer)
        return ListOffsetsResponse(topics=list(self._topics.values()))

    def _pool_for(self, needed: WouldBlock) -> BlockingPool:
        if not needed.computes:
            return self._context.pool
        return self._context.compute_pool.long if needed.long else self._context.compute_pool

    def _resume(self) -> None:
        """Continue after the pool job; the partition is looked up again, since it may have changed."""
        try:
            if self._request.channel.closed:
                return
            try:
                response = self.proceed()
            except Exception as error:
                self._request.answer(_raising(error))
                return
            if response is not None:
                self._request.answer_with(response)
        finally:
            self._context.in_flight.end()


def _raising(error: Exception) -> Callable[[], object]:
    def build() -> object:
        raise error

    return build


def _find(
    context: DataContext,
    request: Request,
    message: ListOffsetsRequest,
    topic: str,
    asked: ListOffsetsPartition,
    known: Known,
) -> ListOffsetsPartitionResponse:
    if asked.timestamp < 0 and request.api_version < _FIRST_VERSION_OF.get(asked.timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if asked.timestamp < EARLIEST_PENDING_UPLOAD_TIMESTAMP:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition = context.replicas.find(topic, asked.partition_index)
    partition.check_leader(asked.current_leader_epoch, or_follower=message.replica_id == DEBUGGING_REPLICA_ID)
    if request.api_version < FIRST_VERSION_WITH_ONE_OFFSET:
        offsets = offsets_before(
            partition,
            asked.timestamp,
            asked.max_num_offsets,
            context.clock.time_ms(),
            from_replica=message.replica_id != CONSUMER_REPLICA_ID,
        )
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, old_style_offsets=offsets)
    found = find_offset(
        partition,
        asked.timestamp,
        message.isolation_level,
        from_replica=message.replica_id != CONSUMER_REPLICA_ID,
        known=known,
    )
    response = ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        offset=found.offset,
        timestamp=found.timestamp,
        leader_epoch=found.leader_epoch,
    )
    if asked.key_search is not None:
        from ottla.server.handlers.data.key_ranges import key_ranges  # imported here: only `ottla search` asks

        response.key_search = key_ranges(request, topic, partition, asked.key_search, message.isolation_level, known)
    return response


def _failed(asked: ListOffsetsPartition, code: ErrorCode, api_version: int) -> ListOffsetsPartitionResponse:
    if code == ErrorCode.OFFSET_NOT_AVAILABLE and api_version < 5:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=code, offset=-1, timestamp=-1, leader_epoch=-1
    )


def error_response(message: ListOffsetsRequest, code: ErrorCode, text: str) -> ListOffsetsResponse:
    """The error for every partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[_failed(partition, code, 5) for partition in topic.partitions]
            )
            for topic in message.topics
        ]
    )


def guard(context: DataContext, request: Request, message: ListOffsetsRequest) -> object | None:
    """DESCRIBE on a topic permits listing its offsets."""
    return guard_items(
        request,
        message,
        Items("topics", "topics", error_response),
        lambda topic: request.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name),
    )


LIST_OFFSETS = SchemaApi(
    ApiKey.LIST_OFFSETS,
    handle,
    error_response,
    guard=guard,
    item_needs=(RequiredPermission(AclOperation.DESCRIBE, ResourceType.TOPIC),),
).divided(Division(("topics",), "topics", lambda topic: topic.name, items=256))
