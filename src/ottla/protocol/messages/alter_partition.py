"""AlterPartition (key 56): a leader requests another ISR from the controller (KIP-497). Flexible from the start.

2 identifies topics by id. 3 has the broker epoch of each ISR member, so that a replica that restarted meanwhile is
rejected (KIP-903).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT8, INT16, INT32, INT64, UUID, array, f, message, struct


@struct
class BrokerState:
    broker_id: int = f(INT32, "3+")
    broker_epoch: int = f(INT64, "3+", default=-1)


@struct
class AlterPartitionPartition:
    partition_index: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")
    new_isr: list[int] = f(array(INT32), "0-2")
    new_isr_with_epochs: list[BrokerState] = f(array(BrokerState), "3+")
    leader_recovery_state: int = f(INT8, "1+")
    partition_epoch: int = f(INT32, "0+")


@struct
class AlterPartitionTopic:
    topic_id: bytes = f(UUID, "2+", ignorable=True)
    partitions: list[AlterPartitionPartition] = f(array(AlterPartitionPartition), "0+")


@message("2-3", flexible="0+")
class AlterPartitionRequest:
    broker_id: int = f(INT32, "0+")
    broker_epoch: int = f(INT64, "0+", default=-1)
    topics: list[AlterPartitionTopic] = f(array(AlterPartitionTopic), "0+")


@struct
class AlterPartitionPartitionResult:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    leader_id: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")
    isr: list[int] = f(array(INT32), "0+")
    leader_recovery_state: int = f(INT8, "1+", ignorable=True)
    partition_epoch: int = f(INT32, "0+")


@struct
class AlterPartitionTopicResult:
    topic_id: bytes = f(UUID, "2+", ignorable=True)
    partitions: list[AlterPartitionPartitionResult] = f(array(AlterPartitionPartitionResult), "0+")


@message("2-3", flexible="0+")
class AlterPartitionResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    topics: list[AlterPartitionTopicResult] = f(array(AlterPartitionTopicResult), "0+")


SPEC = ApiSpec(ApiKey.ALTER_PARTITION, AlterPartitionRequest, AlterPartitionResponse)
