"""ShareGroupDescribe (key 77): state and members of share groups (KIP-932)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, STRING, UUID, array, f, message, struct


@message("1", flexible="0+")
class ShareGroupDescribeRequest:
    group_ids: list[str] = f(array(STRING), "1+")
    include_authorized_operations: bool = f(BOOL, "1+")


@struct
class TopicPartitions:
    topic_id: bytes = f(UUID, "1+")
    topic_name: str = f(STRING, "1+")
    partitions: list[int] = f(array(INT32), "1+")


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = f(array(TopicPartitions), "1+")


@struct
class Member:
    member_id: str = f(STRING, "1+")
    rack_id: str | None = f(STRING, "1+", nullable="1+", default=None)
    member_epoch: int = f(INT32, "1+")
    client_id: str = f(STRING, "1+")
    client_host: str = f(STRING, "1+")
    subscribed_topic_names: list[str] = f(array(STRING), "1+")
    assignment: Assignment = f(Assignment, "1+")


@struct
class DescribedGroup:
    error_code: int = f(INT16, "1+")
    error_message: str | None = f(STRING, "1+", nullable="1+", default=None)
    group_id: str = f(STRING, "1+")
    group_state: str = f(STRING, "1+")
    group_epoch: int = f(INT32, "1+")
    assignment_epoch: int = f(INT32, "1+")
    assignor_name: str = f(STRING, "1+")
    members: list[Member] = f(array(Member), "1+")
    authorized_operations: int = f(INT32, "1+", default=-2147483648)


@message("1", flexible="0+")
class ShareGroupDescribeResponse:
    throttle_time_ms: int = f(INT32, "1+")
    groups: list[DescribedGroup] = f(array(DescribedGroup), "1+")


SPEC = ApiSpec(ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest, ShareGroupDescribeResponse)
