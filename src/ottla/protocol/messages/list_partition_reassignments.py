"""ListPartitionReassignments (key 46): the current partition reassignments (KIP-455). Flexible from the start."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, array, f, message, struct


@struct
class ListReassignmentsTopic:
    name: str = f(STRING, "0+")
    partition_indexes: list[int] = f(array(INT32), "0+")


@message("0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: int = f(INT32, "0+", default=60000)
    topics: list[ListReassignmentsTopic] | None = f(array(ListReassignmentsTopic), "0+", nullable="0+", default=None)


@struct
class OngoingPartitionReassignment:
    partition_index: int = f(INT32, "0+")
    replicas: list[int] = f(array(INT32), "0+")
    adding_replicas: list[int] = f(array(INT32), "0+")
    removing_replicas: list[int] = f(array(INT32), "0+")


@struct
class OngoingTopicReassignment:
    name: str = f(STRING, "0+")
    partitions: list[OngoingPartitionReassignment] = f(array(OngoingPartitionReassignment), "0+")


@message("0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default="")
    topics: list[OngoingTopicReassignment] = f(array(OngoingTopicReassignment), "0+")


SPEC = ApiSpec(
    ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
)
