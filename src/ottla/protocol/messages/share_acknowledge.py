"""ShareAcknowledge (key 79): acknowledgements of records that a share group acquired (KIP-932).

Version 0 was an early preview and is not served. 2 renews locks (KIP-1222).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT8, INT16, INT32, INT64, STRING, UUID, array, f, message, struct


@struct
class AcknowledgementBatch:
    first_offset: int = f(INT64, "0+")
    last_offset: int = f(INT64, "0+")
    acknowledge_types: list[int] = f(array(INT8), "0+")


@struct
class AcknowledgePartition:
    partition_index: int = f(INT32, "0+")
    acknowledgement_batches: list[AcknowledgementBatch] = f(array(AcknowledgementBatch), "0+")


@struct
class AcknowledgeTopic:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[AcknowledgePartition] = f(array(AcknowledgePartition), "0+")


@message("1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: str | None = f(STRING, "0+", nullable="0+", default=None)
    member_id: str | None = f(STRING, "0+", nullable="0+")
    share_session_epoch: int = f(INT32, "0+")
    is_renew_ack: bool = f(BOOL, "2+", default=False)
    topics: list[AcknowledgeTopic] = f(array(AcknowledgeTopic), "0+")


@struct
class LeaderIdAndEpoch:
    leader_id: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")


@struct
class PartitionData:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = f(LeaderIdAndEpoch, "0+")


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[PartitionData] = f(array(PartitionData), "0+")


@struct
class NodeEndpoint:
    node_id: int = f(INT32, "0+")
    host: str = f(STRING, "0+")
    port: int = f(INT32, "0+")
    rack: str | None = f(STRING, "0+", nullable="0+", default=None)


@message("1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: int = f(INT32, "0+", ignorable=True)
    error_code: int = f(INT16, "0+", ignorable=True)
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = f(INT32, "2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = f(array(ShareAcknowledgeTopicResponse), "0+")
    node_endpoints: list[NodeEndpoint] = f(array(NodeEndpoint), "0+")


SPEC = ApiSpec(ApiKey.SHARE_ACKNOWLEDGE, ShareAcknowledgeRequest, ShareAcknowledgeResponse)
