"""FetchSnapshot (key 59): a part of a snapshot of the metadata log, for a replica that is too far behind (KIP-630).

1 adds the directory of the fetching replica and the leader's address (KIP-853).
"""

from __future__ import annotations

from ottla.common.platform.disk import Buffer
from ottla.protocol.messages.raft_endpoints import RaftNode
from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, RECORDS, STRING, UUID, array, f, message, struct


@struct
class FetchSnapshotId:
    end_offset: int = f(INT64, "0+")
    epoch: int = f(INT32, "0+")


@struct
class FetchSnapshotPartition:
    partition: int = f(INT32, "0+")
    current_leader_epoch: int = f(INT32, "0+")
    snapshot_id: FetchSnapshotId = f(FetchSnapshotId, "0+")
    position: int = f(INT64, "0+")
    replica_directory_id: bytes = f(UUID, "1+", tag=0, ignorable=True)


@struct
class FetchSnapshotTopic:
    name: str = f(STRING, "0+")
    partitions: list[FetchSnapshotPartition] = f(array(FetchSnapshotPartition), "0+")


@message("0-1", flexible="0+")
class FetchSnapshotRequest:
    cluster_id: str | None = f(STRING, "0+", nullable="0+", tag=0, default=None)
    replica_id: int = f(INT32, "0+", default=-1)
    max_bytes: int = f(INT32, "0+", default=2147483647)
    topics: list[FetchSnapshotTopic] = f(array(FetchSnapshotTopic), "0+")


@struct
class SnapshotLeaderIdAndEpoch:
    """As in the response to Fetch, but the default is 0 instead of -1."""

    leader_id: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")


@struct
class FetchSnapshotPartitionResponse:
    index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    snapshot_id: FetchSnapshotId = f(FetchSnapshotId, "0+")
    current_leader: SnapshotLeaderIdAndEpoch = f(SnapshotLeaderIdAndEpoch, "0+", tag=0)
    size: int = f(INT64, "0+")
    position: int = f(INT64, "0+")
    unaligned_records: Buffer = f(RECORDS, "0+", default=b"")


@struct
class FetchSnapshotTopicResponse:
    name: str = f(STRING, "0+")
    partitions: list[FetchSnapshotPartitionResponse] = f(array(FetchSnapshotPartitionResponse), "0+")


@message("0-1", flexible="0+")
class FetchSnapshotResponse:
    throttle_time_ms: int = f(INT32, "0+", ignorable=True)
    error_code: int = f(INT16, "0+")
    topics: list[FetchSnapshotTopicResponse] = f(array(FetchSnapshotTopicResponse), "0+")
    node_endpoints: list[RaftNode] = f(array(RaftNode), "1+", tag=0, ignorable=True)


SPEC = ApiSpec(ApiKey.FETCH_SNAPSHOT, FetchSnapshotRequest, FetchSnapshotResponse)
