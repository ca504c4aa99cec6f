"""A controller that adds itself to the voters (`controller.quorum.auto.join.enable`, KIP-853).

Once it follows the leader it requests to be added. If the voters still name its node with an old directory, it first
requests the removal of that one. The leader decides both, one change at a time and each by a majority. The
set of voters is checked again after a pause, after success or failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ottla.common.platform.clock import Scheduler
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.raft_endpoints import RaftEndpoint
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.quorum.network import QuorumNetwork
from ottla.quorum.raft import Raft
from ottla.quorum.raft_roles import Follower

logger = logging.getLogger(__name__)
PAUSE_S = 1.0
"""Pause between two requests, in seconds: usually a pending change is committed by then."""


class VoterJoiner:
    """Runs on the loop; `poll` is called after every event."""

    __slots__ = ("_act", "_cluster_id", "_endpoints", "_network", "_raft", "_request_s", "_scheduler", "_waiting")

    def __init__(
        self,
        raft: Raft,
        network: QuorumNetwork,
        act: Callable[[], None],
        *,
        scheduler: Scheduler,
        cluster_id: str,
        request_s: float,
        endpoints: tuple[tuple[str, str, int], ...],
    ) -> None:
        """`act` is called when it is time to check again; `endpoints` are the own."""
        self._raft = raft
        self._network = network
        self._act = act
        self._scheduler = scheduler
        self._cluster_id = cluster_id
        self._request_s = request_s
        self._endpoints = endpoints
        self._waiting = False

    def poll(self) -> None:
        """Send a request, if this replica follows a leader, has no vote, and no request or pause is pending."""
        raft = self._raft
        role, address = raft.state.role, raft.state.leader_address
        if self._waiting or address is None or not isinstance(role, Follower) or not role.has_fetched:
            return
        if raft.state.is_voter or not raft.state.voter_sets.recorded:
            return
        self._waiting = True
        self._network.send(address, self._request(), self._answered, self._request_s)

    def _request(self) -> AddRaftVoterRequest | RemoveRaftVoterRequest:
        local = self._raft.state.local
        for voter in self._raft.state.voters:
            if voter.voter_id == local.node_id:
                return RemoveRaftVoterRequest(
                    cluster_id=self._cluster_id, voter_id=voter.voter_id, voter_directory_id=voter.directory_id
                )
        return AddRaftVoterRequest(
            cluster_id=self._cluster_id,
            timeout_ms=int(self._request_s * 1000),
            voter_id=local.node_id,
            voter_directory_id=local.directory_id,
            listeners=[RaftEndpoint(name=name, host=host, port=port) for name, host, port in self._endpoints],
            ack_when_committed=False,
        )

    def _answered(self, response: Any, error: BaseException | None) -> None:
        if error is not None or response.error_code:
            logger.debug("this node is not a voter yet: %s", error or response.error_message)
        self._scheduler.call_later(PAUSE_S, self._rested)

    def _rested(self) -> None:
        self._waiting = False
        self._act()
