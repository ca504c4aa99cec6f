"""DeleteRecords (21): versions 0 to 2. Advances the log start offset; -1 means to the high watermark (KIP-107).

The response waits, up to the request's timeout, until all live replicas have advanced theirs: otherwise a leader
elected from them would bring the records back.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.kafka.internal_topics import INTERNAL_TOPICS
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.protocol.registry import ApiKey
from ottla.replica.partition import Partition
from ottla.replica.purgatory import DelayedOperation
from ottla.server.handlers.data.context import DataContext
from ottla.server.requests.api import SchemaApi, partition_errors
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division

NO_WATERMARK = -1

Waiting = list[tuple[Partition, DeleteRecordsPartitionResult]]
"""Partitions whose followers have yet to advance their log start offset to the low watermark of the result."""


def handle(
    context: DataContext, request: Request, message: DeleteRecordsRequest
) -> Generator[None, None, DeleteRecordsResponse | None]:
    """Answer each partition separately; the last entry of a repeated partition counts. Internal topics are refused.

    Returns None once the request waits for followers.
    """
    context.check_partition_count(sum([len(topic.partitions) for topic in message.topics]))
    asked_offsets: dict[str, dict[int, int]] = {}
    for topic in message.topics:
        for asked in topic.partitions:
            asked_offsets.setdefault(topic.name, {})[asked.partition_index] = asked.offset
        yield
    topics = []
    waiting: Waiting = []
    for name, offsets in asked_offsets.items():
        answers = []
        for index, offset in offsets.items():
            answer = DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_WATERMARK)
            answers.append(answer)
            try:
                if name in INTERNAL_TOPICS:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                partition = context.replicas.find(name, index)
                answer.low_watermark = partition.delete_records(offset)
                if partition.low_watermark < answer.low_watermark:
                    waiting.append((partition, answer))
            except KafkaError as error:
                answer.error_code = error.code
            yield
        topics.append(DeleteRecordsTopicResult(name=name, partitions=answers))
    response = DeleteRecordsResponse(topics=topics)
    if not waiting:
        return response
    operation = DelayedDeleteRecords(request, response, waiting)
    watches = {partition.produce_watch: None for partition, _ in waiting}
    context.purgatory.park(operation, watches, max(0, message.timeout_ms) / 1000)
    request.dispatcher.parked(request, operation)
    return None


class DelayedDeleteRecords(DelayedOperation):
    """A deletion that followers have not applied yet."""

    __slots__ = ("_request", "_response", "_waiting")

    def __init__(self, request: Request, response: DeleteRecordsResponse, waiting: Waiting) -> None:
        super().__init__()
        self._request = request
        self._response = response
        self._waiting = waiting

    def try_complete(self, force: bool) -> bool:
        """Answer once every partition's replicas have applied it, or can't any more."""
        still: Waiting = []
        for partition, answer in self._waiting:
            if not partition.is_leader:
                _fail_one(answer, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif partition.low_watermark < answer.low_watermark:
                still.append((partition, answer))
        self._waiting = still
        if still:
            return False
        self._request.answer_with(self._response)
        return True

    def expire(self) -> None:
        """The request timed out; the records deleted here stay deleted."""
        if not self.try_complete(False):
            for _, answer in self._waiting:
                _fail_one(answer, ErrorCode.REQUEST_TIMED_OUT)
            self._request.answer_with(self._response)

    def fail(self, error: Exception) -> None:
        """A defect: close the connection, since no response is possible."""
        self._request.channel.close("DeleteRecords failed: internal error")


def _fail_one(answer: DeleteRecordsPartitionResult, code: ErrorCode) -> None:
    answer.low_watermark, answer.error_code = NO_WATERMARK, code


error_response = partition_errors(
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    partial(DeleteRecordsPartitionResult, low_watermark=NO_WATERMARK),
)


def guard(context: DataContext, request: Request, message: DeleteRecordsRequest) -> object | None:
    """DELETE on a topic permits deleting its records."""
    return guard_items(
        request,
        message,
        Items("topics", "topics", error_response),
        lambda topic: request.allowed(AclOperation.DELETE, ResourceType.TOPIC, topic.name),
    )


DELETE_RECORDS = SchemaApi(
    ApiKey.DELETE_RECORDS,
    handle,
    error_response,
    guard=guard,
    item_needs=(RequiredPermission(AclOperation.DELETE, ResourceType.TOPIC),),
).divided(Division(("topics",), "topics", lambda topic: topic.name, items=256))
