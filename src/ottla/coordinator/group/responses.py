"""Where each group API carries an error."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.context import RequestContext
from ottla.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from ottla.protocol.messages.describe_groups import DescribedGroup
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


def leave_group(
    context: RequestContext, request: LeaveGroupRequest, response: LeaveGroupResponse | None, error: KafkaError | None
) -> LeaveGroupResponse:
    """A group that does not exist means that its members are unknown; up to version 2 the member's error is the only
    one there is."""
    if response is None and error_code(error) == ErrorCode.UNKNOWN_MEMBER_ID:
        response = LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                )
                for member in request.members
            ]
        )
    if response is None:
        return LeaveGroupResponse(error_code=error_code(error))
    if context.api_version <= LAST_VERSION_WITH_ONE_LEAVING:
        return LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)
    return response


def described_group(group_id: str, error: KafkaError | None) -> DescribedGroup:
    """A classic group that can't be described."""
    return DescribedGroup(group_id=group_id, error_code=error_code(error))


def described_consumer_group(group_id: str, error: KafkaError | None) -> DescribedConsumerGroup:
    """A consumer group that can't be described."""
    message = error.message if error is not None and error.message else None
    return DescribedConsumerGroup(group_id=group_id, error_code=error_code(error), error_message=message)


def consumer_group_heartbeat(error: KafkaError | None) -> ConsumerGroupHeartbeatResponse:
    """A refused heartbeat."""
    message = error.message if error is not None and error.message else None
    return ConsumerGroupHeartbeatResponse(error_code=error_code(error), error_message=message)
