"""Several in-memory replicas, a network that loses, repeats and reorders, and disks that lose unsynced data.

The drivers of this world do the work of `ottla.quorum.driver` with files and sockets, one entry per batch. After each
step `check` compares all replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from simulation.rng import SimRng

from ottla.common.errors import ErrorCode
from ottla.quorum.raft import Raft
from ottla.quorum.raft_roles import Follower, Unattached
from ottla.quorum.raft_types import (
    ElectionState,
    FetchVerdict,
    OffsetAndEpoch,
    Peer,
    Persist,
    ReplicaKey,
    SendBegin,
    SendEnd,
    SendVote,
    Timeouts,
    Voter,
)
from ottla.quorum.raft_voters import BOOTSTRAP_OFFSET, VoterSets
from ottla.quorum.voter_changes import voter_change_error

TIMEOUTS = Timeouts()


class Entry(NamedTuple):
    epoch: int
    value: int
    voters: tuple[Voter, ...] | None = None


class MemoryLog:
    """Implements RaftLog; `flushed` is how much of it a power failure leaves."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.start_offset = 0
        self.flushed = 0
        self.snapshot: OffsetAndEpoch | None = OffsetAndEpoch(0, 0)
        self.snapshot_voters: tuple[Voter, ...] = ()
        self.snapshot_content: list[Entry] = []

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    @property
    def flushed_offset(self) -> int:
        return self.flushed

    @property
    def last_epoch(self) -> int:
        if self.entries:
            return self.entries[-1].epoch
        return self.snapshot.epoch if self.snapshot else 0

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshot

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshot

    def end_offset_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        found = OffsetAndEpoch(self.start_offset, self.snapshot.epoch if self.snapshot else 0)
        for index, entry in enumerate(self.entries):
            if entry.epoch > epoch:
                break
            found = OffsetAndEpoch(self.start_offset + index + 1, entry.epoch)
        return found

    def everything(self) -> list[Entry]:
        return self.snapshot_content + self.entries

    def truncate_to(self, offset: int) -> None:
        del self.entries[offset - self.start_offset :]
        self.flushed = min(self.flushed, offset)

    def compact(self, offset: int, voters: tuple[Voter, ...]) -> None:
        """Replace everything before `offset`, which is committed, by a snapshot."""
        count = offset - self.start_offset
        epoch = self.entries[count - 1].epoch
        self.snapshot_content = self.snapshot_content + self.entries[:count]
        del self.entries[:count]
        self.start_offset = offset
        self.snapshot = OffsetAndEpoch(offset, epoch)
        self.snapshot_voters = voters
        self.flushed = max(self.flushed, offset)

    def load(self, other: MemoryLog) -> None:
        self.entries = []
        self.start_offset = self.flushed = other.start_offset
        self.snapshot = other.snapshot
        self.snapshot_voters = other.snapshot_voters
        self.snapshot_content = list(other.snapshot_content)


