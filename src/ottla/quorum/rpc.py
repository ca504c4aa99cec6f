"""Requests and responses of the quorum: conversion between `quorum.raft_types` and Kafka's messages.

Each names one partition, that of the metadata log; a request for any other, or for several, is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import METADATA_TOPIC_ID
from ottla.common.platform.disk import Buffer
from ottla.common.platform.peer import Address
from ottla.metadata.log import NO_NODE, LeaderAndEpoch
from ottla.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochPartition,
    BeginQuorumEpochPartitionResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    BeginQuorumEpochTopic,
    BeginQuorumEpochTopicResponse,
)
from ottla.protocol.messages.end_quorum_epoch import (
    EndQuorumEpochPartition,
    EndQuorumEpochPartitionResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EndQuorumEpochTopic,
    EndQuorumEpochTopicResponse,
    PreferredCandidate,
)
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.messages.fetch import SnapshotId as FetchedSnapshotId
from ottla.protocol.messages.fetch_snapshot import (
    FetchSnapshotId,
    FetchSnapshotPartition,
    FetchSnapshotPartitionResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotTopic,
    FetchSnapshotTopicResponse,
    SnapshotLeaderIdAndEpoch,
)
from ottla.protocol.messages.raft_endpoints import RaftEndpoint, RaftNode
from ottla.protocol.messages.vote import (
    VotePartition,
    VotePartitionResponse,
    VoteRequest,
    VoteResponse,
    VoteTopic,
    VoteTopicResponse,
)
from ottla.quorum.raft_types import (
    FetchVerdict,
    OffsetAndEpoch,
    Peer,
    ReplicaKey,
    SendEnd,
    SendVote,
    Voter,
)
from ottla.storage.files.names import METADATA_TOPIC

UNKNOWN_PEER = Peer(LeaderAndEpoch(NO_NODE, -1))


class QuorumResponse(NamedTuple):
    """A parsed response: error, the leader that its sender knows, and the part for the metadata log."""

    error: ErrorCode
    peer: Peer
    partition: Any


def only_partition(topics: Sequence[Any], name_of: str, index_of: str) -> Any:
    """Return the part of a request for the metadata log, from lists with these attribute names.

    Raises KafkaError INVALID_REQUEST if the request names another partition or several.
    """
    if len(topics) != 1 or getattr(topics[0], name_of) != METADATA_TOPIC or len(topics[0].partitions) != 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request must be about the metadata log only")
    partition = topics[0].partitions[0]
    if getattr(partition, index_of) != 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the metadata log has one partition")
    return partition


def only_fetch_partition(request: FetchRequest) -> FetchPartition:
    """As `only_partition`, for a Fetch, which names the topic by its id."""
    topics = request.topics
    named = len(topics) == 1 and topics[0].topic_id == METADATA_TOPIC_ID and len(topics[0].partitions) == 1
    if not named or topics[0].partitions[0].partition != 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request must be about the metadata log only")
    return topics[0].partitions[0]


def _nodes(leader: LeaderAndEpoch, address: Address | None) -> list[RaftNode]:
    if leader.leader_id == NO_NODE or address is None:
        return []
    return [RaftNode(node_id=leader.leader_id, host=address[0], port=address[1])]


def _peer(leader_id: int, leader_epoch: int, nodes: Sequence[Any]) -> Peer:
    address = next(((node.host, node.port) for node in nodes if node.node_id == leader_id), None)
    return Peer(LeaderAndEpoch(leader_id, leader_epoch), address)


def _read(response: Any, topics: Sequence[Any]) -> QuorumResponse:
    if response.error_code or len(topics) != 1 or len(topics[0].partitions) != 1:
        return QuorumResponse(
            ErrorCode.for_code(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR), UNKNOWN_PEER, None
        )
    partition = topics[0].partitions[0]
    peer = _peer(partition.leader_id, partition.leader_epoch, response.node_endpoints)
    return QuorumResponse(ErrorCode.for_code(partition.error_code), peer, partition)


# -- Vote ------------------------------------------------------------------------------------------------------------


def vote_request(cluster_id: str, local: ReplicaKey, asked: SendVote, log_end: OffsetAndEpoch) -> VoteRequest:
    """`log_end` is that of this replica's log."""
    partition = VotePartition(
        replica_epoch=asked.epoch,
        replica_id=local.node_id,
        replica_directory_id=local.directory_id,
        voter_directory_id=asked.to.directory_id,
        last_offset_epoch=log_end.epoch,
        last_offset=log_end.end_offset,
        pre_vote=asked.pre_vote,
    )
    topics = [VoteTopic(topic_name=METADATA_TOPIC, partitions=[partition])]
    return VoteRequest(cluster_id=cluster_id, voter_id=asked.to.voter_id, topics=topics)


