"""Elections from one replica's view: timeouts, pre-votes and votes it requests, responses to them, changes of role.

Requests of other replicas are in `raft_requests`.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import ZERO_UUID
from ottla.common.platform.peer import Address
from ottla.metadata.log import NO_NODE, LeaderAndEpoch
from ottla.quorum.raft_leader import LeaderState
from ottla.quorum.raft_roles import Candidate, Follower, Prospective, Resigned, Unattached, Votes, count_votes
from ottla.quorum.raft_state import RaftState
from ottla.quorum.raft_types import (
    FORGOTTEN_EPOCHS,
    ElectionState,
    Peer,
    ReplicaKey,
    SendBegin,
    SendEnd,
    SendVote,
)


class Elections:
    """Elections from the view of one replica."""

    __slots__ = ("_begin_at", "_started_s", "_state")

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._begin_at = 0.0
        self._started_s: float | None = None
        """When this replica began to seek votes; None while it does not."""

    @property
    def deadline(self) -> float | None:
        """Time of the next `tick`, unless another event comes first."""
        state = self._state
        role = state.role
        if isinstance(role, LeaderState):
            quorum = role.quorum_deadline(state.timeouts.fetch_s)
            if quorum is None:
                return None
            return min(quorum, self._begin_at)
        if isinstance(role, Resigned) or state.may_stand:
            return role.deadline
        return None

    def start(
        self, now: float, stored: ElectionState | None, *, forgotten: int | None = None, must_catch_up: bool = False
    ) -> None:
        """Restore the state of the last run; a single voter elects itself at once.

        `forgotten`: that state is damaged or missing, and this is the last epoch known from elsewhere. Votes may have
        been given in any later epoch, so a voter continues far above it. It does not vote before its log has caught up
        to that epoch: if the state is lost again, the next epoch is computed from the log, and must be above all votes.
        `must_catch_up`: the log was truncated at damage, or an earlier run did not catch up.
        """
        state = self._state
        stored = stored or ElectionState(0)
        if state.log.last_epoch > stored.leader_epoch:
            stored = ElectionState(state.log.last_epoch)
        if not state.is_voter:
            forgotten = None
        # A single voter has no other replica to catch up with.
        must_catch_up = (must_catch_up or forgotten is not None) and not state.is_alone
        state.election = stored._replace(must_catch_up=must_catch_up)
        if forgotten is not None:
            self.become_unattached(now, max(state.log.last_epoch, forgotten) + FORGOTTEN_EPOCHS)
        if state.is_alone:
            self._become_prospective(now)
        elif stored.leader_id == state.local.node_id and state.may_stand:
            # It must not lead this epoch again; the resignation saves the others an election timeout.
            self._become_resigned(now, tuple(voter.key for voter in state.others()))
        elif stored.leader_id not in (NO_NODE, state.local.node_id):
            state.take(Follower(None, now + state.random_fetch_s()))
        else:
            # Sooner than after an election: if there is a leader, the pre-vote disturbs no replica.
            state.take(Unattached(now + state.random_election_s() - state.timeouts.election_s))

    def tick(self, now: float) -> None:
        """Process the passed time; does nothing before `deadline`."""
        state = self._state
        role = state.role
        if isinstance(role, LeaderState):
            self._tick_leader(role, now)
        elif isinstance(role, Resigned):
            if now >= role.deadline and state.may_stand:
                self.become_unattached(now, state.next_epoch())
            elif now >= role.deadline:
                # An observer whose epoch is ahead of the voters' would never find a leader.
                state.take(Unattached(now))
        elif now >= role.deadline and state.may_stand:
            if not isinstance(role, Prospective):
                self._become_prospective(now)
            else:
                self._give_up_pre_vote(now, role)

    def _tick_leader(self, leader: LeaderState, now: float) -> None:
        state = self._state
        quorum = leader.quorum_deadline(state.timeouts.fetch_s)
        if quorum is not None and now >= quorum:
            self.resign(now)
        elif now >= self._begin_at:
            interval = state.timeouts.fetch_s / 2
            self._begin_at = now + interval
            silent = set(leader.silent_voters(now, interval))
            state.effects += [SendBegin(voter, state.epoch) for voter in state.voters if voter.key in silent]

    def resign(self, now: float) -> None:
        """Stop leading, and announce the preferred successors; does nothing on a replica that does not lead."""
        leader = self._state.leading
        if leader is not None:
            self._become_resigned(now, leader.successors())

    # -- responses of other replicas --------------------------------------------------------------------------------

    def vote_answered(
        self, now: float, voter: ReplicaKey, asked: SendVote, error: ErrorCode, peer: Peer, *, granted: bool
    ) -> None:
        """Process the response to a Vote; a response to an earlier election is ignored."""
        if self.learn(now, *peer):
            return
        election = self._election_of(asked)
        if election is None:
            return
        if error is ErrorCode.NONE and granted:
            election.granted.add(voter)
        else:
            election.rejected.add(voter)
        self._count(now, election)

    def vote_unanswered(self, now: float, voter: ReplicaKey, asked: SendVote) -> None:
        """A voter could not be reached; the election continues without it, and counts its vote if it arrives later."""
        election = self._election_of(asked)
        if election is not None and voter not in election.unreached:
            election.unreached.add(voter)
            self._count(now, election)

    def _election_of(self, asked: SendVote) -> Prospective | Candidate | None:
        """Return the election of a request; None if it is over."""
        role = self._state.role
        if asked.epoch != self._state.epoch or not isinstance(role, Prospective | Candidate):
            return None
        return role if isinstance(role, Prospective) is asked.pre_vote else None

    def learn(self, now: float, leader: LeaderAndEpoch, address: Address | None) -> bool:
        """A message names the leader; returns whether the role of this replica changed."""
        state = self._state
        if leader.epoch < state.epoch:
            return False
        if leader.epoch == state.epoch:
            role = state.role
            if isinstance(role, Follower) and role.address is None and leader.leader_id == state.election.leader_id:
                # Followed since before the restart, by a log that may contain no voters and so no addresses.
                role.address = address
            if leader.leader_id == NO_NODE or state.election.leader_id != NO_NODE:
                return False
            if leader.leader_id == state.local.node_id:
                return False
        elif leader.leader_id in (NO_NODE, state.local.node_id):
            self.become_unattached(now, leader.epoch)
            return True
        self.become_follower(now, leader, address)
        return True

    # -- changes of role -------------------------------------------------------------------------------------------

    def become_unattached(self, now: float, epoch: int) -> None:
        """Continue in a newer epoch with an unknown leader."""
        self._state.enter(Unattached(now + self._state.random_election_s()), ElectionState(epoch))

    def become_follower(self, now: float, leader: LeaderAndEpoch, address: Address | None) -> None:
        """Follow the leader of this or a newer epoch."""
        state = self._state
        voted_id, directory_id = NO_NODE, ZERO_UUID
        if leader.epoch == state.epoch:
            voted_id, directory_id = state.election.voted_id, state.election.voted_directory_id
        self._end_election(now)
        election = ElectionState(leader.epoch, leader.leader_id, voted_id, directory_id)
        state.enter(Follower(address, now + state.random_fetch_s()), election)

    def _become_resigned(self, now: float, preferred: tuple[ReplicaKey, ...]) -> None:
        state = self._state
        state.take(Resigned(now + state.random_election_s()))
        state.effects += [SendEnd(voter, state.epoch, preferred) for voter in state.others()]

    def _become_prospective(self, now: float) -> None:
        state = self._state
        lost = state.role if isinstance(state.role, Follower) else None
        if self._started_s is None:
            self._started_s = now
        role = Prospective(state.local, now + state.random_election_s(), lost)
        state.take(role)
        self._ask(pre_vote=True)
        self._count(now, role)

    def _become_candidate(self, now: float) -> None:
        state = self._state
        role = Candidate(state.local, now + state.random_election_s())
        state.enter(
            role,
            ElectionState(state.next_epoch(), NO_NODE, state.local.node_id, state.local.directory_id),
        )
        self._ask(pre_vote=False)
        self._count(now, role)

    def _become_leader(self, now: float) -> None:
        state = self._state
        self._end_election(now)
        role = LeaderState(
            state.local,
            state.epoch,
            state.log.end_offset,
            state.voters,
            state.high_watermark,
            now,
        )
        state.enter(role, state.election._replace(leader_id=state.local.node_id))
        self._begin_at = now + state.timeouts.fetch_s / 2
        state.effects += [SendBegin(voter, state.epoch) for voter in state.others()]

    def _end_election(self, now: float) -> None:
        """A leader is known: measure how long this replica sought votes, if it did."""
        if self._started_s is not None:
            self._state.statistics.elections.add(now - self._started_s)
            self._started_s = None

    def _ask(self, *, pre_vote: bool) -> None:
        state = self._state
        state.effects += [SendVote(voter, state.epoch, pre_vote) for voter in state.others()]

    def _count(self, now: float, role: Prospective | Candidate) -> None:
        """End the election if it is decided."""
        votes = count_votes(role, {voter.key for voter in self._state.voters})
        if votes is Votes.WON:
            if isinstance(role, Prospective):
                self._become_candidate(now)
            else:
                self._become_leader(now)
        elif votes is Votes.LOST:
            if isinstance(role, Prospective):
                self._give_up_pre_vote(now, role)
            else:
                # Two candidates split the votes. The one with the shorter random timeout retries first, and neither
                # waits for the vote of the failed leader.
                role.deadline = min(role.deadline, now + self._state.random_backoff_s())

    def _give_up_pre_vote(self, now: float, role: Prospective) -> None:
        state = self._state
        if role.lost is None:
            state.take(Unattached(now + state.random_election_s()))
        elif role.lost.leader_resigned:
            # It will not lead this epoch again; the voters that refused may not know that yet.
            state.take(Unattached(now + state.random_backoff_s()))
        else:
            self._started_s = None
            state.take(Follower(role.lost.address, now + state.random_fetch_s()))
