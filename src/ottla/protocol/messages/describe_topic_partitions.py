"""DescribeTopicPartitions (key 75): topics with their eligible leader replicas, page by page (KIP-966)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, STRING, UUID, array, f, message, struct


@struct
class TopicRequest:
    name: str = f(STRING, "0+")


@struct
class Cursor:
    topic_name: str = f(STRING, "0+")
    partition_index: int = f(INT32, "0+")


@message("0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = f(array(TopicRequest), "0+")
    response_partition_limit: int = f(INT32, "0+", default=2000)
    cursor: Cursor | None = f(Cursor, "0+", nullable="0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int = f(INT16, "0+")
    partition_index: int = f(INT32, "0+")
    leader_id: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+", default=-1)
    replica_nodes: list[int] = f(array(INT32), "0+")
    isr_nodes: list[int] = f(array(INT32), "0+")
    eligible_leader_replicas: list[int] | None = f(array(INT32), "0+", nullable="0+", default=None)
    last_known_elr: list[int] | None = f(array(INT32), "0+", nullable="0+", default=None)
    offline_replicas: list[int] = f(array(INT32), "0+")


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int = f(INT16, "0+")
    name: str | None = f(STRING, "0+", nullable="0+", default=None)
    topic_id: bytes = f(UUID, "0+")
    is_internal: bool = f(BOOL, "0+")
    partitions: list[DescribeTopicPartitionsResponsePartition] = f(
        array(DescribeTopicPartitionsResponsePartition), "0+"
    )
    topic_authorized_operations: int = f(INT32, "0+", default=-2147483648)


@message("0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    topics: list[DescribeTopicPartitionsResponseTopic] = f(array(DescribeTopicPartitionsResponseTopic), "0+")
    next_cursor: Cursor | None = f(Cursor, "0+", nullable="0+", default=None)


SPEC = ApiSpec(ApiKey.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse)
