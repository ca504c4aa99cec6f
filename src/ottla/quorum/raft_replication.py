"""Replication of the metadata log: fetches of followers, records on disk, and the high watermark."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, InvariantError
from ottla.metadata.log import NO_NODE
from ottla.quorum.log_matching import compare_logs, has_caught_up
from ottla.quorum.raft_elections import Elections
from ottla.quorum.raft_leader import LeaderState
from ottla.quorum.raft_roles import Follower, Unattached
from ottla.quorum.raft_state import RaftState
from ottla.quorum.raft_types import FetchVerdict, OffsetAndEpoch, Peer, Persist, ReplicaKey, SendBegin, Voter


class LogReplication:
    """Replication from the view of one replica."""

    __slots__ = ("_elections", "_state")

    def __init__(self, state: RaftState, elections: Elections) -> None:
        self._state = state
        self._elections = elections

    # -- the leader ------------------------------------------------------------------------------------------------

    def check_fetch_epoch(self, epoch: int) -> ErrorCode:
        """The error for a Fetch of `epoch`: NONE if this replica leads it and may serve followers."""
        state = self._state
        if epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > state.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if state.leading is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def fetch(self, now: float, now_ms: int, replica: ReplicaKey, epoch: int, log_end: OffsetAndEpoch) -> FetchVerdict:
        """Process a Fetch of `replica`, whose log ends at `log_end` and is on disk."""
        state = self._state
        error = self.check_fetch_epoch(epoch)
        leader = state.leading
        if leader is not None and error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            self._query_replica_ahead(now, leader, replica)
        if error is not ErrorCode.NONE or leader is None:
            return FetchVerdict(error)
        if log_end.end_offset < 0 or log_end.epoch < 0:
            return FetchVerdict(ErrorCode.INVALID_REQUEST)
        verdict = compare_logs(state.log, log_end)
        if replica.node_id < 0:
            return verdict
        if verdict.diverging or verdict.snapshot:
            leader.heard_of(replica, now)
        elif leader.fetched(replica, log_end.end_offset, state.log.end_offset, now, now_ms):
            self._advanced(now, leader)
        return verdict

    def _query_replica_ahead(self, now: float, leader: LeaderState, replica: ReplicaKey) -> None:
        """A current or former voter that was candidate in an epoch unknown to all others can't follow before another
        epoch begins: send it a request, whose response contains that epoch.
        """
        state = self._state
        voter = state.voter_sets.find(replica)
        if voter is not None and voter.key != state.local and leader.asks_again(now, state.timeouts.fetch_s / 2):
            state.effects.append(SendBegin(voter, state.epoch))

    def flushed(self, now: float, end_offset: int) -> None:
        """Everything before `end_offset` is on disk here."""
        leader = self._state.leading
        if leader is not None and leader.flushed(end_offset):
            self._advanced(now, leader)

    def voters_appended(self, now: float, offset: int, voters: tuple[Voter, ...]) -> None:
        """A record at `offset` names other voters, which are in force from now on."""
        state = self._state
        state.voter_sets.add(offset, voters)
        leader = state.leading
        if leader is not None and leader.set_voters(voters, now, state.local):
            self._advanced(now, leader)

    def _advanced(self, now: float, leader: LeaderState) -> None:
        state = self._state
        state.high_watermark = leader.high_watermark
        if not state.is_voter and state.high_watermark > state.voter_sets.latest_offset:
            self._elections.resign(now)  # its own removal is committed

    # -- a follower ------------------------------------------------------------------------------------------------

    def fetch_answered(self, now: float, asked_epoch: int, error: ErrorCode, peer: Peer) -> bool:
        """Process a response to Fetch or FetchSnapshot; returns whether it comes from the leader that this replica
        follows.
        """
        state = self._state
        if self._elections.learn(now, *peer):
            return False
        if error is not ErrorCode.NONE or asked_epoch != state.epoch:
            return False
        if peer.leader.leader_id not in (NO_NODE, state.election.leader_id):
            return False
        known = (state.election.leader_id, state.epoch)
        if isinstance(state.role, Unattached) and peer.leader == known and known[0] != NO_NODE:
            # It still leads this epoch, despite the resignation: no other leader will, and no epoch may follow.
            self._elections.become_follower(now, peer.leader, peer.address)
        role = state.role
        if not isinstance(role, Follower):
            return False
        role.has_fetched = True
        role.deadline = now + state.random_fetch_s()
        return True

    def leader_says(self, high_watermark: int) -> None:
        """Use the leader's high watermark, after the records of its response were appended."""
        state = self._state
        state.high_watermark = max(state.high_watermark, min(high_watermark, state.log.end_offset))
        if state.election.must_catch_up and has_caught_up(state.log, state.epoch, high_watermark):
            state.election = state.election._replace(must_catch_up=False)
            state.effects.append(Persist(state.election))

    def truncated(self, end_offset: int) -> None:
        """The log was truncated; raises InvariantError if that removed a committed record."""
        if end_offset < self._state.high_watermark:
            raise InvariantError(f"the metadata log was truncated to {end_offset}, below the high watermark")
        self._state.voter_sets.truncate_to(end_offset)
