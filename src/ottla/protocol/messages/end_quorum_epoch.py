"""EndQuorumEpoch (key 54): a leader resigns and names the preferred successors (KIP-595).

1 is flexible, names candidates with their directories and adds the leader's endpoints (KIP-853).
"""

from __future__ import annotations

from ottla.protocol.messages.raft_endpoints import RaftEndpoint, RaftNode
from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, UUID, array, f, message, struct


@struct
class PreferredCandidate:
    candidate_id: int = f(INT32, "1+")
    candidate_directory_id: bytes = f(UUID, "1+")


@struct
class EndQuorumEpochPartition:
    partition_index: int = f(INT32, "0+")
    leader_id: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")
    preferred_successors: list[int] = f(array(INT32), "0", ignorable=True)
    preferred_candidates: list[PreferredCandidate] = f(array(PreferredCandidate), "1+", ignorable=True)


@struct
class EndQuorumEpochTopic:
    topic_name: str = f(STRING, "0+")
    partitions: list[EndQuorumEpochPartition] = f(array(EndQuorumEpochPartition), "0+")


@message("0-1", flexible="1+")
class EndQuorumEpochRequest:
    cluster_id: str | None = f(STRING, "0+", nullable="0+", default=None)
    topics: list[EndQuorumEpochTopic] = f(array(EndQuorumEpochTopic), "0+")
    leader_endpoints: list[RaftEndpoint] = f(array(RaftEndpoint), "1+", ignorable=True)


@struct
class EndQuorumEpochPartitionResponse:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    leader_id: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")


@struct
class EndQuorumEpochTopicResponse:
    topic_name: str = f(STRING, "0+")
    partitions: list[EndQuorumEpochPartitionResponse] = f(array(EndQuorumEpochPartitionResponse), "0+")


@message("0-1", flexible="1+")
class EndQuorumEpochResponse:
    error_code: int = f(INT16, "0+")
    topics: list[EndQuorumEpochTopicResponse] = f(array(EndQuorumEpochTopicResponse), "0+")
    node_endpoints: list[RaftNode] = f(array(RaftNode), "1+", tag=0, ignorable=True)


SPEC = ApiSpec(ApiKey.END_QUORUM_EPOCH, EndQuorumEpochRequest, EndQuorumEpochResponse)
