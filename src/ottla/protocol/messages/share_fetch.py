"""ShareFetch (key 78): records for a member of a share group, with acknowledgements of earlier ones (KIP-932).

Version 0 was an early preview and is not served. 1 limits a response by records, 2 adds the acquire mode (KIP-1206) and
the renewal of locks (KIP-1222). The broker writes its responses with `ottla.protocol.share_fetch`.
"""

from __future__ import annotations

from ottla.common.platform.disk import Buffer
from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, array, f, message, struct


@struct
class AcknowledgementBatch:
    first_offset: int = f(INT64, "0+")
    last_offset: int = f(INT64, "0+")
    acknowledge_types: list[int] = f(array(INT8), "0+")


@struct
class FetchPartition:
    partition_index: int = f(INT32, "0+")
    acknowledgement_batches: list[AcknowledgementBatch] = f(array(AcknowledgementBatch), "0+")


@struct
class FetchTopic:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[FetchPartition] = f(array(FetchPartition), "0+")


@struct
class ForgottenTopic:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[int] = f(array(INT32), "0+")


@message("1-2", flexible="0+")
class ShareFetchRequest:
    group_id: str | None = f(STRING, "0+", nullable="0+", default=None)
    member_id: str | None = f(STRING, "0+", nullable="0+")
    share_session_epoch: int = f(INT32, "0+")
    max_wait_ms: int = f(INT32, "0+")
    min_bytes: int = f(INT32, "0+")
    max_bytes: int = f(INT32, "0+", default=0x7FFFFFFF)
    max_records: int = f(INT32, "1+")
    batch_size: int = f(INT32, "1+")
    share_acquire_mode: int = f(INT8, "2+", default=0)
    is_renew_ack: bool = f(BOOL, "2+", default=False)
    topics: list[FetchTopic] = f(array(FetchTopic), "0+")
    forgotten_topics_data: list[ForgottenTopic] = f(array(ForgottenTopic), "0+")


@struct
class LeaderIdAndEpoch:
    leader_id: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")


@struct
class AcquiredRecords:
    first_offset: int = f(INT64, "0+")
    last_offset: int = f(INT64, "0+")
    delivery_count: int = f(INT16, "0+")


@struct
class PartitionData:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    acknowledge_error_code: int = f(INT16, "0+")
    acknowledge_error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = f(LeaderIdAndEpoch, "0+")
    records: Buffer = f(RECORDS, "0+", default=b"")
    acquired_records: list[AcquiredRecords] = f(array(AcquiredRecords), "0+")


@struct
class ShareFetchableTopicResponse:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[PartitionData] = f(array(PartitionData), "0+")


@struct
class NodeEndpoint:
    node_id: int = f(INT32, "0+")
    host: str = f(STRING, "0+")
    port: int = f(INT32, "0+")
    rack: str | None = f(STRING, "0+", nullable="0+", default=None)


@message("1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: int = f(INT32, "0+", ignorable=True)
    error_code: int = f(INT16, "0+", ignorable=True)
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = f(INT32, "1+", ignorable=True)
    responses: list[ShareFetchableTopicResponse] = f(array(ShareFetchableTopicResponse), "0+")
    node_endpoints: list[NodeEndpoint] = f(array(NodeEndpoint), "0+")


SPEC = ApiSpec(ApiKey.SHARE_FETCH, ShareFetchRequest, ShareFetchResponse)
