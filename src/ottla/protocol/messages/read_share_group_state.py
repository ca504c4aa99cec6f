"""ReadShareGroupState (key 84): the leader of a partition reads the state of a share partition (KIP-932)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT8, INT16, INT32, INT64, STRING, UUID, array, f, message, struct


@struct
class PartitionData:
    partition: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")


@struct
class ReadStateData:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[PartitionData] = f(array(PartitionData), "0+")


@message("0", flexible="0+")
class ReadShareGroupStateRequest:
    group_id: str = f(STRING, "0+")
    topics: list[ReadStateData] = f(array(ReadStateData), "0+")


@struct
class StateBatch:
    first_offset: int = f(INT64, "0+")
    last_offset: int = f(INT64, "0+")
    delivery_state: int = f(INT8, "0+")
    delivery_count: int = f(INT16, "0+")


@struct
class PartitionResult:
    partition: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    state_epoch: int = f(INT32, "0+")
    start_offset: int = f(INT64, "0+")
    state_batches: list[StateBatch] = f(array(StateBatch), "0+")


@struct
class ReadStateResult:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[PartitionResult] = f(array(PartitionResult), "0+")


@message("0", flexible="0+")
class ReadShareGroupStateResponse:
    results: list[ReadStateResult] = f(array(ReadStateResult), "0+")


SPEC = ApiSpec(ApiKey.READ_SHARE_GROUP_STATE, ReadShareGroupStateRequest, ReadShareGroupStateResponse)
