"""Validation of ShareGroupHeartbeat requests: Apache Kafka's checks and messages."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.assignors.assignor import Assignment as AssignedPartitions
from ottla.coordinator.group.modern.share.member import JOIN_MEMBER_EPOCH, LEAVE_MEMBER_EPOCH, ShareMember
from ottla.protocol.messages.share_group_heartbeat import Assignment, ShareGroupHeartbeatRequest, TopicPartitions

MAX_MEMBER_ID_CHARACTERS = 36
"""Share sessions store member ids in this length; clients generate UUIDs."""


def validate_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raises KafkaError INVALID_REQUEST."""
    _not_empty(request.member_id, "MemberId can't be empty.")
    if len(request.member_id) > MAX_MEMBER_ID_CHARACTERS:
        raise _invalid(f"MemberId has more than {MAX_MEMBER_ID_CHARACTERS} characters.")
    _not_empty(request.rack_id, "RackId can't be empty.")
    if request.member_epoch == JOIN_MEMBER_EPOCH:
        if not request.subscribed_topic_names:
            raise _invalid("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_MEMBER_EPOCH:
        raise _invalid("MemberEpoch is invalid.")


def validate_member_epoch(member: ShareMember, received: int) -> None:
    """Raises KafkaError FENCED_MEMBER_EPOCH unless the epoch is the member's current or previous one.

    The response with the current epoch may have been lost. Epoch 0 is always valid: the member starts over.
    """
    if received in (JOIN_MEMBER_EPOCH, member.member_epoch, member.previous_member_epoch):
        return
    relation = "greater" if received > member.member_epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {relation} member epoch ({received}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def assignment_message(assigned: AssignedPartitions) -> Assignment:
    """Return the assignment in the format of the response."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(assigned[topic_id])) for topic_id in sorted(assigned)
        ]
    )


def _not_empty(value: str | None, message: str) -> None:
    """Reject empty and blank strings; null is valid."""
    if value is not None and not value.strip():
        raise _invalid(message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
