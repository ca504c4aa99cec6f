"""Fetch (key 1): read record batches.

These classes serve clients and are the reference for the hand-written codec of `ottla.protocol.fetch`, which the broker
uses. Below 4 messages have formats v0 and v1; 1 adds the throttle time, 2 returns format v1 (KIP-32), 3 limits the
whole response (KIP-74). 4 adds record batches v2 and isolation levels, 5 the log start offset, 7 sessions (KIP-227), 9
leader epochs (KIP-320), 10 zstd, 11 reads from followers (KIP-392). 12 is flexible and detects diverging logs
(KIP-595), 13 identifies topics by id (KIP-516), 15 moves the replica id into a tagged struct (KIP-903), 16 adds the
leader's endpoint (KIP-951), 17 the replica's directory (KIP-853), 18 its high watermark (KIP-1166).
"""

from __future__ import annotations

from ottla.common.platform.disk import Buffer
from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, array, f, message, struct


@struct
class ReplicaState:
    replica_id: int = f(INT32, "0+", default=-1)
    replica_epoch: int = f(INT64, "0+", default=-1)


@struct
class FetchPartition:
    partition: int = f(INT32, "0+")
    current_leader_epoch: int = f(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = f(INT64, "0+")
    last_fetched_epoch: int = f(INT32, "12+", default=-1)
    log_start_offset: int = f(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = f(INT32, "0+")
    replica_directory_id: bytes = f(UUID, "17+", tag=0, ignorable=True)
    high_watermark: int = f(INT64, "18+", tag=1, default=9223372036854775807, ignorable=True)


@struct
class FetchTopic:
    topic: str = f(STRING, "0-12", ignorable=True)
    topic_id: bytes = f(UUID, "13+", ignorable=True)
    partitions: list[FetchPartition] = f(array(FetchPartition), "0+")


@struct
class ForgottenTopic:
    topic: str = f(STRING, "0-12", ignorable=True)
    topic_id: bytes = f(UUID, "13+", ignorable=True)
    partitions: list[int] = f(array(INT32), "0+")


@message("0-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = f(STRING, "12+", nullable="12+", tag=0, default=None, ignorable=True)
    replica_id: int = f(INT32, "0-14", default=-1)
    replica_state: ReplicaState = f(ReplicaState, "15+", tag=1)
    max_wait_ms: int = f(INT32, "0+")
    min_bytes: int = f(INT32, "0+")
    max_bytes: int = f(INT32, "3+", default=2147483647, ignorable=True)
    isolation_level: int = f(INT8, "4+", ignorable=True)
    session_id: int = f(INT32, "7+", ignorable=True)
    session_epoch: int = f(INT32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = f(array(FetchTopic), "0+")
    forgotten_topics_data: list[ForgottenTopic] = f(array(ForgottenTopic), "7+")
    rack_id: str = f(STRING, "11+", ignorable=True)


@struct
class EpochEndOffset:
    epoch: int = f(INT32, "0+", default=-1)
    end_offset: int = f(INT64, "0+", default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: int = f(INT32, "0+", default=-1)
    leader_epoch: int = f(INT32, "0+", default=-1)


@struct
class SnapshotId:
    end_offset: int = f(INT64, "0+", default=-1)
    epoch: int = f(INT32, "0+", default=-1)


@struct
class AbortedTransaction:
    producer_id: int = f(INT64, "0+")
    first_offset: int = f(INT64, "0+")


@struct
class PartitionData:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    high_watermark: int = f(INT64, "0+")
    last_stable_offset: int = f(INT64, "4+", default=-1, ignorable=True)
    log_start_offset: int = f(INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = f(EpochEndOffset, "12+", tag=0, ignorable=True)
    current_leader: LeaderIdAndEpoch = f(LeaderIdAndEpoch, "12+", tag=1, ignorable=True)
    snapshot_id: SnapshotId = f(SnapshotId, "12+", tag=2, ignorable=True)
    aborted_transactions: list[AbortedTransaction] | None = f(
        array(AbortedTransaction), "4+", nullable="4+", default=None, ignorable=True
    )
    preferred_read_replica: int = f(INT32, "11+", default=-1, ignorable=True)
    records: Buffer | None = f(RECORDS, "0+", nullable="0+")


@struct
class FetchableTopicResponse:
    topic: str = f(STRING, "0-12", ignorable=True)
    topic_id: bytes = f(UUID, "13+", ignorable=True)
    partitions: list[PartitionData] = f(array(PartitionData), "0+")


@struct
class NodeEndpoint:
    node_id: int = f(INT32, "0+")
    host: str = f(STRING, "0+")
    port: int = f(INT32, "0+")
    rack: str | None = f(STRING, "0+", nullable="0+", default=None)


@message("0-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: int = f(INT32, "1+", ignorable=True)
    error_code: int = f(INT16, "7+", ignorable=True)
    session_id: int = f(INT32, "7+", ignorable=True)
    responses: list[FetchableTopicResponse] = f(array(FetchableTopicResponse), "0+")
    node_endpoints: list[NodeEndpoint] = f(array(NodeEndpoint), "16+", tag=0, ignorable=True)


SPEC = ApiSpec(ApiKey.FETCH, FetchRequest, FetchResponse)
