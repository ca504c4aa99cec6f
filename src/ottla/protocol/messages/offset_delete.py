"""OffsetDelete (key 47): delete committed offsets of topics to which the group does not subscribe (KIP-496)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, array, f, message, struct


@struct
class OffsetDeleteRequestPartition:
    partition_index: int = f(INT32, "0+")


@struct
class OffsetDeleteRequestTopic:
    name: str = f(STRING, "0+")
    partitions: list[OffsetDeleteRequestPartition] = f(array(OffsetDeleteRequestPartition), "0+")


@message("0")
class OffsetDeleteRequest:
    group_id: str = f(STRING, "0+")
    topics: list[OffsetDeleteRequestTopic] = f(array(OffsetDeleteRequestTopic), "0+")


@struct
class OffsetDeleteResponsePartition:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")


@struct
class OffsetDeleteResponseTopic:
    name: str = f(STRING, "0+")
    partitions: list[OffsetDeleteResponsePartition] = f(array(OffsetDeleteResponsePartition), "0+")


@message("0")
class OffsetDeleteResponse:
    error_code: int = f(INT16, "0+")
    throttle_time_ms: int = f(INT32, "0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = f(array(OffsetDeleteResponseTopic), "0+")


SPEC = ApiSpec(ApiKey.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse)
