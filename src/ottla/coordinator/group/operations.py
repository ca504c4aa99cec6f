"""Table of the group coordinator's shard operations, with Apache Kafka's names.

`request` of a row is the argument of its `key` and `run`: the message itself, or a plan or a deferred request around
it.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group import responses
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.modern.consumer.describe import GroupDescriptionSteps
from ottla.coordinator.group.offsets.requests import CommitPlan, DeletePlan, FetchPlan
from ottla.coordinator.group.response_collector import Reply
from ottla.coordinator.runtime import CoordinatorOperation
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.describe_groups import DescribedGroup
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.messages.offset_commit import OffsetCommitResponse
from ottla.protocol.messages.offset_delete import OffsetDeleteResponse
from ottla.protocol.messages.offset_fetch import OffsetFetchResponseGroup
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse

MAX_STORED_STRING_BYTES = 32_767
"""Maximum length of strings in group metadata, which the log stores with a 16-bit length; longer ids are rejected."""

Q = TypeVar("Q", JoinGroupRequest, SyncGroupRequest)
R = TypeVar("R", JoinGroupResponse, SyncGroupResponse)


class DeferredRequest(NamedTuple, Generic[Q, R]):
    """A request that is answered by the rebalance of its group."""

    request: Q
    reply: Reply[R]


# -- shard keys --------------------------------------------------------------------------------------------------------


def any_group(group_id: str) -> str:
    """Return the id, which may be empty: for APIs that predate group membership. Raises KafkaError INVALID_GROUP_ID."""
    if len(group_id.encode()) > MAX_STORED_STRING_BYTES:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    return group_id


def named_group(group_id: str) -> str:
    """Return the id of a group that can have members. Raises KafkaError INVALID_GROUP_ID."""
    if not group_id or len(group_id.encode()) > MAX_STORED_STRING_BYTES:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    return group_id


def _group_of_heartbeat(request: ConsumerGroupHeartbeatRequest) -> str:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    if len(request.group_id.encode()) > MAX_STORED_STRING_BYTES:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    return request.group_id


# -- classic groups ----------------------------------------------------------------------------------------------------

JOIN: CoordinatorOperation[RequestContext, DeferredRequest[JoinGroupRequest, JoinGroupResponse], JoinGroupResponse] = (
    CoordinatorOperation(
        "classic-group-join",
        key=lambda awaited: named_group(awaited.request.group_id),
        run=lambda context, awaited, shard: shard.classic_join(context, awaited.request, awaited.reply),
        refused=lambda context, awaited, error: JoinGroupResponse(
            member_id=awaited.request.member_id, error_code=responses.error_code(error), protocol_name=None
        ),
    )
)

SYNC: CoordinatorOperation[RequestContext, DeferredRequest[SyncGroupRequest, SyncGroupResponse], SyncGroupResponse] = (
    CoordinatorOperation(
        "classic-group-sync",
        key=lambda awaited: named_group(awaited.request.group_id),
        run=lambda context, awaited, shard: shard.classic_sync(context, awaited.request, awaited.reply),
        refused=lambda context, awaited, error: SyncGroupResponse(error_code=responses.error_code(error)),
    )
)

HEARTBEAT: CoordinatorOperation[RequestContext, HeartbeatRequest, HeartbeatResponse] = CoordinatorOperation(
    "classic-group-heartbeat",
    key=lambda request: named_group(request.group_id),
    run=lambda context, request, shard: shard.classic_heartbeat(context, request),
    refused=responses.heartbeat_refused,
)

LEAVE: CoordinatorOperation[RequestContext, LeaveGroupRequest, LeaveGroupResponse] = CoordinatorOperation(
    "classic-group-leave",
    key=lambda request: named_group(request.group_id),
    run=lambda context, request, shard: shard.classic_leave(context, request),
    refused=responses.leave_refused,
    answered=responses.left,
)

DESCRIBE: CoordinatorOperation[RequestContext, str, DescribedGroup] = CoordinatorOperation(
    "describe-groups",
    key=any_group,
    run=lambda context, group_id, shard, committed: shard.classic.describe([group_id], context, committed)[0],
    refused=lambda context, group_id, error: DescribedGroup(group_id=group_id, error_code=responses.error_code(error)),
    reads=True,
)

# -- consumer groups (KIP-848) -----------------------------------------------------------------------------------------

CONSUMER_HEARTBEAT: CoordinatorOperation[
    RequestContext, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
] = CoordinatorOperation(
    "consumer-group-heartbeat",
    key=_group_of_heartbeat,
    run=lambda context, request, shard: shard.consumer.heartbeat(context, request),
    refused=responses.consumer_heartbeat_refused,
)

CONSUMER_DESCRIBE: CoordinatorOperation[RequestContext, str, GroupDescriptionSteps] = CoordinatorOperation(
    "consumer-group-describe",
    key=named_group,
    run=lambda context, group_id, shard, committed: shard.consumer.description(group_id, committed),
    refused=lambda context, group_id, error: GroupDescriptionSteps(
        responses.consumer_describe_refused(context, group_id, error)
    ),
    reads=True,
)

# -- groups of any type ------------------------------------------------------------------------------------------------

DELETE: CoordinatorOperation[RequestContext, str, DeletableGroupResult] = CoordinatorOperation(
    "delete-groups",
    key=any_group,
    run=lambda context, group_id, shard: shard.delete_groups([group_id], context),
    refused=lambda context, group_id, error: DeletableGroupResult(
        group_id=group_id, error_code=responses.error_code(error)
    ),
    answered=lambda context, group_id, results: results[0],
)

LIST = "list-groups"
"""Reads all shards."""

# -- offsets -----------------------------------------------------------------------------------------------------------

COMMIT_OFFSETS: CoordinatorOperation[RequestContext, CommitPlan, OffsetCommitResponse] = CoordinatorOperation(
    "commit-offset",
    key=lambda plan: any_group(plan.accepted.group_id),
    run=lambda context, plan, shard: shard.offsets.commit(context, plan.accepted),
    refused=lambda context, plan, error: plan.response(None, error),
    answered=lambda context, plan, committed: plan.response(committed, None),
)

COMMIT_TRANSACTIONAL_OFFSETS: CoordinatorOperation[RequestContext, CommitPlan, TxnOffsetCommitResponse] = (
    CoordinatorOperation(
        "txn-commit-offset",
        key=lambda plan: named_group(plan.accepted.group_id),
        run=lambda context, plan, shard: shard.offsets.commit_transactional(context, plan.accepted),
        refused=lambda context, plan, error: plan.response(None, error),
        answered=lambda context, plan, committed: plan.response(committed, None),
    )
)

FETCH_OFFSETS: CoordinatorOperation[RequestContext, FetchPlan, OffsetFetchResponseGroup] = CoordinatorOperation(
    "fetch-offsets",
    key=lambda plan: any_group(plan.request.group_id),
    run=lambda context, plan, shard, committed: shard.offsets.fetch(plan.accepted, committed),
    refused=lambda context, plan, error: plan.response(None, error),
    answered=lambda context, plan, response: plan.response(response, None),
    reads=True,
)

FETCH_STABLE_OFFSETS: CoordinatorOperation[RequestContext, FetchPlan, OffsetFetchResponseGroup] = CoordinatorOperation(
    "fetch-offsets",
    key=FETCH_OFFSETS.key,
    run=lambda context, plan, shard: shard.offsets.fetch_stable(plan.accepted),
    refused=FETCH_OFFSETS.refused,
    answered=FETCH_OFFSETS.answered,
)
"""Runs as a write: it sees commits that are in flight, and responds when those are committed."""

DELETE_OFFSETS: CoordinatorOperation[RequestContext, DeletePlan, OffsetDeleteResponse] = CoordinatorOperation(
    "delete-offsets",
    key=lambda plan: named_group(plan.accepted.group_id),
    run=lambda context, plan, shard: shard.offsets.delete(plan.accepted),
    refused=lambda context, plan, error: OffsetDeleteResponse(error_code=responses.error_code(error)),
    answered=lambda context, plan, response: plan.response(response),
)

TOPICS_DELETED = "on-partition-deleted"
"""Writes to all shards."""
