"""Raft's rules as pure state (KIP-595, 853, 996): who leads in which epoch, who votes for whom, what is committed.

Purpose: events in (requests, responses, time), answers and effects out. The driver keeps the files, the timers and the
connections; it carries out `effects` in their order, and before it sends the answer of the call that caused them; then
it tells people of `transitions`.

A replica is unattached (knows no leader), follower, prospective (asks whether it would be elected, which changes
nothing), candidate, leader, or resigned. A replica that is no voter is an observer: it follows, and is never a
candidate; but it gives its vote when it is asked, since its own set of voters may be old.

What a request says is the word of a stranger, what comes back from a voter that was asked is not: a request raises the
epoch by `MAX_EPOCH_STEP` at most, an answer as far as it likes. A replica that is further behind is told by the next
voter that it asks itself, so nobody waits for a request that was refused.

Invariants:
- A leader epoch has one leader: an epoch never goes back, a vote is durable before it is given, is given once in an
  epoch, and only to a log that is not behind; a directory that is not the one that was asked gives none.
- A replica that was leader or candidate in an epoch never becomes either in that epoch again after a restart.
- A pre-vote changes nothing, and no Vote changes anything where a leader is heard. Whoever is no voter here, since the
  own set is old or since it lies, is heard only by a replica that it knows by its directory, and moves its epoch only
  by the vote that it gets.
- A voter whose log was cut at damage gives no vote and stands for nothing until it has on disk what a leader says is
  committed. So does one that forgot epoch and vote, in an epoch above all in which it may have voted.
- The high watermark is the leader's word (`raft_leader`), bounded by the own log.

Voters of the configuration (kraft.version 0) have no directory ids: every key that comes from outside goes through
`key`, so that there only node ids are compared, and a voter with a new directory votes as the old one did. But what is
sent names the own directory at every level, and a request that names another one is refused: whoever sends it may know
of voters of the log that this replica has yet to hear of. The first record that names voters (`named_voters`) has the
same nodes, so majorities of both sets meet while one replica has the record and another has not.
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
"""How far above the own epoch one that a request names may be: more than elections in a row fail, and so little that
whoever wants to use up all epochs would have to ask for weeks."""
_RANDOM_STEPS = 1000
_IMPATIENCE = 0.1
"""By how much of the fetch timeout one follower may doubt sooner than another: all lose the leader at one time, and
those that stand at one time split the votes."""


class Unattached:
    """Knows no leader; a voter waits until `deadline` before it tries to become one."""

    __slots__ = ("deadline",)

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline


class Follower:
    """Fetches from the leader; after `deadline` without an answer a voter doubts that it lives."""

    __slots__ = ("address", "deadline", "has_fetched", "leader_resigned")

    def __init__(self, address: Address | None, deadline: float) -> None:
        self.address = address
        self.deadline = deadline
        self.has_fetched = False
        self.leader_resigned = False


class _Election:
    """Votes in one epoch; `unreached` are voters that could not be asked, and may be yet."""

    __slots__ = ("deadline", "granted", "rejected", "unreached")

    def __init__(self, local: ReplicaKey, deadline: float) -> None:
        self.deadline = deadline
        self.granted = {local}
        self.rejected: set[ReplicaKey] = set()
        self.unreached: set[ReplicaKey] = set()


class Prospective(_Election):
    """Asks for pre-votes; `lost` is the state in which it followed the leader of this epoch, if there was one."""

    __slots__ = ("lost",)

    def __init__(self, local: ReplicaKey, deadline: float, lost: Follower | None) -> None:
        super().__init__(local, deadline)
        self.lost = lost


class Candidate(_Election):
    """Asks for votes."""

    __slots__ = ()


class Resigned:
    """Was leader of this epoch and gives others the time until `deadline` to elect one."""

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
        """`high_watermark` is what is known to be committed: the end of the newest snapshot."""
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
        """This replica, as it is known among the voters."""
        return self.voter_sets.key_of(self._replica)

    @property
    def replica(self) -> ReplicaKey:
        """This replica, as others are told of it: with its directory, also where voters have none."""
        return self._replica

    def key(self, node_id: int, directory_id: Uuid) -> ReplicaKey:
        """A replica that a request names."""
        return self.voter_sets.key_of(ReplicaKey(node_id, directory_id))

    @property
    def epoch(self) -> int:
        return self.election.leader_epoch

    @property
    def leader(self) -> LeaderAndEpoch:
        """As told to others: a leader that resigned is none."""
        if isinstance(self.role, Follower | Prospective | LeaderState):
            return LeaderAndEpoch(self.election.leader_id, self.election.leader_epoch)
        return LeaderAndEpoch(NO_NODE, self.election.leader_epoch)

    @property
    def voters(self) -> tuple[Voter, ...]:
        """Of the newest record, committed or not."""
        return self.voter_sets.latest

    @property
    def is_voter(self) -> bool:
        return any(voter.key == self.local for voter in self.voters)

    @property
    def may_stand(self) -> bool:
        """Whether it may become a candidate: also one that a record removes that is not committed yet.

        Such a record may stand in no other log, and then nobody but this replica has the log to be elected with. But
        not one that must catch up first.
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
        """Whether it follows one, or looks for one."""
        return isinstance(self.role, Unattached | Follower)

    @property
    def leading(self) -> LeaderState | None:
        """The state of the epoch that this replica leads; None when it does not."""
        return self.role if isinstance(self.role, LeaderState) else None

    @property
    def deadline(self) -> float | None:
        """When `tick` has something to do, unless another event comes first."""
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
        """Where the leader is reached; None when a follower doesn't know, or an observer heard nothing for long."""
        role = self.role
        if not isinstance(role, Follower) or (now >= role.deadline and not self.may_stand):
            return None
        return role.address or self._address_of(self.election.leader_id)

    @property
    def leader_address(self) -> Address | None:
        """Of the leader that is known."""
        leader_id = self.leader.leader_id
        told = self.role.address if isinstance(self.role, Follower) else None
        return told or self._address_of(leader_id)

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
        """Take up the state that the last life left; a voter that is alone elects itself at once.

        `forgotten`: it left one that is damaged or gone, and this is the last epoch that is known all the same. Votes
        may have been given in any epoch then, so that a voter goes on far above them, and gives none before its log is
        there too: else it might forget those in the same way. `must_catch_up`: that is not over since a life before, or
        the log was cut at damage.
        """
        stored = stored or ElectionState(0)
        if self._log.last_epoch > stored.leader_epoch:
            stored = ElectionState(self._log.last_epoch)
        if not self.is_voter:
            forgotten = None
        # Whoever is alone has nobody to catch up with, and nobody who has more.
        must_catch_up = (must_catch_up or forgotten is not None) and not self._is_alone()
        self.election = stored._replace(must_catch_up=must_catch_up)
        if forgotten is not None:
            self._become_unattached(now, max(self._log.last_epoch, forgotten) + FORGOTTEN_EPOCHS)
        if self._is_alone():
            self._become_prospective(now)
        elif stored.leader_id == self.local.node_id and self.may_stand:
            # It must not lead this epoch again, and the others need not find out by themselves.
            self._become_resigned(now, tuple(voter.key for voter in self.voters if voter.key != self.local))
        elif stored.leader_id not in (NO_NODE, self.local.node_id):
            self._take(Follower(None, now + self._random_fetch_s()))
        else:
            # Sooner than after an election: if somebody leads, the pre-vote disturbs nobody.
            self._take(Unattached(now + self._random_election_s() - self._timeouts.election_s))

    def tick(self, now: float) -> None:
        """Time has passed; does nothing before `deadline`."""
        role = self.role
        if isinstance(role, LeaderState):
            self._tick_leader(role, now)
        elif isinstance(role, Resigned):
            if now >= role.deadline and self.may_stand:
                self._become_unattached(now, self._next_epoch())
            elif now >= role.deadline:
                # An observer whose epoch is ahead of the voters' would find no leader any more.
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
        """Lead no longer, and tell the others who is best fit; does nothing on a replica that leads nothing."""
        leader = self.leading
        if leader is not None:
            self._become_resigned(now, leader.successors())

    # -- changes of role -------------------------------------------------------------------------------------------

    def _is_alone(self) -> bool:
        return [voter.key for voter in self.voters] == [self.local]

    def _next_epoch(self) -> int:
        if self.epoch >= MAX_LEADER_EPOCH:
            raise InvariantError("there is no leader epoch left")
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
        """Whether the election is decided."""
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
            # Two candidates split the votes; whoever draws the shorter time tries first, and neither waits for the
            # vote of the leader that died.
            role.deadline = min(role.deadline, now + self._random_backoff_s())

    def _give_up_pre_vote(self, now: float, role: Prospective) -> None:
        if role.lost is None:
            self._take(Unattached(now + self._random_election_s()))
        elif role.lost.leader_resigned:
            # It will not lead this epoch again; whoever refused may not have heard of that yet.
            self._take(Unattached(now + self._random_backoff_s()))
        else:
            self._take(Follower(role.lost.address, now + self._random_fetch_s()))

    def _learn(self, now: float, leader: LeaderAndEpoch, address: Address | None) -> bool:
        """Somebody says who leads; whether that changed the own role."""
        if leader.epoch < self.epoch:
            return False
        if leader.epoch == self.epoch:
            role = self.role
            if isinstance(role, Follower) and role.address is None and leader.leader_id == self.election.leader_id:
                # Followed since a life before, by a log that may name no voters and so no addresses.
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

    # -- requests of others ----------------------------------------------------------------------------------------

    def _is_addressed(self, asked: ReplicaKey) -> bool:
        """A request names whom it is for, so that a node with a new directory doesn't answer for its old self."""
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
        """A Vote request of `candidate`, whose log ends at `last`; (error, whether the vote is given).

        `asked` is the voter that the request names, word for word.
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
        """Whether this replica leads, or had an answer of its leader lately."""
        role = self.role
        return isinstance(role, LeaderState) or (
            isinstance(role, Follower) and role.has_fetched and now < role.deadline
        )

    def _is_far(self, epoch: int) -> bool:
        """Whether a request names an epoch that only the answer of a voter is believed."""
        return epoch > self.epoch + MAX_EPOCH_STEP

    def _is_known(self, replica: ReplicaKey) -> bool:
        return any(voter.key == replica for voter in self.voters)

    def _is_voter_id(self, node_id: int) -> bool:
        return any(voter.voter_id == node_id for voter in self.voters)

    def _may_know_less(self, asked: ReplicaKey) -> bool:
        """Whether the sender, unknown here, may be a voter by a newer record: then it knows this replica (KIP-853)."""
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
        """A new leader introduces itself; `asked` is the voter that the request names, word for word."""
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
                role.address = address  # a leader that answers is where it is
        return ErrorCode.NONE

    def end_quorum_epoch(self, now: float, leader: LeaderAndEpoch, preferred: tuple[ReplicaKey, ...]) -> ErrorCode:
        """The leader resigns; whoever stands first in `preferred` tries at once, the others a while later."""
        error = self._check_leader(leader)
        if error is not ErrorCode.NONE:
            return error
        if leader != self.leader and not self._is_voter_id(leader.leader_id):
            return ErrorCode.INVALID_REQUEST
        self._learn(now, leader, None)
        role = self.role
        if isinstance(role, Follower):
            # Nobody is disturbed by an election now, so pre-votes are given.
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
        """Whether this replica leads `epoch` and may serve those who follow it."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.leading is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def fetch(self, now: float, now_ms: int, replica: ReplicaKey, epoch: int, place: OffsetAndEpoch) -> FetchVerdict:
        """A Fetch of `replica`, whose log ends at `place` and is on disk."""
        error = self.check_fetch_epoch(epoch)
        leader = self.leading
        if leader is not None and error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            self._ask_who_is_ahead(now, leader, replica)
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

    def _ask_who_is_ahead(self, now: float, leader: LeaderState, replica: ReplicaKey) -> None:
        """A voter, or one of before, that stood in an epoch that nobody else heard of can follow nobody until another
        epoch begins: its answer will tell of it."""
        voter = self.voter_sets.find(replica)
        if voter is not None and voter.key != self.local and leader.asks_again(now, self._timeouts.fetch_s / 2):
            self.effects.append(SendBegin(voter, self.epoch))

    def _place(self, place: OffsetAndEpoch) -> FetchVerdict:
        """Where a follower's log stands to the own one."""
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

    # -- answers of others -----------------------------------------------------------------------------------------

    def vote_answered(
        self, now: float, voter: ReplicaKey, asked: SendVote, error: ErrorCode, peer: Peer, *, granted: bool
    ) -> None:
        """A voter answered a Vote; an answer to an election that is over counts for nothing."""
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
        """A voter could not be asked; the election goes on without it, and takes its vote if it is given later."""
        role = self.role
        current = asked.epoch == self.epoch and isinstance(role, Prospective if asked.pre_vote else Candidate)
        if current and isinstance(role, _Election) and voter not in role.unreached:
            role.unreached.add(voter)
            self._count(now, role)

    def answered(self, now: float, peer: Peer) -> None:
        """An answer to BeginQuorumEpoch, EndQuorumEpoch or a request that failed: it may tell of a newer epoch."""
        self._learn(now, *peer)

    def fetch_answered(self, now: float, asked_epoch: int, error: ErrorCode, peer: Peer) -> bool:
        """An answer to Fetch or FetchSnapshot; whether it comes from the leader that this replica follows."""
        if self._learn(now, *peer):
            return False
        if error is not ErrorCode.NONE or asked_epoch != self.epoch:
            return False
        if peer.leader.leader_id not in (NO_NODE, self.election.leader_id):
            return False
        known = (self.election.leader_id, self.epoch)
        if isinstance(self.role, Unattached) and peer.leader == known and known[0] != NO_NODE:
            # It leads this epoch still, whoever said that it resigned: nobody else will, and no epoch may follow.
            self._become_follower(now, peer.leader, peer.address)
        role = self.role
        if not isinstance(role, Follower):
            return False
        role.has_fetched = True
        role.deadline = now + self._random_fetch_s()
        return True

    # -- the own log -----------------------------------------------------------------------------------------------

    def leader_says(self, high_watermark: int) -> None:
        """The leader's high watermark, after what it sent was appended."""
        self.high_watermark = max(self.high_watermark, min(high_watermark, self._log.end_offset))
        if self.election.must_catch_up and self._has_caught_up(high_watermark):
            self.election = self.election._replace(must_catch_up=False)
            self.effects.append(Persist(self.election))

    def _has_caught_up(self, high_watermark: int) -> bool:
        """Whether all that was ever committed is on disk here: the leader, elected without the vote of this replica
        since the damage, and in no older epoch than it knew, has it; and says so once a record of its epoch is
        committed."""
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
        """A record at `offset` names other voters: they count from now on."""
        self.voter_sets.add(offset, voters)
        leader = self.leading
        if leader is not None and leader.set_voters(voters, now, self.local):
            self._advanced(now, leader)

    def truncated(self, end_offset: int) -> None:
        """The log was cut; raises InvariantError when that took something that was committed."""
        if end_offset < self.high_watermark:
            raise InvariantError(f"the metadata log was cut at {end_offset}, below what is committed")
        self.voter_sets.truncate_to(end_offset)

    def _advanced(self, now: float, leader: LeaderState) -> None:
        self.high_watermark = leader.high_watermark
        if not self.is_voter and self.high_watermark > self.voter_sets.latest_offset:
            self.resign(now)  # its own removal is committed

    def named_voters(self, own: Voter) -> tuple[Voter, ...]:
        """The voters of the configuration as the log would name them (kraft.version 1), `own` being this replica.

        Raises KafkaError: INVALID_UPDATE_VERSION unless each told its directory in this epoch, and that it takes part
        in such a quorum; NOT_CONTROLLER where this replica does not lead.
        """
        leader = self.leading
        if leader is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node does not lead the metadata quorum")
        told = {**leader.directories, own.voter_id: own}
        missing = [voter.voter_id for voter in self.voters if voter.voter_id not in told]
        if missing:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                "Invalid upgrade of kraft.version to 1 because not all of the voters support it: no directory is known "
                f"of {', '.join(map(str, missing))}, which have to run, and to support it",
            )
        return tuple(told[voter.voter_id] for voter in self.voters)

    def voter_change_error(self) -> ErrorCode:
        """Whether the voters may be changed: one change at a time, not before the epoch's first commit, and never
        where the configuration names them."""
        leader = self.leading
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.voter_sets.are_configured:
            return ErrorCode.UNSUPPORTED_VERSION
        if not leader.committed or self.high_watermark <= self.voter_sets.latest_offset:
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode.NONE
