"""CreatePartitions (key 37): raise the partition count of topics (KIP-195). 2 is flexible."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, STRING, array, f, message, struct


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int] = f(array(INT32), "0+")


@struct
class CreatePartitionsTopic:
    name: str = f(STRING, "0+")
    count: int = f(INT32, "0+")
    assignments: list[CreatePartitionsAssignment] | None = f(
        array(CreatePartitionsAssignment), "0+", nullable="0+", default=None
    )


@message("0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = f(array(CreatePartitionsTopic), "0+")
    timeout_ms: int = f(INT32, "0+")
    validate_only: bool = f(BOOL, "0+")


@struct
class CreatePartitionsTopicResult:
    name: str = f(STRING, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)


@message("0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    results: list[CreatePartitionsTopicResult] = f(array(CreatePartitionsTopicResult), "0+")


SPEC = ApiSpec(ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsResponse)
