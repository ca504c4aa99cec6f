"""BeginQuorumEpoch (key 53): a new leader announces itself to the voters (KIP-595).

1 is flexible and adds the receiver's id and directory and the leader's endpoints (KIP-853).
"""

from __future__ import annotations

from ottla.protocol.messages.raft_endpoints import RaftEndpoint, RaftNode
from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, UUID, array, f, message, struct


@struct
class BeginQuorumEpochPartition:
    partition_index: int = f(INT32, "0+")
    voter_directory_id: bytes = f(UUID, "1+", ignorable=True)
    leader_id: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")


@struct
class BeginQuorumEpochTopic:
    topic_name: str = f(STRING, "0+")
    partitions: list[BeginQuorumEpochPartition] = f(array(BeginQuorumEpochPartition), "0+")


@message("0-1", flexible="1+")
class BeginQuorumEpochRequest:
    cluster_id: str | None = f(STRING, "0+", nullable="0+", default=None)
    voter_id: int = f(INT32, "1+", default=-1, ignorable=True)
    topics: list[BeginQuorumEpochTopic] = f(array(BeginQuorumEpochTopic), "0+")
    leader_endpoints: list[RaftEndpoint] = f(array(RaftEndpoint), "1+", ignorable=True)


@struct
class BeginQuorumEpochPartitionResponse:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    leader_id: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")


@struct
class BeginQuorumEpochTopicResponse:
    topic_name: str = f(STRING, "0+")
    partitions: list[BeginQuorumEpochPartitionResponse] = f(array(BeginQuorumEpochPartitionResponse), "0+")


@message("0-1", flexible="1+")
class BeginQuorumEpochResponse:
    error_code: int = f(INT16, "0+")
    topics: list[BeginQuorumEpochTopicResponse] = f(array(BeginQuorumEpochTopicResponse), "0+")
    node_endpoints: list[RaftNode] = f(array(RaftNode), "1+", tag=0, ignorable=True)


SPEC = ApiSpec(ApiKey.BEGIN_QUORUM_EPOCH, BeginQuorumEpochRequest, BeginQuorumEpochResponse)
