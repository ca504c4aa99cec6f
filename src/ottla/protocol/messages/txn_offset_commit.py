"""TxnOffsetCommit (key 28): offsets of a group that take effect once the transaction is committed (KIP-98).

3 is flexible and has the member (KIP-447), 4 may return TRANSACTION_ABORTABLE, from 5 on the broker adds the group's
partition to the transaction (KIP-890), 6 identifies topics by id (KIP-848).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, STRING, UUID, array, f, message, struct


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int = f(INT32, "0+")
    committed_offset: int = f(INT64, "0+")
    committed_leader_epoch: int = f(INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = f(STRING, "0+", nullable="0+")


@struct
class TxnOffsetCommitRequestTopic:
    name: str = f(STRING, "0-5", ignorable=True)
    topic_id: bytes = f(UUID, "6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = f(array(TxnOffsetCommitRequestPartition), "0+")


@message("0-6", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str = f(STRING, "0+")
    group_id: str = f(STRING, "0+")
    producer_id: int = f(INT64, "0+")
    producer_epoch: int = f(INT16, "0+")
    generation_id_or_member_epoch: int = f(INT32, "3+", default=-1)
    member_id: str = f(STRING, "3+")
    group_instance_id: str | None = f(STRING, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = f(array(TxnOffsetCommitRequestTopic), "0+")


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")


@struct
class TxnOffsetCommitResponseTopic:
    name: str = f(STRING, "0-5", ignorable=True)
    topic_id: bytes = f(UUID, "6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = f(array(TxnOffsetCommitResponsePartition), "0+")


@message("0-6", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: int = f(INT32, "0+")
    topics: list[TxnOffsetCommitResponseTopic] = f(array(TxnOffsetCommitResponseTopic), "0+")


SPEC = ApiSpec(ApiKey.TXN_OFFSET_COMMIT, TxnOffsetCommitRequest, TxnOffsetCommitResponse)
