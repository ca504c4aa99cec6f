"""Error responses of each group API."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.context import RequestContext
from ottla.protocol.messages.consumer_group_describe import DescribedGroup
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

LAST_VERSION_WITH_ONE_LEAVING = 2

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


def error_code(error: KafkaError | None) -> ErrorCode:
    """Return the response code; NONE without an error. Records larger than a batch are not the client's fault:
    UNKNOWN_SERVER_ERROR, as in Apache Kafka. Commits have a code of their own (`commit_error_code`)."""
    if error is None:
        return ErrorCode.NONE
    return ErrorCode.UNKNOWN_SERVER_ERROR if error.code in _TOO_LARGE else error.code


def commit_error_code(error: KafkaError | None) -> ErrorCode:
    """Return the code for OffsetCommit, which has INVALID_COMMIT_OFFSET_SIZE for records that exceed a batch."""
    if error is not None and error.code in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return error_code(error)


def heartbeat_refused(context: RequestContext, request: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    """Return the error response. While the group is loading the code is NONE, so that members keep their membership."""
    code = error_code(error)
    return HeartbeatResponse(error_code=ErrorCode.NONE if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code)


def left(context: RequestContext, request: LeaveGroupRequest, response: LeaveGroupResponse) -> LeaveGroupResponse:
    """Up to version 2 the response has the single member's error at the top level."""
    if context.api_version <= LAST_VERSION_WITH_ONE_LEAVING:
        return LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)
    return response


def leave_refused(context: RequestContext, request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    """Return the error response. A missing group is reported as UNKNOWN_MEMBER_ID for each member."""
    if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=error_code(error))
    members = [
        MemberResponse(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=ErrorCode.UNKNOWN_MEMBER_ID,
        )
        for member in request.members
    ]
    return left(context, request, LeaveGroupResponse(members=members))


def consumer_heartbeat_refused(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest, error: KafkaError
) -> ConsumerGroupHeartbeatResponse:
    """Return the error response with the reason, if any."""
    return ConsumerGroupHeartbeatResponse(error_code=error_code(error), error_message=error.message or None)


def consumer_describe_refused(context: RequestContext, group_id: str, error: KafkaError) -> DescribedGroup:
    """Return the error response with the reason, if any."""
    return DescribedGroup(group_id=group_id, error_code=error_code(error), error_message=error.message or None)
