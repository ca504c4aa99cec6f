"""Where each group API carries an error."""

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
    """NONE when there is none. What does not fit in a record batch is not the client's affair: UNKNOWN_SERVER_ERROR, as
    from Apache Kafka; a commit says it in its own way."""
    if error is None:
        return ErrorCode.NONE
    return ErrorCode.UNKNOWN_SERVER_ERROR if error.code in _TOO_LARGE else error.code


def commit_error_code(error: KafkaError | None) -> ErrorCode:
    """The same for OffsetCommit, which has INVALID_COMMIT_OFFSET_SIZE for more than fits."""
    if error is not None and error.code in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return error_code(error)


def heartbeat_refused(context: RequestContext, request: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    """While the group is being loaded members are told that all is well."""
    code = error_code(error)
    return HeartbeatResponse(error_code=ErrorCode.NONE if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code)


def left(context: RequestContext, request: LeaveGroupRequest, response: LeaveGroupResponse) -> LeaveGroupResponse:
    """Up to version 2 the member's error is the only one there is."""
    if context.api_version <= LAST_VERSION_WITH_ONE_LEAVING:
        return LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)
    return response


def leave_refused(context: RequestContext, request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    """A group that does not exist means that its members are unknown."""
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
    """With the reason, if there is one."""
    return ConsumerGroupHeartbeatResponse(error_code=error_code(error), error_message=error.message or None)


def consumer_describe_refused(context: RequestContext, group_id: str, error: KafkaError) -> DescribedGroup:
    """With the reason, if there is one."""
    return DescribedGroup(group_id=group_id, error_code=error_code(error), error_message=error.message or None)
