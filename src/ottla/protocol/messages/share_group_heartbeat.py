"""ShareGroupHeartbeat (key 76): membership and subscription in a share group (KIP-932).

A null field did not change since the member's last heartbeat. Version 0 was the early access of Kafka 4.0.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, UUID, array, f, message, struct


@struct
class TopicPartitions:
    topic_id: bytes = f(UUID, "1+")
    partitions: list[int] = f(array(INT32), "1+")


@message("1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: str = f(STRING, "1+")
    member_id: str = f(STRING, "1+")
    member_epoch: int = f(INT32, "1+")
    rack_id: str | None = f(STRING, "1+", nullable="1+", default=None)
    subscribed_topic_names: list[str] | None = f(array(STRING), "1+", nullable="1+", default=None)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = f(array(TopicPartitions), "1+")


@message("1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = f(INT32, "1+")
    error_code: int = f(INT16, "1+")
    error_message: str | None = f(STRING, "1+", nullable="1+", default=None)
    member_id: str | None = f(STRING, "1+", nullable="1+", default=None)
    member_epoch: int = f(INT32, "1+")
    heartbeat_interval_ms: int = f(INT32, "1+")
    assignment: Assignment | None = f(Assignment, "1+", nullable="1+", default=None)


SPEC = ApiSpec(ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse)
