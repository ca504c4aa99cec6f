"""DeleteShareGroupOffsets (key 92): delete the share state of topics in an empty share group (KIP-932)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, UUID, array, f, message, struct


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = f(STRING, "0+")


@message("0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: str = f(STRING, "0+")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = f(array(DeleteShareGroupOffsetsRequestTopic), "0+")


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = f(STRING, "0+")
    topic_id: bytes = f(UUID, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)


@message("0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = f(array(DeleteShareGroupOffsetsResponseTopic), "0+")


SPEC = ApiSpec(ApiKey.DELETE_SHARE_GROUP_OFFSETS, DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse)
