"""DeleteRecords (key 21): advance the log start offset (KIP-107). 2 is flexible.

The offset -1 means the high watermark.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, STRING, array, f, message, struct


@struct
class DeleteRecordsPartition:
    partition_index: int = f(INT32, "0+")
    offset: int = f(INT64, "0+")


@struct
class DeleteRecordsTopic:
    name: str = f(STRING, "0+")
    partitions: list[DeleteRecordsPartition] = f(array(DeleteRecordsPartition), "0+")


@message("0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = f(array(DeleteRecordsTopic), "0+")
    timeout_ms: int = f(INT32, "0+")


@struct
class DeleteRecordsPartitionResult:
    partition_index: int = f(INT32, "0+")
    low_watermark: int = f(INT64, "0+")
    error_code: int = f(INT16, "0+")


@struct
class DeleteRecordsTopicResult:
    name: str = f(STRING, "0+")
    partitions: list[DeleteRecordsPartitionResult] = f(array(DeleteRecordsPartitionResult), "0+")


@message("0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    topics: list[DeleteRecordsTopicResult] = f(array(DeleteRecordsTopicResult), "0+")


SPEC = ApiSpec(ApiKey.DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse)
