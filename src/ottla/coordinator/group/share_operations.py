"""Operations of share groups for request handlers, on the shards of the group coordinator (KIP-932).

Each method calls `done` exactly once, and returns with the response the requests to the share coordinator that result
from it. The names of the operations are Apache Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.modern.share.describe import ShareDescriptionSteps
from ottla.coordinator.group.modern.share.offsets import InitializedTopic
from ottla.coordinator.group.modern.share.work import (
    DeletedState,
    InitializedState,
    OffsetAlteration,
    OffsetDeletion,
    ShareHeartbeat,
    StateDeletion,
)
from ottla.coordinator.group.operations import MAX_STORED_STRING_BYTES, any_group, named_group
from ottla.coordinator.group.response_collector import ResponseCollector
from ottla.coordinator.group.responses import error_code
from ottla.coordinator.group.shard import GroupCoordinatorShard
from ottla.coordinator.runtime import CoordinatorOperation, CoordinatorRuntime
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

T = TypeVar("T")


def _group_of_heartbeat(request: ShareGroupHeartbeatRequest) -> str:
    if not request.group_id.strip():
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    if len(request.group_id.encode()) > MAX_STORED_STRING_BYTES:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    return request.group_id


HEARTBEAT: CoordinatorOperation[RequestContext, ShareGroupHeartbeatRequest, ShareHeartbeat] = CoordinatorOperation(
    "share-group-heartbeat",
    key=_group_of_heartbeat,
    run=lambda context, request, shard: shard.share.heartbeat(context, request),
    refused=lambda context, request, error: ShareHeartbeat(
        ShareGroupHeartbeatResponse(error_code=error_code(error), error_message=error.message or None)
    ),
)

DESCRIBE: CoordinatorOperation[RequestContext, str, ShareDescriptionSteps] = CoordinatorOperation(
    "share-group-describe",
    key=named_group,
    run=lambda context, group_id, shard, committed: shard.share.description(group_id, committed),
    refused=lambda context, group_id, error: ShareDescriptionSteps(
        DescribedGroup(group_id=group_id, error_code=error_code(error), error_message=error.message or None)
    ),
    reads=True,
)

ALTER: CoordinatorOperation[RequestContext, AlterShareGroupOffsetsRequest, OffsetAlteration] = CoordinatorOperation(
    "share-group-offsets-alter",
    key=lambda request: named_group(request.group_id),
    run=lambda context, request, shard: shard.share_states.alter(request),
    refused=lambda context, request, error: OffsetAlteration(
        AlterShareGroupOffsetsResponse(error_code=error_code(error), error_message=error.message or None)
    ),
)

DELETE: CoordinatorOperation[RequestContext, DeleteShareGroupOffsetsRequest, OffsetDeletion] = CoordinatorOperation(
    "initiate-delete-share-group-offsets",
    key=lambda request: named_group(request.group_id),
    run=lambda context, request, shard: shard.share_states.delete(request),
    refused=lambda context, request, error: OffsetDeletion(
        DeleteShareGroupOffsetsResponse(error_code=error_code(error), error_message=error.message or None)
    ),
)


def _unused(context: object, request: object, error: KafkaError) -> None:
    """Operations that report results and errors apart use `submit`, which does not call this."""


OFFSETS: CoordinatorOperation[RequestContext | None, str, None] = CoordinatorOperation(
    "describe-share-group-offsets",
    key=named_group,
    run=lambda context, group_id, shard, committed: shard.share_states.initialized_topics(group_id, committed),
    refused=_unused,
    reads=True,
)

DELETE_ALL: CoordinatorOperation[RequestContext | None, str, None] = CoordinatorOperation(
    "delete-share-groups",
    key=any_group,
    run=lambda context, group_id, shard: shard.share_states.delete_all(group_id),
    refused=_unused,
)

INITIALIZED: CoordinatorOperation[RequestContext | None, InitializedState, None] = CoordinatorOperation(
    "initialize-share-group-state",
    key=lambda outcome: outcome.group_id,
    run=lambda context, outcome, shard: shard.share_states.initialized(outcome),
    refused=_unused,
)

DELETED: CoordinatorOperation[RequestContext | None, DeletedState, None] = CoordinatorOperation(
    "complete-delete-share-group-offsets",
    key=lambda outcome: outcome.group_id,
    run=lambda context, outcome, shard: shard.share_states.deleted(outcome),
    refused=_unused,
)

TOPICS_DELETED = "share-group-topics-deleted"
"""Writes to all shards."""

Done = Callable[[T | None, KafkaError | None], None]
"""Takes the result or the error of an operation."""


class ShareGroupOperations:
    """Share groups of all `__consumer_offsets` partitions that this broker leads."""

    __slots__ = ("_runtime",)

    def __init__(self, runtime: CoordinatorRuntime[GroupCoordinatorShard]) -> None:
        self._runtime = runtime

    def heartbeat(
        self, context: RequestContext, request: ShareGroupHeartbeatRequest, done: Callable[[ShareHeartbeat], None]
    ) -> None:
        """Responds when the resulting records are committed. The shard validates the request."""
        self._runtime.answer(HEARTBEAT, context, request, done)

    def description(
        self,
        context: RequestContext,
        request: ShareGroupDescribeRequest,
        done: Callable[[Generator[None, None, ShareGroupDescribeResponse]], None],
    ) -> None:
        """Describe committed share groups in short steps; the request handler adds the authorized operations."""
        collector = ResponseCollector[ShareDescriptionSteps](
            len(request.group_ids), lambda groups: done(_described(groups))
        )
        for index, group_id in enumerate(request.group_ids):
            self._runtime.answer(DESCRIBE, context, group_id, partial(collector.put, index))

    def alter_offsets(
        self,
        context: RequestContext,
        request: AlterShareGroupOffsetsRequest,
        done: Callable[[OffsetAlteration], None],
    ) -> None:
        """Responds when the change of the group is committed; the start offsets are not set yet."""
        self._runtime.answer(ALTER, context, request, done)

    def delete_offsets(
        self,
        context: RequestContext,
        request: DeleteShareGroupOffsetsRequest,
        done: Callable[[OffsetDeletion], None],
    ) -> None:
        """Responds when the change of the group is committed; the state is not deleted yet."""
        self._runtime.answer(DELETE, context, request, done)

    def initialized_topics(self, group_id: str, done: Done[list[InitializedTopic]]) -> None:
        """Read the topics with initialized state. Errors: GROUP_ID_NOT_FOUND, and those of the runtime."""
        self._runtime.submit(OFFSETS, None, group_id, done)

    def delete_all_state(self, group_id: str, done: Done[StateDeletion]) -> None:
        """Begin to delete the state of a group; the result is None if there is none. Error: NON_EMPTY_GROUP."""
        self._runtime.submit(DELETE_ALL, None, group_id, done)

    def state_initialized(self, outcome: InitializedState, done: Done[None]) -> None:
        """Record the outcome of an initialization."""
        self._runtime.submit(INITIALIZED, None, outcome, done)

    def state_deleted(self, outcome: DeletedState, done: Done[None]) -> None:
        """Record the outcome of a deletion."""
        self._runtime.submit(DELETED, None, outcome, done)

    def topics_deleted(self, topic_ids: frozenset[Uuid], done: Callable[[list[StateDeletion]], None]) -> None:
        """Begin to delete the state of deleted topics in all groups of this broker."""
        self._runtime.schedule_write_all(
            TOPICS_DELETED,
            lambda shard: shard.share_states.topics_deleted(topic_ids),
            lambda outcomes: done([each for deletions, _ in outcomes.values() for each in deletions or ()]),
        )


def _described(groups: list[ShareDescriptionSteps]) -> Generator[None, None, ShareGroupDescribeResponse]:
    for group in groups:
        yield from group.members
    return ShareGroupDescribeResponse(groups=[group.row for group in groups])
