"""Requests that `quorum.raft` decides: Vote, BeginQuorumEpoch, EndQuorumEpoch, and updates of this voter's address."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.common.platform.clock import Clock, Scheduler
from ottla.common.platform.peer import Address
from ottla.protocol.messages.control_records import KRaftVersionFeature
from ottla.protocol.messages.raft_endpoints import RaftEndpoint
from ottla.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from ottla.quorum.announcer import announce_refusal
from ottla.quorum.config import QuorumTimes
from ottla.quorum.control import KRAFT_VERSION
from ottla.quorum.metadata_log import ReplicaLog
from ottla.quorum.network import QuorumNetwork
from ottla.quorum.raft import Raft
from ottla.quorum.raft_roles import Candidate, Follower, Prospective
from ottla.quorum.raft_types import OffsetAndEpoch, SendBegin, SendEnd, SendVote, Voter
from ottla.quorum.rpc import (
    begin_request,
    end_request,
    read_epoch_response,
    read_vote,
    vote_request,
)

logger = logging.getLogger(__name__)
_RETRY_VOTE_S = 0.1
_RETRY_UPDATE_S = 1.0


def address_of(voter: Voter) -> Address | None:
    """Address of a voter for other controllers: its first endpoint."""
    return None if not voter.endpoints else (voter.endpoints[0][1], voter.endpoints[0][2])


class EffectSender:
    """Sends the requests in `RaftState.effects`, and passes the responses to the rules."""

    __slots__ = (
        "_act",
        "_announced_epoch",
        "_clock",
        "_cluster_id",
        "_endpoints",
        "_log",
        "_network",
        "_raft",
        "_scheduler",
        "_times",
        "_updating",
    )

    def __init__(
        self,
        raft: Raft,
        log: ReplicaLog,
        network: QuorumNetwork,
        act: Callable[[], None],
        *,
        clock: Clock,
        scheduler: Scheduler,
        cluster_id: str,
        times: QuorumTimes,
        endpoints: tuple[tuple[str, str, int], ...],
    ) -> None:
        """`act` is called after each response; `endpoints` are those of this voter."""
        self._raft = raft
        self._log = log
        self._network = network
        self._act = act
        self._clock = clock
        self._scheduler = scheduler
        self._cluster_id = cluster_id
        self._times = times
        self._endpoints = endpoints
        self._updating = False
        self._announced_epoch = -1

    def send(self, effect: SendVote | SendBegin | SendEnd) -> None:
        """Send a request; the rules or a retry handle a missing response."""
        if isinstance(effect, SendVote):
            self._send_vote(effect)
        elif isinstance(effect, SendBegin):
            message = begin_request(self._cluster_id, self._raft.state.leader, effect.to, self._own_voter())
            self._send_epoch(effect.to, message)
        else:
            request = end_request(self._cluster_id, self._raft.state.local.node_id, effect, self._own_voter())
            self._send_epoch(effect.to, request)

    def _own_voter(self) -> Voter:
        return Voter(*self._raft.state.replica, self._endpoints)

    def _send_vote(self, asked: SendVote) -> None:
        address = address_of(asked.to)
        if address is None:
            return
        log_end = OffsetAndEpoch(self._log.end_offset, self._log.last_epoch)
        message = vote_request(self._cluster_id, self._raft.state.replica, asked, log_end)

        def answered(response: Any, error: BaseException | None) -> None:
            if error is not None:
                logger.debug("Vote request to node %d failed: %s", asked.to.voter_id, error)
                self._scheduler.call_later(_RETRY_VOTE_S, self._retry_vote, asked)
                self._raft.elections.vote_unanswered(self._clock.monotonic(), asked.to.key, asked)
                self._act()
                return
            answer = read_vote(response)
            announce_refusal(address, answer.error)
            granted = answer.partition is not None and answer.partition.vote_granted
            now = self._clock.monotonic()
            self._raft.elections.vote_answered(now, asked.to.key, asked, answer.error, answer.peer, granted=granted)
            self._act()

        self._network.send(address, message, answered, self._times.request_s)

    def _retry_vote(self, asked: SendVote) -> None:
        """Retry an unreachable voter while the election lasts."""
        role = self._raft.state.role
        if self._raft.state.epoch == asked.epoch and isinstance(role, Prospective if asked.pre_vote else Candidate):
            self._send_vote(asked)

    def _send_epoch(self, to: Voter, message: object) -> None:
        address = address_of(to)
        if address is None:
            return

        def answered(response: Any, error: BaseException | None) -> None:
            if error is not None:
                logger.debug("epoch announcement to node %d failed: %s", to.voter_id, error)
                return
            self._raft.elections.learn(self._clock.monotonic(), *read_epoch_response(response).peer)
            self._act()

        self._network.send(address, message, answered, self._times.request_s)

    # -- the address in the set of voters ----------------------------------------------------------------------------

    def update_own_voter(self) -> None:
        """Send UpdateRaftVoter until the voters record contains this voter's endpoints.

        A configured voter sends its endpoints and directory to each leader: a record may name it with them.
        """
        raft = self._raft
        address = raft.state.leader_address
        if self._updating or not isinstance(raft.state.role, Follower) or address is None or not self._is_outdated():
            return
        self._updating = True
        epoch, configured = raft.state.epoch, raft.state.voter_sets.are_configured
        message = UpdateRaftVoterRequest(
            cluster_id=self._cluster_id,
            current_leader_epoch=epoch,
            voter_id=raft.state.replica.node_id,
            voter_directory_id=raft.state.replica.directory_id,
            listeners=[RaftEndpoint(name=name, host=host, port=port) for name, host, port in self._endpoints],
            k_raft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=KRAFT_VERSION),
        )

        def answered(response: Any, error: BaseException | None) -> None:
            code = ErrorCode.for_code(response.error_code) if error is None else None
            if code is not ErrorCode.NONE:
                logger.debug("the leader rejected the new address: %s", error or code)
            if configured and code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
                self._announced_epoch = epoch  # an older leader does not support it
            self._scheduler.call_later(_RETRY_UPDATE_S, self._update_again)

        self._network.send(address, message, answered, self._times.request_s)

    def _is_outdated(self) -> bool:
        """Whether the leader has to be sent the endpoints of this voter."""
        raft = self._raft
        if not self._endpoints:
            return False
        if raft.state.voter_sets.are_configured:
            return raft.state.is_voter and self._announced_epoch != raft.state.epoch
        known = next((voter for voter in raft.state.voters if voter.key == raft.state.local), None)
        return known is not None and known.endpoints != self._endpoints

    def _update_again(self) -> None:
        self._updating = False
        self._act()
