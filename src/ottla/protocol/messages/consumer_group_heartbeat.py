"""ConsumerGroupHeartbeat (key 68): membership, subscription and assignment of the consumer protocol (KIP-848).

A null field did not change since the member's last heartbeat. 1 adds regex subscriptions and requires the member to
generate its own id (KIP-1082).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, UUID, array, f, message, struct


@struct
class TopicPartitions:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[int] = f(array(INT32), "0+")


@message("0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: str = f(STRING, "0+")
    member_id: str = f(STRING, "0+")
    member_epoch: int = f(INT32, "0+")
    instance_id: str | None = f(STRING, "0+", nullable="0+", default=None)
    rack_id: str | None = f(STRING, "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = f(INT32, "0+", default=-1)
    subscribed_topic_names: list[str] | None = f(array(STRING), "0+", nullable="0+", default=None)
    subscribed_topic_regex: str | None = f(STRING, "1+", nullable="1+", default=None)
    server_assignor: str | None = f(STRING, "0+", nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = f(array(TopicPartitions), "0+", nullable="0+", default=None)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = f(array(TopicPartitions), "0+")


@message("0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    member_id: str | None = f(STRING, "0+", nullable="0+", default=None)
    member_epoch: int = f(INT32, "0+")
    heartbeat_interval_ms: int = f(INT32, "0+")
    assignment: Assignment | None = f(Assignment, "0+", nullable="0+", default=None)


SPEC = ApiSpec(ApiKey.CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse)