def vote_response(error: ErrorCode, leader: LeaderAndEpoch, address: Address | None, *, granted: bool) -> VoteResponse:
    partition = VotePartitionResponse(
        error_code=error, leader_id=leader.leader_id, leader_epoch=leader.epoch, vote_granted=granted
    )
    topics = [VoteTopicResponse(topic_name=METADATA_TOPIC, partitions=[partition])]
    return VoteResponse(topics=topics, node_endpoints=_nodes(leader, address))


def read_vote(response: VoteResponse) -> QuorumResponse:
    """`partition.vote_granted` is the vote."""
    return _read(response, response.topics)


# -- BeginQuorumEpoch, EndQuorumEpoch --------------------------------------------------------------------------------


def raft_endpoints(voter: Voter | None) -> list[RaftEndpoint]:
    return [RaftEndpoint(name=name, host=host, port=port) for name, host, port in (voter.endpoints if voter else ())]


def begin_request(cluster_id: str, leader: LeaderAndEpoch, to: Voter, own: Voter | None) -> BeginQuorumEpochRequest:
    """`own` is the leader as a voter, with its endpoints."""
    partition = BeginQuorumEpochPartition(
        voter_directory_id=to.directory_id, leader_id=leader.leader_id, leader_epoch=leader.epoch
    )
    topics = [BeginQuorumEpochTopic(topic_name=METADATA_TOPIC, partitions=[partition])]
    return BeginQuorumEpochRequest(
        cluster_id=cluster_id, voter_id=to.voter_id, topics=topics, leader_endpoints=raft_endpoints(own)
    )


def begin_response(error: ErrorCode, leader: LeaderAndEpoch, address: Address | None) -> BeginQuorumEpochResponse:
    partition = BeginQuorumEpochPartitionResponse(
        error_code=error, leader_id=leader.leader_id, leader_epoch=leader.epoch
    )
    topics = [BeginQuorumEpochTopicResponse(topic_name=METADATA_TOPIC, partitions=[partition])]
    return BeginQuorumEpochResponse(topics=topics, node_endpoints=_nodes(leader, address))


def end_request(cluster_id: str, leader_id: int, asked: SendEnd, own: Voter | None) -> EndQuorumEpochRequest:
    candidates = [
        PreferredCandidate(candidate_id=key.node_id, candidate_directory_id=key.directory_id) for key in asked.preferred
    ]
    partition = EndQuorumEpochPartition(leader_id=leader_id, leader_epoch=asked.epoch, preferred_candidates=candidates)
    topics = [EndQuorumEpochTopic(topic_name=METADATA_TOPIC, partitions=[partition])]
    return EndQuorumEpochRequest(cluster_id=cluster_id, topics=topics, leader_endpoints=raft_endpoints(own))


def end_response(error: ErrorCode, leader: LeaderAndEpoch, address: Address | None) -> EndQuorumEpochResponse:
    partition = EndQuorumEpochPartitionResponse(error_code=error, leader_id=leader.leader_id, leader_epoch=leader.epoch)
    topics = [EndQuorumEpochTopicResponse(topic_name=METADATA_TOPIC, partitions=[partition])]
    return EndQuorumEpochResponse(topics=topics, node_endpoints=_nodes(leader, address))


def read_epoch_response(response: BeginQuorumEpochResponse | EndQuorumEpochResponse) -> QuorumResponse:
    return _read(response, response.topics)


# -- Fetch -----------------------------------------------------------------------------------------------------------


