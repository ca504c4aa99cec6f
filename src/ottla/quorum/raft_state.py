"""State of one replica of the metadata log: role, election, voters and high watermark, and the effects to carry out.

The rules of `raft_elections`, `raft_requests` and `raft_replication` change it by events; all others only read it.
"""

from __future__ import annotations

from ottla.common.errors import InvariantError
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.clock import Rng
from ottla.common.platform.peer import Address
from ottla.metadata.log import NO_NODE, LeaderAndEpoch
from ottla.quorum.raft_leader import LeaderState
from ottla.quorum.raft_roles import ROLE_NAMES, Follower, Prospective, Role, Unattached
from ottla.quorum.raft_types import (
    MAX_LEADER_EPOCH,
    Effect,
    ElectionState,
    Persist,
    QuorumStatistics,
    RaftLog,
    ReplicaKey,
    Standing,
    Timeouts,
    Transition,
    Voter,
)
from ottla.quorum.raft_voters import VoterSets

_ROLES_WITH_LEADER = (Follower, Prospective, LeaderState)
_RANDOM_STEPS = 1000
_IMPATIENCE = 0.1
"""Maximum share of the fetch timeout by which a follower times out earlier than another: all lose the leader at the
same time, and simultaneous candidates split the votes.
"""


class RaftState:
    """State of one replica. `now` is always the loop's time in seconds."""

    __slots__ = (
        "_rng",
        "_standing",
        "effects",
        "election",
        "high_watermark",
        "log",
        "replica",
        "role",
        "statistics",
        "timeouts",
        "transitions",
        "voter_sets",
    )

    def __init__(
        self, local: ReplicaKey, log: RaftLog, rng: Rng, timeouts: Timeouts, voter_sets: VoterSets, high_watermark: int
    ) -> None:
        """`high_watermark` is the offset known to be committed: the end of the newest snapshot."""
        self.replica = local
        """This replica as named in requests: with its directory, even if voters have none."""
        self.log = log
        self._rng = rng
        self.timeouts = timeouts
        self.voter_sets = voter_sets
        self.high_watermark = high_watermark
        self.election = ElectionState(0)
        self.role: Role = Unattached(0.0)
        self.effects: list[Effect] = []
        self.transitions: list[Transition] = []
        self.statistics = QuorumStatistics()
        self._standing: Standing | None = None

    @property
    def local(self) -> ReplicaKey:
        """This replica as a key among the voters."""
        return self.voter_sets.key_of(self.replica)

    def key(self, node_id: int, directory_id: Uuid) -> ReplicaKey:
        """The key of a replica named by a request."""
        return self.voter_sets.key_of(ReplicaKey(node_id, directory_id))

    @property
    def epoch(self) -> int:
        return self.election.leader_epoch

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader as reported to others: none after it resigned."""
        if isinstance(self.role, _ROLES_WITH_LEADER):
            return LeaderAndEpoch(self.election.leader_id, self.election.leader_epoch)
        return LeaderAndEpoch(NO_NODE, self.election.leader_epoch)

    @property
    def voters(self) -> tuple[Voter, ...]:
        """Voters of the newest record, committed or not."""
        return self.voter_sets.latest

    def others(self) -> list[Voter]:
        """The voters except this replica."""
        local = self.local
        return [voter for voter in self.voters if voter.key != local]

    @property
    def is_voter(self) -> bool:
        local = self.local
        return any(voter.key == local for voter in self.voters)

    @property
    def may_stand(self) -> bool:
        """Whether it may become a candidate: also if an uncommitted record removes it.

        No other log may contain that record, and then only this replica has the log to be elected with. False while it
        must catch up first.
        """
        if self.election.must_catch_up:
            return False
        sets, local = self.voter_sets.in_force(self.high_watermark), self.local
        return any(voter.key == local for voters in sets for voter in voters)

    @property
    def is_alone(self) -> bool:
        """Whether this replica is the only voter."""
        return [voter.key for voter in self.voters] == [self.local]

    @property
    def follows(self) -> bool:
        """Whether this replica follows a leader."""
        return isinstance(self.role, Follower)

    @property
    def seeks_leader(self) -> bool:
        """Whether this replica follows a leader or searches for one."""
        return isinstance(self.role, Unattached | Follower)

    @property
    def leading(self) -> LeaderState | None:
        """The state of the epoch that this replica leads; None if it does not lead."""
        return self.role if isinstance(self.role, LeaderState) else None

    def hears_leader(self, now: float) -> bool:
        """Whether this replica leads, or recently had a response of its leader."""
        role = self.role
        return isinstance(role, LeaderState) or (
            isinstance(role, Follower) and role.has_fetched and now < role.deadline
        )

    def fetch_from(self, now: float) -> Address | None:
        """Address of the leader; None if a follower does not know it, or an observer heard nothing for long."""
        role = self.role
        if not isinstance(role, Follower) or (now >= role.deadline and not self.may_stand):
            return None
        return role.address or self._address_of(self.election.leader_id)

    @property
    def leader_address(self) -> Address | None:
        """Address of the known leader."""
        leader_id = self.leader.leader_id
        known = self.role.address if isinstance(self.role, Follower) else None
        return known or self._address_of(leader_id)

    def _address_of(self, node_id: int) -> Address | None:
        for voter in self.voters:
            if voter.voter_id == node_id and voter.endpoints:
                _, host, port = voter.endpoints[0]
                return host, port
        return None

    # -- changes ----------------------------------------------------------------------------------------------------

    def enter(self, role: Role, election: ElectionState) -> None:
        """Take a role in the epoch of `election`, which becomes durable first; an epoch never decreases."""
        if election.leader_epoch < self.election.leader_epoch:
            raise InvariantError(f"leader epoch {self.election.leader_epoch} would go back to {election.leader_epoch}")
        election = election._replace(must_catch_up=self.election.must_catch_up)
        if election != self.election:
            self.election = election
            self.effects.append(Persist(election))
        self.take(role)

    def take(self, role: Role) -> None:
        """Take a role in the same epoch."""
        self.role = role
        voted_id = self.election.voted_id if isinstance(role, Unattached) else NO_NODE
        followed = self.election.leader_id if isinstance(role, Follower) else NO_NODE
        after = Standing(ROLE_NAMES[type(role)], self.epoch, followed, voted_id)
        if after != self._standing:
            self.transitions.append(Transition(self._standing, after))
            self._standing = after

    def next_epoch(self) -> int:
        """Return the epoch of the next election. Raises InvariantError if none is left."""
        if self.epoch >= MAX_LEADER_EPOCH:
            raise InvariantError("no leader epoch is left")
        return self.epoch + 1

    def random_election_s(self) -> float:
        """Return a random time until the next election."""
        return self.timeouts.election_s * (1 + self._rng.randrange(_RANDOM_STEPS) / _RANDOM_STEPS)

    def random_fetch_s(self) -> float:
        """Return a random time that a follower waits for a response of the leader."""
        return self.timeouts.fetch_s * (1 - _IMPATIENCE * self._rng.randrange(_RANDOM_STEPS) / _RANDOM_STEPS)

    def random_backoff_s(self) -> float:
        """Return a random pause after a failed election."""
        return self.timeouts.backoff_max_s * self._rng.randrange(_RANDOM_STEPS) / _RANDOM_STEPS
