"""Vote (key 52): a replica requests a vote or a pre-vote (KIP-595).

1 adds the directory ids of both sides (KIP-853), 2 adds pre-votes and calls the candidate a replica (KIP-996).
"""

from __future__ import annotations

from ottla.protocol.messages.raft_endpoints import RaftNode
from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, INT64, STRING, UUID, array, f, message, struct


@struct
class VotePartition:
    partition_index: int = f(INT32, "0+")
    replica_epoch: int = f(INT32, "0+")
    replica_id: int = f(INT32, "0+")
    replica_directory_id: bytes = f(UUID, "1+", ignorable=True)
    voter_directory_id: bytes = f(UUID, "1+", ignorable=True)
    last_offset_epoch: int = f(INT32, "0+")
    last_offset: int = f(INT64, "0+")
    pre_vote: bool = f(BOOL, "2+")


@struct
class VoteTopic:
    topic_name: str = f(STRING, "0+")
    partitions: list[VotePartition] = f(array(VotePartition), "0+")


@message("0-2", flexible="0+")
class VoteRequest:
    cluster_id: str | None = f(STRING, "0+", nullable="0+", default=None)
    voter_id: int = f(INT32, "1+", default=-1, ignorable=True)
    topics: list[VoteTopic] = f(array(VoteTopic), "0+")


@struct
class VotePartitionResponse:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    leader_id: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")
    vote_granted: bool = f(BOOL, "0+")


@struct
class VoteTopicResponse:
    topic_name: str = f(STRING, "0+")
    partitions: list[VotePartitionResponse] = f(array(VotePartitionResponse), "0+")


@message("0-2", flexible="0+")
class VoteResponse:
    error_code: int = f(INT16, "0+")
    topics: list[VoteTopicResponse] = f(array(VoteTopicResponse), "0+")
    node_endpoints: list[RaftNode] = f(array(RaftNode), "1+", tag=0, ignorable=True)


SPEC = ApiSpec(ApiKey.VOTE, VoteRequest, VoteResponse)