def fetch_request(
    cluster_id: str,
    local: ReplicaKey,
    epoch: int,
    log_end: OffsetAndEpoch,
    high_watermark: int,
    *,
    max_wait_ms: int,
    max_bytes: int,
) -> FetchRequest:
    """A Fetch of the metadata log from this replica's log end on (KIP-595)."""
    partition = FetchPartition(
        current_leader_epoch=epoch,
        fetch_offset=log_end.end_offset,
        last_fetched_epoch=log_end.epoch,
        partition_max_bytes=max_bytes,
        replica_directory_id=local.directory_id,
        high_watermark=high_watermark,
    )
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=ReplicaState(replica_id=local.node_id),
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def fetch_response(
    verdict: FetchVerdict,
    leader: LeaderAndEpoch,
    address: Address | None,
    *,
    high_watermark: int = -1,
    log_start_offset: int = -1,
    records: Buffer | None = b"",
) -> FetchResponse:
    partition = PartitionData(
        error_code=verdict.error,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=log_start_offset,
        current_leader=LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.epoch),
        records=records,
    )
    if verdict.diverging is not None:
        partition.diverging_epoch = EpochEndOffset(
            epoch=verdict.diverging.epoch, end_offset=verdict.diverging.end_offset
        )
    if verdict.snapshot is not None:
        partition.snapshot_id = FetchedSnapshotId(end_offset=verdict.snapshot.end_offset, epoch=verdict.snapshot.epoch)
    topic = FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    nodes = [NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port) for node in _nodes(leader, address)]
    return FetchResponse(responses=[topic], node_endpoints=nodes)


def read_fetch(response: FetchResponse) -> QuorumResponse:
    """`partition` is a PartitionData."""
    topics = response.responses
    if response.error_code or len(topics) != 1 or len(topics[0].partitions) != 1:
        return QuorumResponse(
            ErrorCode.for_code(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR), UNKNOWN_PEER, None
        )
    partition = topics[0].partitions[0]
    leader = partition.current_leader
    peer = _peer(leader.leader_id, leader.leader_epoch, response.node_endpoints)
    return QuorumResponse(ErrorCode.for_code(partition.error_code), peer, partition)


# -- FetchSnapshot ---------------------------------------------------------------------------------------------------


def snapshot_request(
    cluster_id: str, local: ReplicaKey, epoch: int, snapshot: OffsetAndEpoch, position: int, max_bytes: int
) -> FetchSnapshotRequest:
    partition = FetchSnapshotPartition(
        current_leader_epoch=epoch,
        snapshot_id=FetchSnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=local.directory_id,
    )
    return FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=local.node_id,
        max_bytes=max_bytes,
        topics=[FetchSnapshotTopic(name=METADATA_TOPIC, partitions=[partition])],
    )


def snapshot_response(
    error: ErrorCode,
    leader: LeaderAndEpoch,
    address: Address | None,
    snapshot: OffsetAndEpoch,
    *,
    size: int = 0,
    position: int = 0,
    piece: Buffer = b"",
) -> FetchSnapshotResponse:
    partition = FetchSnapshotPartitionResponse(
        error_code=error,
        snapshot_id=FetchSnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        current_leader=SnapshotLeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.epoch),
        size=size,
        position=position,
        unaligned_records=piece,
    )
    topics = [FetchSnapshotTopicResponse(name=METADATA_TOPIC, partitions=[partition])]
    return FetchSnapshotResponse(topics=topics, node_endpoints=_nodes(leader, address))


def read_snapshot_piece(response: FetchSnapshotResponse) -> QuorumResponse:
    """`partition` is a FetchSnapshotPartitionResponse."""
    topics = response.topics
    if response.error_code or len(topics) != 1 or len(topics[0].partitions) != 1:
        return QuorumResponse(
            ErrorCode.for_code(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR), UNKNOWN_PEER, None
        )
    partition = topics[0].partitions[0]
    leader = partition.current_leader
    peer = _peer(leader.leader_id, leader.leader_epoch, response.node_endpoints)
    return QuorumResponse(ErrorCode.for_code(partition.error_code), peer, partition)
