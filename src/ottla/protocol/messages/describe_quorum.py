"""DescribeQuorum (key 55): leader, voters and observers of the metadata log, and their log end offsets.

1 adds the times of the last fetch and of being caught up (KIP-836), 2 error texts, directories and addresses (KIP-853).
"""

from __future__ import annotations

from ottla.protocol.messages.raft_endpoints import RaftEndpoint
from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, STRING, UUID, array, f, message, struct


@struct
class DescribeQuorumPartition:
    partition_index: int = f(INT32, "0+")


@struct
class DescribeQuorumTopic:
    topic_name: str = f(STRING, "0+")
    partitions: list[DescribeQuorumPartition] = f(array(DescribeQuorumPartition), "0+")


@message("0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[DescribeQuorumTopic] = f(array(DescribeQuorumTopic), "0+")


@struct
class QuorumReplica:
    replica_id: int = f(INT32, "0+")
    replica_directory_id: bytes = f(UUID, "2+", ignorable=True)
    log_end_offset: int = f(INT64, "0+")
    last_fetch_timestamp: int = f(INT64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = f(INT64, "1+", default=-1, ignorable=True)


@struct
class DescribeQuorumPartitionResponse:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "2+", nullable="2+", ignorable=True)
    leader_id: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")
    high_watermark: int = f(INT64, "0+")
    current_voters: list[QuorumReplica] = f(array(QuorumReplica), "0+")
    observers: list[QuorumReplica] = f(array(QuorumReplica), "0+")


@struct
class DescribeQuorumTopicResponse:
    topic_name: str = f(STRING, "0+")
    partitions: list[DescribeQuorumPartitionResponse] = f(array(DescribeQuorumPartitionResponse), "0+")


@struct
class QuorumNode:
    node_id: int = f(INT32, "2+")
    listeners: list[RaftEndpoint] = f(array(RaftEndpoint), "2+")


@message("0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "2+", nullable="2+", ignorable=True)
    topics: list[DescribeQuorumTopicResponse] = f(array(DescribeQuorumTopicResponse), "0+")
    nodes: list[QuorumNode] = f(array(QuorumNode), "2+", ignorable=True)


SPEC = ApiSpec(ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest, DescribeQuorumResponse)
