"""Raft's rules as pure state (KIP-595, 853, 996): leader election, votes, and the high watermark.

Purpose: events in (requests, responses, time), responses and effects out. The driver owns the files, timers and
connections. It carries out `effects` in their order, before it sends the response of the call that caused them, and
then logs `transitions`.

A replica is unattached (knows no leader), follower, prospective (sends pre-votes, which change nothing), candidate,
leader, or resigned. A replica that is not a voter is an observer: it follows, and is never a candidate. But it votes
when requested, since its own set of voters may be outdated.

Requests are untrusted, responses of voters are trusted: a request raises the epoch by at most `MAX_EPOCH_STEP`, a
response without limit. A replica that is further behind learns the epoch from the next voter that it sends a request
to, so a rejected request delays no election.

Invariants:
- A leader epoch has one leader. An epoch never decreases. A vote is durable before it is given, is given once in an
  epoch, and only to a log that is not behind. A directory other than the requested one gives none.
- A replica that was leader or candidate in an epoch never becomes either in that epoch again after a restart.
- A pre-vote changes nothing, and no Vote changes anything while a leader is heard. The sender may be unknown as a
  voter, because the own set is outdated or because the sender lies. Its request is processed only by a replica that it
  names by directory, and raises the epoch only if it gets the vote.
- A voter whose log was truncated at damage neither votes nor becomes a candidate until it has all records on disk that
  a leader reports as committed. The same applies to a voter that lost epoch and vote, in an epoch above any in which it
  may have voted.
- The high watermark is the leader's (`raft_leader`), bounded by the own log end.

Configured voters (kraft.version 0) have no directory ids. Every key of a request goes through `key`, so that only node
ids are compared, and a voter with a new directory votes as the old one did. But sent requests contain the own directory
at every level, and a request that names another directory is rejected: its sender may know voters of the log that this
replica has not received yet. The first record that names voters (`named_voters`) has the same nodes, so majorities of
both sets overlap while only some replicas have the record.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.ids import ZERO_UUID, Uuid
from ottla.common.platform.clock import Rng
from ottla.common.platform.peer import Address
from ottla.metadata.log import NO_NODE, LeaderAndEpoch
from ottla.quorum.raft_leader import LeaderState
from ottla.quorum.raft_types import (
    FORGOTTEN_EPOCHS,
    MAX_LEADER_EPOCH,
    Effect,
    ElectionState,
    FetchVerdict,
    OffsetAndEpoch,
    Peer,
    Persist,
    RaftLog,
    ReplicaKey,
    SendBegin,
    SendEnd,
    SendVote,
    Standing,
    Timeouts,
    Transition,
    Voter,
)
from ottla.quorum.raft_voters import VoterSets

MAX_EPOCH_STEP = 10
"""Maximum distance of a requested epoch from the own one: more than the elections that fail in a row, and so small that
exhausting all epochs would take weeks of requests.
"""
_RANDOM_STEPS = 1000
_IMPATIENCE = 0.1
"""Maximum share of the fetch timeout by which a follower times out earlier than another: all lose the leader at the
same time, and simultaneous candidates split the votes.
"""


class Unattached:
    """Knows no leader; a voter waits until `deadline` before it starts an election."""

    __slots__ = ("deadline",)

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline


class Follower:
    """Fetches from the leader; after `deadline` without a response a voter starts a pre-vote."""

    __slots__ = ("address", "deadline", "has_fetched", "leader_resigned")

    def __init__(self, address: Address | None, deadline: float) -> None:
        self.address = address
        self.deadline = deadline
        self.has_fetched = False
        self.leader_resigned = False


class _Election:
    """Votes in one epoch; `unreached` are voters that could not be reached so far."""

    __slots__ = ("deadline", "granted", "rejected", "unreached")

    def __init__(self, local: ReplicaKey, deadline: float) -> None:
        self.deadline = deadline
        self.granted = {local}
        self.rejected: set[ReplicaKey] = set()
        self.unreached: set[ReplicaKey] = set()


class Prospective(_Election):
    """Sends pre-votes; `lost` is its former follower state in this epoch, if there was one."""

    __slots__ = ("lost",)

    def __init__(self, local: ReplicaKey, deadline: float, lost: Follower | None) -> None:
        super().__init__(local, deadline)
        self.lost = lost


class Candidate(_Election):
    """Sends vote requests."""

    __slots__ = ()


class Resigned:
    """Was leader of this epoch and waits until `deadline` for others to elect one."""

    __slots__ = ("deadline",)

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline


Role = Unattached | Follower | Prospective | Candidate | LeaderState | Resigned
_ROLE_NAMES: dict[type[Role], str] = {
    Unattached: "unattached",
    Follower: "follower",
    Prospective: "prospective",
    Candidate: "candidate",
    LeaderState: "leader",
    Resigned: "resigned",
}


class Raft:
    """The state of one replica of the metadata log. `now` is always the loop's time in seconds."""

    __slots__ = (
        "_begin_at",
        "_log",
        "_replica",
        "_rng",
        "_standing",
        "_timeouts",
        "effects",
        "election",
        "high_watermark",
        "role",
        "transitions",
        "voter_sets",
    )

    def __init__(
        self, local: ReplicaKey, log: RaftLog, rng: Rng, timeouts: Timeouts, voter_sets: VoterSets, high_watermark: int
    ) -> None:
        """`high_watermark` is the offset known to be committed: the end of the newest snapshot."""
        self._replica = local
        self._log = log
        self._rng = rng
        self._timeouts = timeouts
        self.voter_sets = voter_sets
        self.high_watermark = high_watermark
        self.election = ElectionState(0)
        self.role: Role = Unattached(0.0)
        self.effects: list[Effect] = []
        self.transitions: list[Transition] = []
        self._standing: Standing | None = None
        self._begin_at = 0.0

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def local(self) -> ReplicaKey:
        """This replica as a key among the voters."""
        return self.voter_sets.key_of(self._replica)

    @property
    def replica(self) -> ReplicaKey:
        """This replica as named in requests: with its directory, even if voters have none."""
        return self._replica

    def key(self, node_id: int, directory_id: Uuid) -> ReplicaKey:
        """The key of a replica named by a request."""
        return self.voter_sets.key_of(ReplicaKey(node_id, directory_id))

    @property
    def epoch(self) -> int:
        return self.election.leader_epoch

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader as reported to others: none after it resigned."""
        if isinstance(self.role, Follower | Prospective | LeaderState):
            return LeaderAndEpoch(self.election.leader_id, self.election.leader_epoch)
        return LeaderAndEpoch(NO_NODE, self.election.leader_epoch)

    @property
    def voters(self) -> tuple[Voter, ...]:
        """Voters of the newest record, committed or not."""
        return self.voter_sets.latest

    @property
    def is_voter(self) -> bool:
        return any(voter.key == self.local for voter in self.voters)

    @property
    def may_stand(self) -> bool:
        """Whether it may become a candidate: also if an uncommitted record removes it.

        No other log may contain that record, and then only this replica has the log to be elected with. False while it
        must catch up first.
        """
        if self.election.must_catch_up:
            return False
        sets = self.voter_sets.in_force(self.high_watermark)
        return any(voter.key == self.local for voters in sets for voter in voters)

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

    @property
    def deadline(self) -> float | None:
        """Time of the next `tick`, unless another event comes first."""
        role = self.role
        if isinstance(role, LeaderState):
            quorum = role.quorum_deadline(self._timeouts.fetch_s)
            if quorum is None:
                return None
            return min(quorum, self._begin_at)
        if isinstance(role, Resigned) or self.may_stand:
            return role.deadline
        return None

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

    # -- start and time --------------------------------------------------------------------------------------------

    def start(
        self, now: float, stored: ElectionState | None, *, forgotten: int | None = None, must_catch_up: bool = False
    ) -> None:
        """Restore the state of the last run; a single voter elects itself at once.

        `forgotten`: that state is damaged or missing, and this is the last epoch known from elsewhere. Votes may have
        been given in any later epoch, so a voter continues far above it, and does not vote before its log has caught
        up: otherwise it might forget later votes in the same way. `must_catch_up`: the log was truncated at damage, or
        an earlier run did not catch up.
        """
        stored = stored or ElectionState(0)
        if self._log.last_epoch > stored.leader_epoch:
            stored = ElectionState(self._log.last_epoch)
        if not self.is_voter:
            forgotten = None
        # A single voter has no other replica to catch up with.
        must_catch_up = (must_catch_up or forgotten is not None) and not self._is_alone()
        self.election = stored._replace(must_catch_up=must_catch_up)
        if forgotten is not None:
            self._become_unattached(now, max(self._log.last_epoch, forgotten) + FORGOTTEN_EPOCHS)
        if self._is_alone():
            self._become_prospective(now)
        elif stored.leader_id == self.local.node_id and self.may_stand:
            # It must not lead this epoch again; the resignation saves the others an election timeout.
            self._become_resigned(now, tuple(voter.key for voter in self.voters if voter.key != self.local))
        elif stored.leader_id not in (NO_NODE, self.local.node_id):
            self._take(Follower(None, now + self._random_fetch_s()))
        else:
            # Sooner than after an election: if there is a leader, the pre-vote disturbs no replica.
            self._take(Unattached(now + self._random_election_s() - self._timeouts.election_s))

    def tick(self, now: float) -> None:
        """Process the passed time; does nothing before `deadline`."""
        role = self.role
        if isinstance(role, LeaderState):
            self._tick_leader(role, now)
        elif isinstance(role, Resigned):
            if now >= role.deadline and self.may_stand:
                self._become_unattached(now, self._next_epoch())
            elif now >= role.deadline:
                # An observer whose epoch is ahead of the voters' would never find a leader.
                self._take(Unattached(now))
        elif now >= role.deadline and self.may_stand:
            if not isinstance(role, Prospective):
                self._become_prospective(now)
            else:
                self._give_up_pre_vote(now, role)

    def _tick_leader(self, leader: LeaderState, now: float) -> None:
        quorum = leader.quorum_deadline(self._timeouts.fetch_s)
        if quorum is not None and now >= quorum:
            self.resign(now)
        elif now >= self._begin_at:
            interval = self._timeouts.fetch_s / 2
            self._begin_at = now + interval
            silent = set(leader.silent_voters(now, interval))
            self.effects += [SendBegin(voter, self.epoch) for voter in self.voters if voter.key in silent]

    def resign(self, now: float) -> None:
        """Stop leading, and announce the preferred successors; does nothing on a replica that does not lead."""
        leader = self.leading
        if leader is not None:
            self._become_resigned(now, leader.successors())

    # -- changes of role -------------------------------------------------------------------------------------------

    def _is_alone(self) -> bool:
        return [voter.key for voter in self.voters] == [self.local]

    def _next_epoch(self) -> int:
        if self.epoch >= MAX_LEADER_EPOCH:
            raise InvariantError("no leader epoch is left")
        return self.epoch + 1

    def _random_election_s(self) -> float:
        return self._timeouts.election_s * (1 + self._rng.randrange(_RANDOM_STEPS) / _RANDOM_STEPS)

    def _random_fetch_s(self) -> float:
        return self._timeouts.fetch_s * (1 - _IMPATIENCE * self._rng.randrange(_RANDOM_STEPS) / _RANDOM_STEPS)

    def _random_backoff_s(self) -> float:
        return self._timeouts.backoff_max_s * self._rng.randrange(_RANDOM_STEPS) / _RANDOM_STEPS

    def _enter(self, role: Role, election: ElectionState) -> None:
        if election.leader_epoch < self.election.leader_epoch:
            raise InvariantError(f"leader epoch {self.election.leader_epoch} would go back to {election.leader_epoch}")
        election = election._replace(must_catch_up=self.election.must_catch_up)
        if election != self.election:
            self.election = election
            self.effects.append(Persist(election))
        self._take(role)

    def _take(self, role: Role) -> None:
        self.role = role
        voted_id = self.election.voted_id if isinstance(role, Unattached) else NO_NODE
        followed = self.election.leader_id if isinstance(role, Follower) else NO_NODE
        after = Standing(_ROLE_NAMES[type(role)], self.epoch, followed, voted_id)
        if after != self._standing:
            self.transitions.append(Transition(self._standing, after))
            self._standing = after

    def _become_unattached(self, now: float, epoch: int) -> None:
        self._enter(Unattached(now + self._random_election_s()), ElectionState(epoch))

    def _become_follower(self, now: float, leader: LeaderAndEpoch, address: Address | None) -> None:
        voted_id, directory_id = NO_NODE, ZERO_UUID
        if leader.epoch == self.epoch:
            voted_id, directory_id = self.election.voted_id, self.election.voted_directory_id
        election = ElectionState(leader.epoch, leader.leader_id, voted_id, directory_id)
        self._enter(Follower(address, now + self._random_fetch_s()), election)

    def _become_resigned(self, now: float, preferred: tuple[ReplicaKey, ...]) -> None:
        self._take(Resigned(now + self._random_election_s()))
        self.effects += [SendEnd(voter, self.epoch, preferred) for voter in self.voters if voter.key != self.local]

    def _become_prospective(self, now: float) -> None:
        lost = self.role if isinstance(self.role, Follower) else None
        role = Prospective(self.local, now + self._random_election_s(), lost)
        self._take(role)
        self._ask(pre_vote=True)
        self._count(now, role)

    def _become_candidate(self, now: float) -> None:
        role = Candidate(self.local, now + self._random_election_s())
        self._enter(role, ElectionState(self._next_epoch(), NO_NODE, self.local.node_id, self.local.directory_id))
        self._ask(pre_vote=False)
        self._count(now, role)

    def _become_leader(self, now: float) -> None:
        log = self._log
        state = LeaderState(self.local, self.epoch, log.end_offset, self.voters, self.high_watermark, now)
        self._enter(state, self.election._replace(leader_id=self.local.node_id))
        self._begin_at = now + self._timeouts.fetch_s / 2
        self.effects += [SendBegin(voter, self.epoch) for voter in self.voters if voter.key != self.local]

    def _ask(self, *, pre_vote: bool) -> None:
        self.effects += [SendVote(voter, self.epoch, pre_vote) for voter in self.voters if voter.key != self.local]

    def _count(self, now: float, role: Prospective | Candidate) -> None:
        """End the election if it is decided."""
        keys = {voter.key for voter in self.voters}
        majority = len(keys) // 2 + 1
        if len(role.granted & keys) >= majority:
            if isinstance(role, Prospective):
                self._become_candidate(now)
            else:
                self._become_leader(now)
        elif isinstance(role, Prospective):
            if len(keys - role.rejected) < majority:
                self._give_up_pre_vote(now, role)
        elif len(keys - role.rejected) < majority or keys <= role.granted | role.rejected | role.unreached:
            # Two candidates split the votes. The one with the shorter random timeout retries first, and neither waits
            # for the vote of the failed leader.
            role.deadline = min(role.deadline, now + self._random_backoff_s())

    def _give_up_pre_vote(self, now: float, role: Prospective) -> None:
        if role.lost is None:
            self._take(Unattached(now + self._random_election_s()))
        elif role.lost.leader_resigned:
            # It will not lead this epoch again; the voters that refused may not know that yet.
            self._take(Unattached(now + self._random_backoff_s()))
        else:
            self._take(Follower(role.lost.address, now + self._random_fetch_s()))

    def _learn(self, now: float, leader: LeaderAndEpoch, address: Address | None) -> bool:
        """A message names the leader; returns whether the own role changed."""
        if leader.epoch < self.epoch:
            return False
        if leader.epoch == self.epoch:
            role = self.role
            if isinstance(role, Follower) and role.address is None and leader.leader_id == self.election.leader_id:
                # Followed since before the restart, by a log that may contain no voters and so no addresses.
                role.address = address
            if leader.leader_id == NO_NODE or self.election.leader_id != NO_NODE:
                return False
            if leader.leader_id == self.local.node_id:
                return False
        elif leader.leader_id in (NO_NODE, self.local.node_id):
            self._become_unattached(now, leader.epoch)
            return True
        self._become_follower(now, leader, address)
        return True

    # -- requests of other replicas ---------------------------------------------------------------------------------

    def _is_addressed(self, asked: ReplicaKey) -> bool:
        """Whether a request names this replica, so that a node with a new directory doesn't answer for its old one."""
        same_node = asked.node_id in (NO_NODE, self._replica.node_id)
        return same_node and asked.directory_id in (ZERO_UUID, self._replica.directory_id)

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
        if not self._is_addressed(asked):
            return ErrorCode.INVALID_VOTER_KEY, False
        if candidate.node_id < 0 or candidate == self.local:
            return ErrorCode.INVALID_REQUEST, False
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, False
        known = self._is_known(candidate)
        if self._hears_leader(now) or self._is_far(epoch) or not (known or self._may_know_less(asked)):
            return ErrorCode.NONE, False
        granted = (last.epoch, last.end_offset) >= (self._log.last_epoch, self._log.end_offset)
        granted = granted and not self.election.must_catch_up
        if pre_vote:
            return ErrorCode.NONE, granted
        granted = granted and (epoch > self.epoch or self._may_vote_for(candidate))
        if granted:
            election = ElectionState(epoch, NO_NODE, candidate.node_id, candidate.directory_id)
            self._enter(Unattached(now + self._random_election_s()), election)
        elif known and epoch > self.epoch:
            self._become_unattached(now, epoch)
        return ErrorCode.NONE, granted

    def _hears_leader(self, now: float) -> bool:
        """Whether this replica leads, or recently had a response of its leader."""
        role = self.role
        return isinstance(role, LeaderState) or (
            isinstance(role, Follower) and role.has_fetched and now < role.deadline
        )

    def _is_far(self, epoch: int) -> bool:
        """Whether a requested epoch is so high that only the response of a voter is trusted."""
        return epoch > self.epoch + MAX_EPOCH_STEP

    def _is_known(self, replica: ReplicaKey) -> bool:
        return any(voter.key == replica for voter in self.voters)

    def _is_voter_id(self, node_id: int) -> bool:
        return any(voter.voter_id == node_id for voter in self.voters)

    def _may_know_less(self, asked: ReplicaKey) -> bool:
        """Whether the unknown sender may be a voter by a newer record: then it knows this replica (KIP-853)."""
        return asked == self._replica and not self.voter_sets.are_configured

    def _may_vote_for(self, candidate: ReplicaKey) -> bool:
        election = self.election
        if election.leader_id != NO_NODE or not isinstance(self.role, Unattached | Prospective):
            return False
        voted = ReplicaKey(election.voted_id, election.voted_directory_id)
        return voted.node_id == NO_NODE or voted == candidate

    def begin_quorum_epoch(
        self, now: float, asked: ReplicaKey, leader: LeaderAndEpoch, address: Address | None
    ) -> ErrorCode:
        """A new leader announces itself; `asked` is the voter named in the request, unchanged."""
        if not self._is_addressed(asked):
            return ErrorCode.INVALID_VOTER_KEY
        error = self._check_leader(leader)
        if error is not ErrorCode.NONE:
            return error
        heard = self._hears_leader(now)
        if not self._is_voter_id(leader.leader_id) and (heard or not self._may_know_less(asked)):
            return ErrorCode.NONE if leader == self.leader else ErrorCode.INVALID_REQUEST
        if not self._learn(now, leader, address) and not heard:
            role = self.role
            if isinstance(role, Follower) and address is not None:
                role.address = address  # the address of a leader that responds is correct
        return ErrorCode.NONE

    def end_quorum_epoch(self, now: float, leader: LeaderAndEpoch, preferred: tuple[ReplicaKey, ...]) -> ErrorCode:
        """The leader resigns; the first replica in `preferred` starts an election at once, the others after a delay."""
        error = self._check_leader(leader)
        if error is not ErrorCode.NONE:
            return error
        if leader != self.leader and not self._is_voter_id(leader.leader_id):
            return ErrorCode.INVALID_REQUEST
        self._learn(now, leader, None)
        role = self.role
        if isinstance(role, Follower):
            # An election now disturbs no replica, so pre-votes are granted.
            role.has_fetched = False
            role.leader_resigned = True
            place = preferred.index(self.local) if self.local in preferred else len(preferred)
            role.deadline = now + self._timeouts.backoff_max_s * place / max(len(preferred), 1)
        return ErrorCode.NONE

    def _check_leader(self, leader: LeaderAndEpoch) -> ErrorCode:
        if leader.epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if self._is_far(leader.epoch):
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        known = self.election.leader_id
        if leader.leader_id < 0 or leader.leader_id == self.local.node_id:
            return ErrorCode.INVALID_REQUEST
        if leader.epoch == self.epoch and known not in (NO_NODE, leader.leader_id):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def check_fetch_epoch(self, epoch: int) -> ErrorCode:
        """The error for a Fetch of `epoch`: NONE if this replica leads it and may serve followers."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.leading is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def fetch(self, now: float, now_ms: int, replica: ReplicaKey, epoch: int, place: OffsetAndEpoch) -> FetchVerdict:
        """Process a Fetch of `replica`, whose log ends at `place` and is on disk."""
        error = self.check_fetch_epoch(epoch)
        leader = self.leading
        if leader is not None and error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            self._query_replica_ahead(now, leader, replica)
        if error is not ErrorCode.NONE or leader is None:
            return FetchVerdict(error)
        if place.end_offset < 0 or place.epoch < 0:
            return FetchVerdict(ErrorCode.INVALID_REQUEST)
        verdict = self._place(place)
        if replica.node_id < 0:
            return verdict
        if verdict.diverging or verdict.snapshot:
            leader.heard_of(replica, now)
        elif leader.fetched(replica, place.end_offset, self._log.end_offset, now, now_ms):
            self._advanced(now, leader)
        return verdict

    def _query_replica_ahead(self, now: float, leader: LeaderState, replica: ReplicaKey) -> None:
        """A current or former voter that was candidate in an epoch unknown to all others can't follow before another
        epoch begins: send it a request, whose response contains that epoch.
        """
        voter = self.voter_sets.find(replica)
        if voter is not None and voter.key != self.local and leader.asks_again(now, self._timeouts.fetch_s / 2):
            self.effects.append(SendBegin(voter, self.epoch))

    def _place(self, place: OffsetAndEpoch) -> FetchVerdict:
        """Compare a follower's log end with the own log."""
        log = self._log
        start, earliest = log.start_offset, log.earliest_snapshot
        if place == OffsetAndEpoch(0, 0) and start == 0:
            return FetchVerdict()
        if earliest is not None and (
            place.end_offset < start
            or (place.end_offset == start and place.epoch != earliest.epoch)
            or place.epoch < earliest.epoch
        ):
            return FetchVerdict(snapshot=log.latest_snapshot)
        end = log.end_offset_of_epoch(place.epoch)
        if end.epoch != place.epoch or end.end_offset < place.end_offset:
            return FetchVerdict(diverging=end)
        return FetchVerdict()

    # -- responses of other replicas --------------------------------------------------------------------------------

    def vote_answered(
        self, now: float, voter: ReplicaKey, asked: SendVote, error: ErrorCode, peer: Peer, *, granted: bool
    ) -> None:
        """Process the response to a Vote; a response to an earlier election is ignored."""
        if self._learn(now, *peer) or asked.epoch != self.epoch:
            return
        role = self.role
        if not isinstance(role, Prospective if asked.pre_vote else Candidate) or not isinstance(role, _Election):
            return
        if error is ErrorCode.NONE and granted:
            role.granted.add(voter)
        else:
            role.rejected.add(voter)
        self._count(now, role)

    def vote_unanswered(self, now: float, voter: ReplicaKey, asked: SendVote) -> None:
        """A voter could not be reached; the election continues without it, and counts its vote if it arrives later."""
        role = self.role
        current = asked.epoch == self.epoch and isinstance(role, Prospective if asked.pre_vote else Candidate)
        if current and isinstance(role, _Election) and voter not in role.unreached:
            role.unreached.add(voter)
            self._count(now, role)

    def answered(self, now: float, peer: Peer) -> None:
        """Process a response to BeginQuorumEpoch, EndQuorumEpoch or a failed request: it may contain a newer epoch."""
        self._learn(now, *peer)

    def fetch_answered(self, now: float, asked_epoch: int, error: ErrorCode, peer: Peer) -> bool:
        """Process a response to Fetch or FetchSnapshot; returns whether it comes from the leader that this replica
        follows.
        """
        if self._learn(now, *peer):
            return False
        if error is not ErrorCode.NONE or asked_epoch != self.epoch:
            return False
        if peer.leader.leader_id not in (NO_NODE, self.election.leader_id):
            return False
        known = (self.election.leader_id, self.epoch)
        if isinstance(self.role, Unattached) and peer.leader == known and known[0] != NO_NODE:
            # It still leads this epoch, despite the resignation: no other leader will, and no epoch may follow.
            self._become_follower(now, peer.leader, peer.address)
        role = self.role
        if not isinstance(role, Follower):
            return False
        role.has_fetched = True
        role.deadline = now + self._random_fetch_s()
        return True

    # -- the own log -----------------------------------------------------------------------------------------------

    def leader_says(self, high_watermark: int) -> None:
        """Use the leader's high watermark, after the records of its response were appended."""
        self.high_watermark = max(self.high_watermark, min(high_watermark, self._log.end_offset))
        if self.election.must_catch_up and self._has_caught_up(high_watermark):
            self.election = self.election._replace(must_catch_up=False)
            self.effects.append(Persist(self.election))

    def _has_caught_up(self, high_watermark: int) -> bool:
        """Whether all committed records are on disk here. The leader was elected without this replica's vote since the
        damage, and in no older epoch than it knew, so it has them; it proves that once a record of its epoch is
        committed.
        """
        log, epoch = self._log, self.epoch
        if high_watermark > log.flushed_offset or log.last_epoch != epoch:
            return False
        snapshot = log.latest_snapshot
        return high_watermark > log.end_offset_of_epoch(epoch - 1).end_offset or (
            snapshot is not None and snapshot.epoch == epoch
        )

    def flushed(self, now: float, end_offset: int) -> None:
        """Everything before `end_offset` is on disk here."""
        leader = self.leading
        if leader is not None and leader.flushed(end_offset):
            self._advanced(now, leader)

    def voters_appended(self, now: float, offset: int, voters: tuple[Voter, ...]) -> None:
        """A record at `offset` names other voters, which are in force from now on."""
        self.voter_sets.add(offset, voters)
        leader = self.leading
        if leader is not None and leader.set_voters(voters, now, self.local):
            self._advanced(now, leader)

    def truncated(self, end_offset: int) -> None:
        """The log was truncated; raises InvariantError if that removed a committed record."""
        if end_offset < self.high_watermark:
            raise InvariantError(f"the metadata log was truncated to {end_offset}, below the high watermark")
        self.voter_sets.truncate_to(end_offset)

    def _advanced(self, now: float, leader: LeaderState) -> None:
        self.high_watermark = leader.high_watermark
        if not self.is_voter and self.high_watermark > self.voter_sets.latest_offset:
            self.resign(now)  # its own removal is committed

    def named_voters(self, own: Voter) -> tuple[Voter, ...]:
        """The configured voters as records of the log would name them (kraft.version 1); `own` is this replica.

        Raises KafkaError: INVALID_UPDATE_VERSION unless each voter announced in this epoch its directory and its
        support for kraft.version 1; NOT_CONTROLLER if this replica does not lead.
        """
        leader = self.leading
        if leader is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node does not lead the metadata quorum")
        known = {**leader.directories, own.voter_id: own}
        missing = [voter.voter_id for voter in self.voters if voter.voter_id not in known]
        if missing:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                "Invalid upgrade of kraft.version to 1 because not all of the voters support it: start "
                f"a supporting version on nodes {', '.join(map(str, missing))}: their directory ids are unknown",
            )
        return tuple(known[voter.voter_id] for voter in self.voters)

    def voter_change_error(self) -> ErrorCode:
        """The error of a voter change now: one change at a time, not before the epoch's first commit, and never if the
        configuration names the voters.
        """
        leader = self.leading
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.voter_sets.are_configured:
            return ErrorCode.UNSUPPORTED_VERSION
        if not leader.committed or self.high_watermark <= self.voter_sets.latest_offset:
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode.NONE
