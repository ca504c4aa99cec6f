"""DescribeProducers (key 61): active producers of a partition (KIP-664). Flexible from the start."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, STRING, array, f, message, struct


@struct
class DescribeProducersTopic:
    name: str = f(STRING, "0+")
    partition_indexes: list[int] = f(array(INT32), "0+")


@message("0", flexible="0+")
class DescribeProducersRequest:
    topics: list[DescribeProducersTopic] = f(array(DescribeProducersTopic), "0+")


@struct
class ActiveProducer:
    producer_id: int = f(INT64, "0+")
    producer_epoch: int = f(INT32, "0+")
    last_sequence: int = f(INT32, "0+", default=-1)
    last_timestamp: int = f(INT64, "0+", default=-1)
    coordinator_epoch: int = f(INT32, "0+")
    current_txn_start_offset: int = f(INT64, "0+", default=-1)


@struct
class DescribeProducersPartition:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    active_producers: list[ActiveProducer] = f(array(ActiveProducer), "0+")


@struct
class DescribeProducersTopicResponse:
    name: str = f(STRING, "0+")
    partitions: list[DescribeProducersPartition] = f(array(DescribeProducersPartition), "0+")


@message("0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: int = f(INT32, "0+")
    topics: list[DescribeProducersTopicResponse] = f(array(DescribeProducersTopicResponse), "0+")


SPEC = ApiSpec(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest, DescribeProducersResponse)
