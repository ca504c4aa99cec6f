"""ConsumerGroupDescribe (key 69): state and members of groups of the consumer protocol (KIP-848).

1 adds the protocol of each member (KIP-1099).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT8, INT16, INT32, STRING, UUID, array, f, message, struct


@message("0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = f(array(STRING), "0+")
    include_authorized_operations: bool = f(BOOL, "0+")


@struct
class TopicPartitions:
    topic_id: bytes = f(UUID, "0+")
    topic_name: str = f(STRING, "0+")
    partitions: list[int] = f(array(INT32), "0+")


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = f(array(TopicPartitions), "0+")


@struct
class Member:
    member_id: str = f(STRING, "0+")
    instance_id: str | None = f(STRING, "0+", nullable="0+", default=None)
    rack_id: str | None = f(STRING, "0+", nullable="0+", default=None)
    member_epoch: int = f(INT32, "0+")
    client_id: str = f(STRING, "0+")
    client_host: str = f(STRING, "0+")
    subscribed_topic_names: list[str] = f(array(STRING), "0+")
    subscribed_topic_regex: str | None = f(STRING, "0+", nullable="0+", default=None)
    assignment: Assignment = f(Assignment, "0+")
    target_assignment: Assignment = f(Assignment, "0+")
    member_type: int = f(INT8, "1+", default=-1, ignorable=True)


@struct
class DescribedGroup:
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    group_id: str = f(STRING, "0+")
    group_state: str = f(STRING, "0+")
    group_epoch: int = f(INT32, "0+")
    assignment_epoch: int = f(INT32, "0+")
    assignor_name: str = f(STRING, "0+")
    members: list[Member] = f(array(Member), "0+")
    authorized_operations: int = f(INT32, "0+", default=-2147483648)


@message("0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = f(INT32, "0+")
    groups: list[DescribedGroup] = f(array(DescribedGroup), "0+")


SPEC = ApiSpec(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse)
