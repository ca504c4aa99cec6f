"""DeleteShareGroupState (key 86): the group coordinator deletes the state of share partitions (KIP-932)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, UUID, array, f, message, struct


@struct
class PartitionData:
    partition: int = f(INT32, "0+")


@struct
class DeleteStateData:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[PartitionData] = f(array(PartitionData), "0+")


@message("0", flexible="0+")
class DeleteShareGroupStateRequest:
    group_id: str = f(STRING, "0+")
    topics: list[DeleteStateData] = f(array(DeleteStateData), "0+")


@struct
class PartitionResult:
    partition: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)


@struct
class DeleteStateResult:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[PartitionResult] = f(array(PartitionResult), "0+")


@message("0", flexible="0+")
class DeleteShareGroupStateResponse:
    results: list[DeleteStateResult] = f(array(DeleteStateResult), "0+")


SPEC = ApiSpec(ApiKey.DELETE_SHARE_GROUP_STATE, DeleteShareGroupStateRequest, DeleteShareGroupStateResponse)
