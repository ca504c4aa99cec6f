"""DescribeShareGroupOffsets (key 90): start offsets of the share partitions of groups (KIP-932).

1 adds the lag (KIP-1226).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, STRING, UUID, array, f, message, struct


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = f(STRING, "0+")
    partitions: list[int] = f(array(INT32), "0+")


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = f(STRING, "0+")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = f(
        array(DescribeShareGroupOffsetsRequestTopic), "0+", nullable="0+"
    )


@message("0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup] = f(array(DescribeShareGroupOffsetsRequestGroup), "0+")


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = f(INT32, "0+")
    start_offset: int = f(INT64, "0+")
    leader_epoch: int = f(INT32, "0+")
    lag: int = f(INT64, "1+", default=-1, ignorable=True)
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = f(STRING, "0+")
    topic_id: bytes = f(UUID, "0+")
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = f(
        array(DescribeShareGroupOffsetsResponsePartition), "0+"
    )


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = f(STRING, "0+")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = f(array(DescribeShareGroupOffsetsResponseTopic), "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)


@message("0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    groups: list[DescribeShareGroupOffsetsResponseGroup] = f(array(DescribeShareGroupOffsetsResponseGroup), "0+")


SPEC = ApiSpec(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse)
