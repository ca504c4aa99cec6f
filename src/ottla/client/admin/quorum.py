"""The quorum of the metadata log and its voters (KIP-853): requests, and the service `Cluster.quorum`.

Conventions of the request functions and services: see `client.admin.topics`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.client.admin.router import ClusterService, request_timeout_s
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for, response_error
from ottla.client.wire.model import QuorumInfo, QuorumReplicaInfo
from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.endpoint import Endpoint
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    QuorumReplica,
)
from ottla.protocol.messages.raft_endpoints import RaftEndpoint
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.registry import ApiKey

METADATA_TOPIC = "__cluster_metadata"


def describe_quorum(connection: Connection) -> QuorumInfo:
    """DescribeQuorum of the metadata log."""
    topic = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition(partition_index=0)])
    response: DescribeQuorumResponse = connection.request(ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest(topics=[topic]))
    raise_for(response.error_code, "the quorum", response.error_message)
    for found in (partition for each in response.topics for partition in each.partitions):
        raise_for(found.error_code, "the quorum", found.error_message)
        return QuorumInfo(
            found.leader_id,
            found.leader_epoch,
            found.high_watermark,
            _replicas(found.current_voters),
            _replicas(found.observers),
            {
                node.node_id: tuple(Endpoint(each.name, "", each.host, each.port) for each in node.listeners)
                for node in response.nodes
            },
        )
    raise response_error(ErrorCode.UNKNOWN_SERVER_ERROR, "the quorum", "the response contains no partition")


def _replicas(items: Iterable[QuorumReplica]) -> tuple[QuorumReplicaInfo, ...]:
    return tuple(
        QuorumReplicaInfo(
            item.replica_id,
            item.replica_directory_id,
            item.log_end_offset,
            item.last_fetch_timestamp,
            item.last_caught_up_timestamp,
        )
        for item in items
    )


def add_voter(
    connection: Connection, node_id: int, directory_id: Uuid, listeners: Sequence[Endpoint], timeout_ms: int
) -> None:
    """Make a caught-up observer a voter, which others reach at `listeners`. Raises KafkaError."""
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=timeout_ms,
        voter_id=node_id,
        voter_directory_id=directory_id,
        listeners=[RaftEndpoint(name=each.listener_name, host=each.host, port=each.port) for each in listeners],
    )
    added: AddRaftVoterResponse = connection.request(
        ApiKey.ADD_RAFT_VOTER, request, timeout_s=request_timeout_s(timeout_ms)
    )
    raise_for(added.error_code, f"node {node_id}", added.error_message)


def remove_voter(connection: Connection, node_id: int, directory_id: Uuid) -> None:
    """Remove a voter, running or not. Raises KafkaError."""
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=directory_id)
    removed: RemoveRaftVoterResponse = connection.request(ApiKey.REMOVE_RAFT_VOTER, request)
    raise_for(removed.error_code, f"node {node_id}", removed.error_message)


class MetadataQuorumService(ClusterService):
    """The quorum of the metadata log."""

    def describe(self) -> QuorumInfo:
        """Leader, voters and observers of the metadata log."""
        return self._router.retry(lambda: describe_quorum(self._router.any_connection()))

    def add_voter(self, node_id: int, directory_id: Uuid, listeners: Sequence[Endpoint]) -> None:
        """Make a caught-up observer a voter, which others reach at `listeners`. Raises KafkaError."""
        timeout_ms = self._router.timeout_ms()
        self._router.change(lambda connection: add_voter(connection, node_id, directory_id, listeners, timeout_ms))

    def remove_voter(self, node_id: int, directory_id: Uuid) -> None:
        """Remove a voter, running or not. Raises KafkaError."""
        self._router.change(lambda connection: remove_voter(connection, node_id, directory_id))
