"""Requests to add and remove voters of the metadata quorum (KIP-853)."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.endpoint import Endpoint
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.protocol.messages.raft_endpoints import RaftEndpoint
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.registry import ApiKey


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
    added: AddRaftVoterResponse = connection.request(ApiKey.ADD_RAFT_VOTER, request, timeout_s=timeout_ms / 1000 + 5.0)
    raise_for(added.error_code, f"node {node_id}", added.error_message)


def remove_voter(connection: Connection, node_id: int, directory_id: Uuid) -> None:
    """Remove a voter, running or not. Raises KafkaError."""
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=directory_id)
    removed: RemoveRaftVoterResponse = connection.request(ApiKey.REMOVE_RAFT_VOTER, request)
    raise_for(removed.error_code, f"node {node_id}", removed.error_message)