class Replica:
    """One node: the content of its disk, and its state while it runs."""

    def __init__(self, world: World, key: ReplicaKey, voters: tuple[Voter, ...]) -> None:
        self.world = world
        self.key = key
        self.log = MemoryLog()
        self.log.snapshot_voters = voters
        self.stored: ElectionState | None = None
        self.must_catch_up = False
        self.noted_epoch = 0
        self.raft: Raft | None = None
        self.fetching_until = 0.0
        self.unsynced = False
        self.led = 0

    def start(self, *, forgotten: int | None = None) -> None:
        sets = VoterSets()
        if self.log.snapshot_voters:
            sets.add(self.log.start_offset - 1 if self.log.start_offset else BOOTSTRAP_OFFSET, self.log.snapshot_voters)
        for index, entry in enumerate(self.log.entries):
            if entry.voters is not None:
                sets.add(self.log.start_offset + index, entry.voters)
        self.raft = Raft(self.key, self.log, self.world.rng, TIMEOUTS, sets, self.log.start_offset)
        self.fetching_until = 0.0
        self.unsynced = False
        self.led = 0
        self.raft.elections.start(self.world.now, self.stored, forgotten=forgotten, must_catch_up=self.must_catch_up)
        self.settle()

    def crash(self) -> None:
        """Power failure: any part of the unsynced data may remain."""
        self.raft = None
        log = self.log
        log.truncate_to(log.flushed + self.world.rng.randrange(log.end_offset - log.flushed + 1))
        log.flushed = log.end_offset

    def lose_state(self) -> None:
        """Its election state turns out to be damaged at a start."""
        self.die()
        self.stored = None
        self.start(forgotten=self.noted_epoch)

    def lose_records(self) -> None:
        """Its log turns out to be damaged at a start, behind the last record that names voters, and is cut there."""
        self.die()
        log = self.log
        kept = [log.start_offset + index + 1 for index, entry in enumerate(log.entries) if entry.voters is not None]
        first = max([log.start_offset, *kept])
        lost = self.world.rng.randrange(log.end_offset - first + 1)
        log.truncate_to(log.end_offset - lost)
        self.note()
        self.start()

    def note(self) -> None:
        """Store that it must catch up, with the epoch above which it gave no vote before."""
        self.must_catch_up = True
        self.noted_epoch = self.stored.leader_epoch if self.stored else 0

    def die(self) -> None:
        """Crash, and take the connections along: nothing that was sent arrives any more."""
        self.crash()
        own = self.key.node_id
        messages = self.world.messages
        messages[:] = [message for message in messages if own not in message[:2]]

    def settle(self) -> None:
        """Carry out effects, lead, fetch."""
        raft = self.raft
        if raft is None:
            return
        while raft.state.effects:
            effects, raft.state.effects = raft.state.effects, []
            for effect in effects:
                self.carry_out(raft, effect)
        leader = raft.state.leading
        if leader is not None and self.led != raft.state.epoch:
            self.led = raft.state.epoch
            self.world.elected(self)
            self.append(Entry(raft.state.epoch, self.world.next_value()))
            self.settle()
        self.maybe_fetch(raft)

    def carry_out(self, raft: Raft, effect: Any) -> None:
        world = self.world

        def learned(mine: Raft, result: Any, peer: Peer) -> None:
            mine.elections.learn(world.now, *peer)

        if isinstance(effect, Persist):
            self.stored = effect.election
            if effect.election.must_catch_up and not self.must_catch_up:
                self.note()
            elif not effect.election.must_catch_up:
                self.must_catch_up, self.noted_epoch = False, 0
        elif isinstance(effect, SendVote):
            place = OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)
            asked = effect

            def vote(other: Replica, other_raft: Raft) -> Any:
                return other_raft.requests.vote(
                    world.now, asked.to.key, self.key, asked.epoch, place, pre_vote=asked.pre_vote
                )

            def answered(mine: Raft, result: Any, peer: Peer) -> None:
                mine.elections.vote_answered(world.now, asked.to.key, asked, result[0], peer, granted=result[1])

            world.send(self, asked.to.voter_id, vote, answered)
        elif isinstance(effect, SendBegin):
            leader = raft.state.leader
            to = effect.to
            world.send(
                self,
                to.voter_id,
                lambda other, other_raft: other_raft.requests.begin_quorum_epoch(world.now, to.key, leader, None),
                learned,
            )
        elif isinstance(effect, SendEnd):
            end = effect
            leader = raft.state.leader._replace(leader_id=self.key.node_id)
            world.send(
                self,
                end.to.voter_id,
                lambda other, other_raft: other_raft.requests.end_quorum_epoch(world.now, leader, end.preferred),
                learned,
            )

    def append(self, entry: Entry) -> None:
        offset = self.log.end_offset
        self.log.entries.append(entry)
        if entry.voters is not None and self.raft is not None:
            self.raft.replication.voters_appended(self.world.now, offset, entry.voters)

    def flush(self) -> None:
        self.log.flushed = self.log.end_offset
        self.unsynced = False
        if self.raft is not None:
            self.raft.replication.flushed(self.world.now, self.log.flushed)

    def maybe_fetch(self, raft: Raft) -> None:
        """One fetch at a time, and none before the data of the last one is on disk."""
        world = self.world
        if self.unsynced or world.now < self.fetching_until:
            return
        address = raft.state.fetch_from(world.now)
        if address is not None:
            target = address[1]
        elif isinstance(raft.state.role, Unattached | Follower):
            target = world.rng.choice([node for node in world.nodes if node != self.key.node_id])
        else:
            return
        self.fetching_until = world.now + 1.0
        epoch, place = raft.state.epoch, OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)

        def fetch(other: Replica, other_raft: Raft) -> Any:
            verdict = other_raft.replication.fetch(world.now, 0, self.key, epoch, place)
            entries = list(other.log.entries[place.end_offset - other.log.start_offset :])
            copy = MemoryLog()
            copy.load(other.log)
            return verdict, entries[: 1 + world.rng.randrange(5)], other_raft.state.high_watermark, copy

        def answered(mine: Raft, result: Any, peer: Peer) -> None:
            self.fetching_until = 0.0
            verdict, entries, high_watermark, other_log = result
            if not mine.replication.fetch_answered(world.now, epoch, verdict.error, peer):
                return
            if place != (self.log.end_offset, self.log.last_epoch):
                return
            self.fetched(mine, verdict, entries, high_watermark, other_log)

        world.send(self, target, fetch, answered)

    def fetched(
        self, raft: Raft, verdict: FetchVerdict, entries: list[Entry], high_watermark: int, other: MemoryLog
    ) -> None:
        if verdict.snapshot is not None:
            if other.start_offset > self.log.end_offset or other.start_offset > self.log.start_offset:
                self.log.load(other)
                raft.state.voter_sets.reset(other.start_offset - 1, other.snapshot_voters)
                raft.replication.leader_says(other.start_offset)
        elif verdict.diverging is not None:
            end = self.log.end_offset_of_epoch(verdict.diverging.epoch)
            offset = min(end.end_offset, verdict.diverging.end_offset)
            self.log.truncate_to(offset)
            raft.replication.truncated(offset)
        else:
            for entry in entries:
                self.append(entry)
            self.unsynced = bool(entries)
            raft.replication.leader_says(high_watermark)


