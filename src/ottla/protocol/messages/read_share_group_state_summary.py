"""ReadShareGroupStateSummary (key 87): the group coordinator reads the offsets of share partitions (KIP-932).

Version 1 adds the number of offsets with a complete delivery (KIP-1226).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, STRING, UUID, array, f, message, struct


@struct
class PartitionData:
    partition: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")


@struct
class ReadStateSummaryData:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[PartitionData] = f(array(PartitionData), "0+")


@message("0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    group_id: str = f(STRING, "0+")
    topics: list[ReadStateSummaryData] = f(array(ReadStateSummaryData), "0+")


@struct
class PartitionResult:
    partition: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    state_epoch: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")
    start_offset: int = f(INT64, "0+")
    delivery_complete_count: int = f(INT32, "1+", default=-1, ignorable=True)


@struct
class ReadStateSummaryResult:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[PartitionResult] = f(array(PartitionResult), "0+")


@message("0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult] = f(array(ReadStateSummaryResult), "0+")


SPEC = ApiSpec(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse
)
