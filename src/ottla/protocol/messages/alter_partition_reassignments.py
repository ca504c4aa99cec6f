"""AlterPartitionReassignments (key 45): start, change or cancel reassignments (KIP-455). Flexible from the start.

1 can forbid a change of the replication factor. Null replicas cancel the current reassignment.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, STRING, array, f, message, struct


@struct
class ReassignablePartition:
    partition_index: int = f(INT32, "0+")
    replicas: list[int] | None = f(array(INT32), "0+", nullable="0+", default=None)


@struct
class ReassignableTopic:
    name: str = f(STRING, "0+")
    partitions: list[ReassignablePartition] = f(array(ReassignablePartition), "0+")


@message("0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = f(INT32, "0+", default=60000)
    allow_replication_factor_change: bool = f(BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = f(array(ReassignableTopic), "0+")


@struct
class ReassignablePartitionResponse:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default="")


@struct
class ReassignableTopicResponse:
    name: str = f(STRING, "0+")
    partitions: list[ReassignablePartitionResponse] = f(array(ReassignablePartitionResponse), "0+")


@message("0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    allow_replication_factor_change: bool = f(BOOL, "1+", default=True, ignorable=True)
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default="")
    responses: list[ReassignableTopicResponse] = f(array(ReassignableTopicResponse), "0+")


SPEC = ApiSpec(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
)
