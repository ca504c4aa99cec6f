"""Validation of ConsumerGroupHeartbeat requests: Apache Kafka's checks and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.modern.consumer.member import (
    JOIN_MEMBER_EPOCH,
    LEAVE_MEMBER_EPOCH,
    LEAVE_STATIC_MEMBER_EPOCH,
    ConsumerMember,
    OwnedPartitions,
)
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

FIRST_VERSION_WITH_CLIENT_MADE_IDS = 1
"""First version in which the member generates its own id (KIP-1082)."""

MAX_MEMBER_ID_BYTES = 32_767
"""Member ids are part of record keys, which have strings with 16-bit lengths."""


def validate_heartbeat(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """Raises KafkaError INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    has_id = request.member_epoch > JOIN_MEMBER_EPOCH or request.member_epoch == LEAVE_MEMBER_EPOCH
    if has_id or api_version >= FIRST_VERSION_WITH_CLIENT_MADE_IDS:
        _not_empty(request.member_id, "MemberId can't be empty.")
    if len(request.member_id.encode()) > MAX_MEMBER_ID_BYTES:
        raise _invalid(f"MemberId has more than {MAX_MEMBER_ID_BYTES} bytes.")
    _not_empty(request.group_id, "GroupId can't be empty.")
    _not_empty(request.instance_id, "InstanceId can't be empty.")
    _not_empty(request.rack_id, "RackId can't be empty.")
    if request.member_epoch == JOIN_MEMBER_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif request.member_epoch == LEAVE_STATIC_MEMBER_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_MEMBER_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def is_leave(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether the member leaves, permanently or temporarily."""
    return request.member_epoch in (LEAVE_MEMBER_EPOCH, LEAVE_STATIC_MEMBER_EPOCH)


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether the member sent all fields, as it does when it joins and after an error.

    It may have missed the last response then, so its assignment is sent again.
    """
    subscribed = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribed and request.topic_partitions is not None


def validate_member_epoch(member: ConsumerMember, received: int, owned: Sequence[TopicPartitions] | None) -> None:
    """Raises KafkaError FENCED_MEMBER_EPOCH unless the epoch is the member's.

    The previous epoch is valid too if the member owns only assigned partitions: the response with the new epoch may
    have been lost. Epoch 0 is always valid: the member starts over.
    """
    if received == JOIN_MEMBER_EPOCH or received == member.member_epoch:
        return
    if received == member.previous_member_epoch and received < member.member_epoch and _is_subset(owned, member):
        return
    relation = "greater" if received > member.member_epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({received}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: Sequence[TopicPartitions] | None, member: ConsumerMember) -> bool:
    if owned is None:
        return False
    nothing: Mapping[int, int] = {}
    return all(member.assigned.get(entry.topic_id, nothing).keys() >= frozenset(entry.partitions) for entry in owned)


def assignment_message(assigned: OwnedPartitions) -> Assignment:
    """Return the assignment in the format of the response."""
    return Assignment(
        topic_partitions=[_topic_partitions(topic_id, assigned[topic_id]) for topic_id in sorted(assigned)]
    )


def _topic_partitions(topic_id: Uuid, partitions: Mapping[int, int]) -> TopicPartitions:
    return TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))


def _not_empty(value: str | None, message: str) -> None:
    """Reject empty and blank strings; null is valid."""
    if value is not None and not value.strip():
        raise _invalid(message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
