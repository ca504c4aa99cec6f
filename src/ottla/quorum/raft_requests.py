"""Requests of other replicas in elections: Vote, BeginQuorumEpoch and EndQuorumEpoch. They are untrusted."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import ZERO_UUID
from ottla.common.platform.peer import Address
from ottla.metadata.log import NO_NODE, LeaderAndEpoch
from ottla.quorum.raft_elections import Elections
from ottla.quorum.raft_roles import Follower, Prospective, Unattached
from ottla.quorum.raft_state import RaftState
from ottla.quorum.raft_types import ElectionState, OffsetAndEpoch, ReplicaKey

MAX_EPOCH_STEP = 10
"""Maximum distance of a requested epoch from the own one: more than the elections that fail in a row, and so small that
exhausting all epochs would take weeks of requests.
"""


class ElectionRequests:
    """Responses of one replica."""

    __slots__ = ("_elections", "_state")

    def __init__(self, state: RaftState, elections: Elections) -> None:
        self._state = state
        self._elections = elections

    def vote(
        self,
        now: float,
        asked: ReplicaKey,
        candidate: ReplicaKey,
        epoch: int,
        last: OffsetAndEpoch,
        *,
        pre_vote: bool,
    ) -> tuple[ErrorCode, bool]:
        """Process a Vote request of `candidate`, whose log ends at `last`; returns (error, vote granted).

        `asked` is the voter named in the request, unchanged.
        """
        state = self._state
        if not self._is_addressed(asked):
            return ErrorCode.INVALID_VOTER_KEY, False
        if candidate.node_id < 0 or candidate == state.local:
            return ErrorCode.INVALID_REQUEST, False
        if epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, False
        known = self._is_known(candidate)
        if state.hears_leader(now) or self._is_far(epoch) or not (known or self._may_know_less(asked)):
            return ErrorCode.NONE, False
        granted = (last.epoch, last.end_offset) >= (state.log.last_epoch, state.log.end_offset)
        granted = granted and not state.election.must_catch_up
        if pre_vote:
            return ErrorCode.NONE, granted
        granted = granted and (epoch > state.epoch or self._may_vote_for(candidate))
        if granted:
            election = ElectionState(epoch, NO_NODE, candidate.node_id, candidate.directory_id)
            state.enter(Unattached(now + state.random_election_s()), election)
        elif known and epoch > state.epoch:
            self._elections.become_unattached(now, epoch)
        return ErrorCode.NONE, granted

    def begin_quorum_epoch(
        self, now: float, asked: ReplicaKey, leader: LeaderAndEpoch, address: Address | None
    ) -> ErrorCode:
        """A new leader announces itself; `asked` is the voter named in the request, unchanged."""
        state = self._state
        if not self._is_addressed(asked):
            return ErrorCode.INVALID_VOTER_KEY
        error = self._check_leader(leader)
        if error is not ErrorCode.NONE:
            return error
        heard = state.hears_leader(now)
        if not self._is_voter_id(leader.leader_id) and (heard or not self._may_know_less(asked)):
            return ErrorCode.NONE if leader == state.leader else ErrorCode.INVALID_REQUEST
        if not self._elections.learn(now, leader, address) and not heard:
            role = state.role
            if isinstance(role, Follower) and address is not None:
                role.address = address  # the address of a leader that responds is correct
        return ErrorCode.NONE

    def end_quorum_epoch(self, now: float, leader: LeaderAndEpoch, preferred: tuple[ReplicaKey, ...]) -> ErrorCode:
        """The leader resigns; the first replica in `preferred` starts an election at once, the others after a delay."""
        state = self._state
        error = self._check_leader(leader)
        if error is not ErrorCode.NONE:
            return error
        if leader != state.leader and not self._is_voter_id(leader.leader_id):
            return ErrorCode.INVALID_REQUEST
        self._elections.learn(now, leader, None)
        role = state.role
        if isinstance(role, Follower):
            # An election now disturbs no replica, so pre-votes are granted.
            role.has_fetched = False
            role.leader_resigned = True
            rank = preferred.index(state.local) if state.local in preferred else len(preferred)
            role.deadline = now + state.timeouts.backoff_max_s * rank / max(len(preferred), 1)
        return ErrorCode.NONE

    def _is_addressed(self, asked: ReplicaKey) -> bool:
        """Whether a request names this replica, so that a node with a new directory doesn't answer for its old one."""
        same_node = asked.node_id in (NO_NODE, self._state.replica.node_id)
        return same_node and asked.directory_id in (ZERO_UUID, self._state.replica.directory_id)

    def _is_far(self, epoch: int) -> bool:
        """Whether a requested epoch is so high that only the response of a voter is trusted."""
        return epoch > self._state.epoch + MAX_EPOCH_STEP

    def _is_known(self, replica: ReplicaKey) -> bool:
        return any(voter.key == replica for voter in self._state.voters)

    def _is_voter_id(self, node_id: int) -> bool:
        return any(voter.voter_id == node_id for voter in self._state.voters)

    def _may_know_less(self, asked: ReplicaKey) -> bool:
        """Whether the unknown sender may be a voter by a newer record: then it knows this replica (KIP-853)."""
        return asked == self._state.replica and not self._state.voter_sets.are_configured

    def _may_vote_for(self, candidate: ReplicaKey) -> bool:
        election = self._state.election
        if election.leader_id != NO_NODE or not isinstance(self._state.role, Unattached | Prospective):
            return False
        voted = ReplicaKey(election.voted_id, election.voted_directory_id)
        return voted.node_id == NO_NODE or voted == candidate

    def _check_leader(self, leader: LeaderAndEpoch) -> ErrorCode:
        state = self._state
        if leader.epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if self._is_far(leader.epoch):
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        known = state.election.leader_id
        if leader.leader_id < 0 or leader.leader_id == state.local.node_id:
            return ErrorCode.INVALID_REQUEST
        if leader.epoch == state.epoch and known not in (NO_NODE, leader.leader_id):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE
