"""Administrator of a simulated cluster: reassigns replicas, changes voters, and replaces a voter with a lost disk.

Each request may fail, since other faults affect the cluster meanwhile; errors that no fault explains are findings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.raft_endpoints import RaftEndpoint
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.registry import ApiKey
from ottla.quorum.raft_types import Voter
from simulation.checkers import Violation
from simulation.client import Client, RequestLost
from simulation.log_clients import RETRIABLE
from simulation.loop import SimLoop
from simulation.network import Address, Network
from simulation.node import SimNode
from simulation.rng import SimRng
from simulation.trace import Trace

MIN_REPLICAS, MAX_REPLICAS = 2, 3
MAX_MOVES = 4
"""Maximum partitions in one reassignment request."""
MIN_VOTERS = 3
TIMEOUT_MS = 4_000
AGAIN_S = 2.0
EXPLAINED = RETRIABLE | {
    ErrorCode.NONE,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,  # it is not registered, or no former replica could lead
    ErrorCode.DUPLICATE_VOTER,
    ErrorCode.VOTER_NOT_FOUND,  # after a lost response to the same request
}


class Administrator:
    """Changes replicas and voters; waits only for responses, except during a repair."""

    def __init__(
        self,
        nodes: Sequence[SimNode],
        loop: SimLoop,
        network: Network,
        rng: SimRng,
        trace: Trace,
        newest: Callable[[], MetadataImage],
    ) -> None:
        """`newest` returns the newest image that any node ever had."""
        self._nodes = nodes
        self._loop = loop
        self._network = network
        self._rng = rng
        self._trace = trace
        self._newest = newest

    async def move_replicas(self) -> None:
        """Start a few reassignments, or cancel some."""
        topics = list(self._newest().topics.values())
        if not topics:
            return
        topic = self._rng.choice(topics)
        chosen = sorted({self._rng.randrange(len(topic.partitions)) for _ in range(1 + self._rng.randrange(MAX_MOVES))})
        back = self._rng.chance(0.2)
        partitions = [
            ReassignablePartition(partition_index=index, replicas=None if back else self._replicas())
            for index in chosen
        ]
        self._trace.note(
            "admin", f"moves {topic.name}: {[(each.partition_index, each.replicas) for each in partitions]}"
        )
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic.name, partitions=partitions)]
        )
        response = await self._ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
        if response is not None:
            self._check("AlterPartitionReassignments", response.error_code)
            for each in [each for topic in response.responses for each in topic.partitions]:
                self._check("AlterPartitionReassignments", each.error_code)

    def _replicas(self) -> list[int]:
        """The new replicas of a partition; the first is the preferred leader."""
        left = [node.config.node_id for node in self._nodes]
        most = min(MAX_REPLICAS, len(left))
        return [
            left.pop(self._rng.randrange(len(left)))
            for _ in range(MIN_REPLICAS + self._rng.randrange(most - MIN_REPLICAS + 1))
        ]

    async def change_voters(self) -> None:
        """Add a node to the voters; if all vote, remove one, if enough remain."""
        voters = self._voters()
        voting = {voter.voter_id for voter in voters}
        others = [node for node in self._nodes if node.config.node_id not in voting]
        if others:
            await self._add(self._rng.choice(others))
        elif len(voters) > MIN_VOTERS:
            await self._remove(self._rng.choice(voters))

    def voters_are_whole(self) -> bool:
        """Whether every voter still has the directory with which it votes, and enough vote."""
        voters = self._voters()
        return len(voters) >= MIN_VOTERS and not self._bereft(voters)

    async def repair(self) -> None:
        """Repair the voter set: remove voters with a lost directory, and add the nodes again."""
        while not self.voters_are_whole():
            bereft = self._bereft(self._voters())
            if bereft:
                await self._remove(bereft[0])
            else:
                await self.change_voters()
            await asyncio.sleep(AGAIN_S)

    def _bereft(self, voters: Sequence[Voter]) -> list[Voter]:
        directories = {node.config.node_id: node.directory_id for node in self._nodes}
        return [voter for voter in voters if directories[voter.voter_id] != voter.directory_id]

    def _voters(self) -> tuple[Voter, ...]:
        """Voters known to the newest leader of the quorum; empty while no node runs."""
        quorums = [node.broker.parts.control.metadata.quorum for node in self._nodes if node.broker is not None]
        newest = max(filter(None, quorums), key=lambda quorum: (quorum.active, quorum.leader.epoch), default=None)
        return () if newest is None else newest.raft.state.voters

    async def _add(self, node: SimNode) -> None:
        self._trace.note("admin", f"adds voter {node.host}")
        endpoint = node.controller_endpoint
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=TIMEOUT_MS,
            voter_id=node.config.node_id,
            voter_directory_id=node.directory_id,
            listeners=[RaftEndpoint(name=endpoint.listener_name, host=endpoint.host, port=endpoint.port)],
        )
        response = await self._ask(ApiKey.ADD_RAFT_VOTER, request)
        if response is not None:
            self._check("AddRaftVoter", response.error_code)

    async def _remove(self, voter: Voter) -> None:
        self._trace.note("admin", f"removes voter {voter.voter_id}")
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=voter.voter_id, voter_directory_id=voter.directory_id
        )
        response = await self._ask(ApiKey.REMOVE_RAFT_VOTER, request)
        if response is not None:
            self._check("RemoveRaftVoter", response.error_code)

    async def _ask(self, key: ApiKey, message: object) -> Any:
        """One request to any broker; None if there was no response."""
        addresses: list[Address] = [node.client_address for node in self._nodes]
        client = Client(self._loop, self._network, "admin", self._rng.choice(addresses))
        try:
            return await client.request(key, 0, message)
        except RequestLost:
            return None
        finally:
            client.close()

    def _check(self, what: str, code: int) -> None:
        self._trace.note("admin", f"{what}: {ErrorCode(code).name}")
        if code not in EXPLAINED:
            raise Violation(f"{what} was answered {ErrorCode(code).name}")
