"""AlterShareGroupOffsets (key 91): set the start offsets of an empty share group (KIP-932)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, STRING, UUID, array, f, message, struct


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = f(INT32, "0+")
    start_offset: int = f(INT64, "0+")


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = f(STRING, "0+")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = f(array(AlterShareGroupOffsetsRequestPartition), "0+")


@message("0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: str = f(STRING, "0+")
    topics: list[AlterShareGroupOffsetsRequestTopic] = f(array(AlterShareGroupOffsetsRequestTopic), "0+")


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = f(STRING, "0+")
    topic_id: bytes = f(UUID, "0+")
    partitions: list[AlterShareGroupOffsetsResponsePartition] = f(array(AlterShareGroupOffsetsResponsePartition), "0+")


@message("0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = f(array(AlterShareGroupOffsetsResponseTopic), "0+")


SPEC = ApiSpec(ApiKey.ALTER_SHARE_GROUP_OFFSETS, AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse)