class World:
    """All replicas, their network and the clock."""

    def __init__(self, seed: int, size: int, *, voters_change: bool = True) -> None:
        self.voters_change = voters_change
        self.rng = SimRng(seed)
        self.now = 0.0
        self.values = 0
        self.messages: list[tuple[int, int, Callable[[], None]]] = []
        self.cut: set[tuple[int, int]] = set()
        voters = tuple(self.voter(node) for node in range(1, size + 1))
        self.nodes = {voter.voter_id: Replica(self, voter.key, voters) for voter in voters}
        self.leaders: dict[int, ReplicaKey] = {}
        self.committed: list[Entry] = []
        for node in self.nodes.values():
            node.start()

    @staticmethod
    def voter(node_id: int, directory: int = 0) -> Voter:
        return Voter(node_id, bytes([node_id]) * 15 + bytes([directory]), (("CONTROLLER", "host", node_id),))

    def next_value(self) -> int:
        self.values += 1
        return self.values

    # -- network

    def send(
        self,
        sender: Replica,
        to: int,
        serve: Callable[[Replica, Raft], Any],
        answered: Callable[[Raft, Any, Peer], None],
    ) -> None:
        life = sender.raft

        def deliver() -> None:
            other = self.nodes[to]
            raft = other.raft
            if raft is None or other is sender:
                return
            result = serve(other, raft)
            peer = Peer(raft.state.leader)
            other.settle()

            def answer() -> None:
                if sender.raft is life and life is not None:
                    answered(life, result, peer)
                    sender.settle()

            self.messages.append((to, sender.key.node_id, answer))

        self.messages.append((sender.key.node_id, to, deliver))

    def deliver(self, index: int, *, again: bool = False) -> None:
        source, target, action = self.messages[index] if again else self.messages.pop(index)
        if (source, target) not in self.cut:
            action()

    # -- what happens

    def leader(self) -> Replica | None:
        """The leader of the newest epoch, if it runs."""
        leading = [node for node in self.nodes.values() if node.raft is not None and node.raft.state.leading]
        return max(leading, key=lambda node: node.raft.state.epoch if node.raft else 0, default=None)

    def step(self) -> None:
        rng = self.rng
        dice = rng.randrange(100)
        node = rng.choice(list(self.nodes.values()))
        if dice < 55 and self.messages:
            self.deliver(rng.randrange(min(len(self.messages), 6)))
        elif dice < 57 and self.messages:
            self.deliver(rng.randrange(len(self.messages)), again=True)
        elif dice < 59 and self.messages:
            self.messages.pop(rng.randrange(len(self.messages)))
        elif dice < 70:
            if node.raft is not None:
                node.flush()
                node.settle()
        elif dice < 79:
            self.pass_time(rng.uniform(0.0, 0.3))
        elif dice < 88:
            if node.raft is not None and node.raft.state.leading:
                node.append(Entry(node.raft.state.epoch, self.next_value()))
        elif dice < 89:
            node.crash() if node.raft is not None else node.start()
        elif dice < 93:
            if node.raft is None:
                node.start()
        elif dice < 94:
            others = [other for other in self.nodes if other != node.key.node_id]
            self.cut = {(node.key.node_id, other) for other in others if rng.chance(0.8)}
            self.cut |= {(other, node.key.node_id) for other in others if rng.chance(0.8)}
        elif dice < 97:
            self.cut = set()
        elif dice < 98:
            self.compact(node)
        elif self.voters_change:
            self.change_voters(node)

    def damage(self) -> None:
        """Damage that a start finds on one node, while most of the others are intact."""
        node = self.rng.choice(list(self.nodes.values()))
        behind = sum(other.must_catch_up for other in self.nodes.values() if other is not node)
        if behind + 1 <= (len(self.nodes) - 1) // 2:
            self.rng.choice([node.lose_state, node.lose_records])()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for node in self.nodes.values():
            raft = node.raft
            if raft is not None:
                deadline = raft.elections.deadline
                if deadline is not None and self.now >= deadline:
                    raft.elections.tick(self.now)
                node.settle()

    def compact(self, node: Replica) -> None:
        raft = node.raft
        if raft is not None and min(raft.state.high_watermark, node.log.flushed) > node.log.start_offset:
            end = min(raft.state.high_watermark, node.log.flushed)
            node.log.compact(end, raft.state.voter_sets.before(end))

    def change_voters(self, node: Replica) -> None:
        raft = node.raft
        if raft is None or voter_change_error(raft.state) is not ErrorCode.NONE:
            return
        voters = list(raft.state.voters)
        absent = [self.voter(other) for other in self.nodes if all(other != item.voter_id for item in voters)]
        if absent and self.rng.chance(0.6):
            voters.append(self.rng.choice(absent))
        elif len(voters) > 1:
            voters.remove(self.rng.choice(voters))
        node.append(Entry(raft.state.epoch, self.next_value(), tuple(voters)))

    # -- invariants ---------------------------------------------------------------------------------------------------

    def elected(self, node: Replica) -> None:
        epoch = node.raft.state.epoch if node.raft else 0
        assert self.leaders.setdefault(epoch, node.key) == node.key, f"two leaders in epoch {epoch}"
        log = node.log.everything()
        assert log[: len(self.committed)] == self.committed, f"the leader of {epoch} lacks committed records"

    def check(self) -> None:
        for node in self.nodes.values():
            raft = node.raft
            if raft is None:
                continue
            log = node.log.everything()
            assert raft.state.high_watermark <= len(log)
            known = log[: raft.state.high_watermark]
            if len(known) > len(self.committed):
                assert known[: len(self.committed)] == self.committed
                if raft.state.leading is not None:
                    self.check_majority_has(raft, known)
                self.committed = known
            else:
                assert known == self.committed[: len(known)], "a committed record changed"
        self.check_logs_match()

    def check_majority_has(self, raft: Raft, known: list[Entry]) -> None:
        on_disk = 0
        for voter in raft.state.voters:
            log = self.nodes[voter.voter_id].log
            # Of one that lost records others may count those that it had.
            has_lost = self.nodes[voter.voter_id].must_catch_up
            on_disk += has_lost or log.everything()[: log.flushed][: len(known)] == known
        assert on_disk > len(raft.state.voters) // 2, "committed without a majority of disks"

    def check_logs_match(self) -> None:
        logs = [node.log.everything() for node in self.nodes.values()]
        for one in logs:
            for other in logs:
                for index in range(min(len(one), len(other)) - 1, -1, -1):
                    if one[index].epoch == other[index].epoch:
                        assert one[: index + 1] == other[: index + 1], "same place, different history"
                        break

    def calm(self, seconds: float = 60.0) -> None:
        """No more faults: run until all replicas agree, with a limit of time."""
        self.cut = set()
        for node in self.nodes.values():
            if node.raft is None:
                node.start()
        end = self.now + seconds
        while self.now < end and not self.agreed():
            for _ in range(len(self.messages)):
                self.deliver(0)
            for node in self.nodes.values():
                node.flush()
                node.settle()
            self.pass_time(0.05)
            self.check()

    def agreed(self) -> bool:
        leader = self.leader()
        if leader is None or leader.raft is None:
            return False
        end = leader.log.end_offset
        return all(
            node.raft is not None
            and node.raft.state.epoch == leader.raft.state.epoch
            and node.raft.state.high_watermark == end == node.log.end_offset
            for node in self.nodes.values()
        )
