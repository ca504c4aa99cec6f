"""InitializeShareGroupState (key 83): the group coordinator creates or resets states of share partitions (KIP-932)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, STRING, UUID, array, f, message, struct


@struct
class PartitionData:
    partition: int = f(INT32, "0+")
    state_epoch: int = f(INT32, "0+")
    start_offset: int = f(INT64, "0+")


@struct
class InitializeStateData:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[PartitionData] = f(array(PartitionData), "0+")


@message("0", flexible="0+")
class InitializeShareGroupStateRequest:
    group_id: str = f(STRING, "0+")
    topics: list[InitializeStateData] = f(array(InitializeStateData), "0+")


@struct
class PartitionResult:
    partition: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)


@struct
class InitializeStateResult:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[PartitionResult] = f(array(PartitionResult), "0+")


@message("0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: list[InitializeStateResult] = f(array(InitializeStateResult), "0+")


SPEC = ApiSpec(ApiKey.INITIALIZE_SHARE_GROUP_STATE, InitializeShareGroupStateRequest, InitializeShareGroupStateResponse)
