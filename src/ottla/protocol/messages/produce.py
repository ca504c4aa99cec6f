"""Produce (key 0): append record batches.

These classes serve clients and are the reference for the hand-written codec of `ottla.protocol.produce`, which the
broker uses. 0 to 2 have message sets of formats v0 and v1; 1 adds the throttle time, 2 the time of append (KIP-32). 3
adds record batches v2 and the transactional id, 5 the log start offset, 7 zstd, 8 errors for single records (KIP-467).
9 is flexible, 10 adds the current leader (KIP-951), 11 and 12 belong to transactions (KIP-890), 13 identifies topics by
id (KIP-516).
"""

from __future__ import annotations

from ottla.common.platform.disk import Buffer
from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, RECORDS, STRING, UUID, array, f, message, struct


@struct
class PartitionProduceData:
    index: int = f(INT32, "0+")
    records: Buffer | None = f(RECORDS, "0+", nullable="0+")


@struct
class TopicProduceData:
    name: str = f(STRING, "0-12", ignorable=True)
    topic_id: bytes = f(UUID, "13+", ignorable=True)
    partition_data: list[PartitionProduceData] = f(array(PartitionProduceData), "0+")


@message("0-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = f(STRING, "3+", nullable="3+", default=None)
    acks: int = f(INT16, "0+")
    timeout_ms: int = f(INT32, "0+")
    topic_data: list[TopicProduceData] = f(array(TopicProduceData), "0+")


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = f(INT32, "0+")
    batch_index_error_message: str | None = f(STRING, "0+", nullable="0+", default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: int = f(INT32, "0+", default=-1)
    leader_epoch: int = f(INT32, "0+", default=-1)


@struct
class PartitionProduceResponse:
    index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    base_offset: int = f(INT64, "0+")
    log_append_time_ms: int = f(INT64, "2+", default=-1, ignorable=True)
    log_start_offset: int = f(INT64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = f(array(BatchIndexAndErrorMessage), "8+", ignorable=True)
    error_message: str | None = f(STRING, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = f(LeaderIdAndEpoch, "10+", tag=0, ignorable=True)


@struct
class TopicProduceResponse:
    name: str = f(STRING, "0-12", ignorable=True)
    topic_id: bytes = f(UUID, "13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = f(array(PartitionProduceResponse), "0+")


@struct
class NodeEndpoint:
    node_id: int = f(INT32, "0+")
    host: str = f(STRING, "0+")
    port: int = f(INT32, "0+")
    rack: str | None = f(STRING, "0+", nullable="0+", default=None)


@message("0-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = f(array(TopicProduceResponse), "0+")
    throttle_time_ms: int = f(INT32, "1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = f(array(NodeEndpoint), "10+", tag=0, ignorable=True)


SPEC = ApiSpec(ApiKey.PRODUCE, ProduceRequest, ProduceResponse)
