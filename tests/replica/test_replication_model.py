"""Model of three replicas and a controller, driven by random choices: no acknowledged or served record is lost.

The leader's view and the truncation are the real ones. Logs are lists of (leader epoch, value). The controller is a few
lines that elect as Kafka's does (ISR, then eligible leader replicas, KIP-966). Random choices decide which node
produces, fetches, gets the metadata late, or crashes with or without its unflushed tail, and when proposals reach the
controller.

At most one replica (min.insync.replicas is two) may have lost its tail since all acknowledged records were in sync
again: more losses are not survivable. A replica that cannot prove that it lost nothing registers as unclean, and is
neither in the ISR nor eligible any more; one that was only killed stays eligible.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.scale import size

from ottla.replica.leadership import IsrChange, Leadership
from ottla.replica.truncation import first_fetch_offset, truncation_offset
from ottla.storage.files.epochs import LeaderEpochCache

IDS = (1, 2, 3)
MIN_ISR = 2
LAG_S = 10.0
FOLLOWER_BATCH = 2
replica_ids = st.sampled_from(IDS)


class View(NamedTuple):
    """State decided by the controller, as of one partition epoch."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    fenced: frozenset[int]
    broker_epochs: tuple[int, int, int]

    def broker_epoch(self, broker: int) -> int:
        return self.broker_epochs[broker - 1]


class Replica:
    """One broker's replica."""

    def __init__(self, number: int, view: View) -> None:
        self.id = number
        self.log: list[tuple[int, int]] = []
        self.epochs = LeaderEpochCache([])
        self.flushed = 0
        self.high_watermark = 0
        self.alive = True
        self.broker_epoch = view.broker_epoch(number)
        self.view = view
        self.leadership: Leadership | None = None

    def cut(self, end: int) -> None:
        del self.log[end:]
        self.epochs.truncate_from_end(end)
        self.flushed = min(self.flushed, end)
        self.high_watermark = min(self.high_watermark, end)

    def append(self, epoch: int, value: int) -> None:
        self.epochs.assign(epoch, len(self.log))
        self.log.append((epoch, value))

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, len(self.log))

    def follow(self, view: View, now_s: float) -> None:
        """Apply the controller's state."""
        if view.partition_epoch < self.view.partition_epoch:
            return
        new_epoch = view.leader_epoch != self.view.leader_epoch or self.leadership is None
        self.view = view
        if view.leader != self.id:
            self.leadership = None
            return
        if new_epoch:
            self.epochs.assign(view.leader_epoch, len(self.log))
            self.leadership = Leadership(
                self.id,
                view.leader_epoch,
                len(self.log),
                max_lag_s=LAG_S,
                eligible=lambda broker, epoch: (
                    broker not in self.view.fenced and epoch == self.view.broker_epoch(broker)
                ),
            )
        assert self.leadership is not None
        self.leadership.committed(view.partition_epoch, IDS, view.isr, now_s)

    def advance(self, now_s: float) -> None:
        leadership = self.leadership
        if leadership is not None:
            end = leadership.next_high_watermark(len(self.log), len(self.log), MIN_ISR, now_s)
            self.high_watermark = max(self.high_watermark, end)


class Cluster(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 100.0
        self.view = View(1, 0, 0, IDS, (), frozenset(), (1, 2, 3))
        self.next_broker_epoch = 4
        self.replicas = {number: Replica(number, self.view) for number in IDS}
        for replica in self.replicas.values():
            replica.follow(self.view, self.now_s)
        self.proposals: list[tuple[int, int, IsrChange]] = []
        """(replica, its broker epoch at the proposal, the change)."""
        self.values = 0
        self.waiting: list[tuple[int, int, int, int]] = []
        """Produced with acks=all and not acknowledged: (replica, leader epoch, offset, value)."""
        self.served: dict[int, tuple[int, int]] = {}
        """Records that any consumer could have read, by offset."""
        self.acknowledged: dict[int, int] = {}
        self.lost_tail: int | None = None

    def live(self, number: int) -> Replica | None:
        replica = self.replicas[number]
        return replica if replica.alive else None

    # --- clients ---------------------------------------------------------------------------------------------------

    @rule(number=replica_ids, count=st.integers(1, 3))
    def produce(self, number: int, count: int) -> None:
        replica = self.live(number)
        if replica is None or replica.leadership is None or len(replica.leadership.isr) < MIN_ISR:
            return
        for _ in range(count):
            self.values += 1
            replica.append(replica.view.leader_epoch, self.values)
            self.waiting.append((number, replica.view.leader_epoch, len(replica.log) - 1, self.values))
        replica.advance(self.now_s)

    @rule(number=replica_ids)
    def flush(self, number: int) -> None:
        replica = self.replicas[number]
        replica.flushed = len(replica.log)

    # --- replication -----------------------------------------------------------------------------------------------

    @rule(number=replica_ids, times=st.integers(1, 4))
    def fetch(self, number: int, times: int) -> None:
        for _ in range(times):
            self.fetch_once(number)

    def fetch_once(self, number: int) -> None:
        follower = self.live(number)
        if follower is None or follower.view.leader in (number, -1):
            return
        leader = self.live(follower.view.leader)
        if leader is None or leader.leadership is None or leader.view.leader_epoch != follower.view.leader_epoch:
            return
        if leader.view.broker_epoch(number) > follower.broker_epoch:
            return
        offset = first_fetch_offset(len(follower.log), follower.epochs.latest_epoch, follower.high_watermark)
        follower.cut(offset)
        asked = follower.epochs.latest_epoch
        if asked >= 0:
            found = leader.epoch_end(asked)
            assert found != (-1, -1)
            if found[0] < asked or found[1] < offset:
                follower.cut(truncation_offset(found, follower.epoch_end(found[0]), len(follower.log), offset))
                return
        assert offset <= len(leader.log)
        leadership = leader.leadership
        leadership.fetched(number, offset, 0, len(leader.log), self.now_s, follower.broker_epoch)
        change = leadership.expansion(number, leader.high_watermark)
        if change is not None:
            self.proposals.append((leader.id, leader.broker_epoch, change))
        for epoch, value in leader.log[offset : offset + FOLLOWER_BATCH]:
            follower.append(epoch, value)
        leader.advance(self.now_s)
        follower.high_watermark = max(follower.high_watermark, min(leader.high_watermark, len(follower.log)))

    @rule(seconds=st.sampled_from((1.0, 11.0)))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        for replica in self.replicas.values():
            if replica.alive and replica.leadership is not None:
                change = replica.leadership.shrinking(len(replica.log), self.now_s)
                if change is not None:
                    self.proposals.append((replica.id, replica.broker_epoch, change))
                replica.advance(self.now_s)

    # --- the controller --------------------------------------------------------------------------------------------

    @rule(number=replica_ids)
    def learn(self, number: int) -> None:
        replica = self.live(number)
        if replica is not None:
            replica.follow(self.view, self.now_s)
            replica.advance(self.now_s)

    @rule(answered=st.booleans())
    @precondition(lambda self: bool(self.proposals))
    def alter_partition(self, answered: bool) -> None:
        leader, broker_epoch, change = self.proposals.pop(0)
        view = self.view
        valid = (
            view.leader == leader
            and view.broker_epoch(leader) == broker_epoch
            and change.leader_epoch == view.leader_epoch
            and change.partition_epoch == view.partition_epoch
        )
        eligible = all(
            member not in view.fenced and epoch in (-1, view.broker_epoch(member)) for member, epoch in change.isr
        )
        if valid and eligible:
            isr = tuple(member for member, _ in change.isr)
            self.decide(isr=isr, elr=self.elr_of(isr, (*view.elr, *view.isr)))
        proposer = self.live(leader)
        if not answered or proposer is None or proposer.leadership is None:
            return
        if valid and not eligible:
            proposer.leadership.not_attempted(change)
        elif valid:
            proposer.follow(self.view._replace(fenced=proposer.view.fenced), self.now_s)
        proposer.advance(self.now_s)

    @staticmethod
    def elr_of(isr: tuple[int, ...], candidates: tuple[int, ...]) -> tuple[int, ...]:
        if len(isr) >= MIN_ISR:
            return ()
        return tuple(dict.fromkeys(member for member in candidates if member not in isr))

    def decide(self, *, isr: tuple[int, ...], elr: tuple[int, ...]) -> None:
        """Commit a new ISR, and elect a leader if the present one is not in it."""
        view = self.view
        leader, leader_epoch = view.leader, view.leader_epoch
        if leader not in isr:
            alive = [member for member in (*isr, *elr) if member not in view.fenced]
            leader = alive[0] if alive else -1
            leader_epoch += 1
            if leader != -1 and leader not in isr:
                isr = (leader,)
                elr = tuple(member for member in elr if member != leader)
        self.view = view._replace(
            leader=leader, leader_epoch=leader_epoch, isr=isr, elr=elr, partition_epoch=view.partition_epoch + 1
        )

    def fence(self, number: int, *, unclean: bool) -> None:
        view = self.view
        self.view = view._replace(fenced=view.fenced | {number})
        isr = tuple(member for member in view.isr if member != number)
        elr = self.elr_of(isr, (*view.elr, *view.isr))
        if unclean:
            elr = tuple(member for member in elr if member != number)
        self.decide(isr=isr, elr=elr)

    @rule(number=replica_ids)
    def session_expires(self, number: int) -> None:
        """The controller fences a broker, which may still be alive."""
        if number not in self.view.fenced:
            self.fence(number, unclean=False)

    @rule(number=replica_ids)
    def heartbeat(self, number: int) -> None:
        replica = self.live(number)
        if replica is not None and number in self.view.fenced:
            self.view = self.view._replace(
                fenced=self.view.fenced - {number}, partition_epoch=self.view.partition_epoch + 1
            )
            if self.view.leader == -1:
                self.decide(isr=self.view.isr, elr=self.view.elr)

    # --- crashes ---------------------------------------------------------------------------------------------------

    @rule(number=replica_ids)
    def crash(self, number: int) -> None:
        replica = self.replicas[number]
        if not replica.alive:
            return
        replica.alive = False
        replica.leadership = None
        self.waiting = [each for each in self.waiting if each[0] != number]

    @rule(number=replica_ids, lose=st.booleans(), keep=st.integers(0, 3))
    def restart(self, number: int, lose: bool, keep: int) -> None:
        """Restart as a new incarnation, which registers before anything else."""
        replica = self.replicas[number]
        if replica.alive:
            return
        unclean = lose and self.lost_tail in (None, number)
        if unclean:
            self.lost_tail = number
            replica.cut(min(len(replica.log), replica.flushed + keep))
        replica.flushed = len(replica.log)
        replica.high_watermark = min(replica.high_watermark, len(replica.log))
        replica.alive = True
        self.fence(number, unclean=unclean)
        epochs = list(self.view.broker_epochs)
        epochs[number - 1] = replica.broker_epoch = self.next_broker_epoch
        self.next_broker_epoch += 1
        self.view = self.view._replace(broker_epochs=(epochs[0], epochs[1], epochs[2]))
        replica.view = self.view._replace(leader=-1, partition_epoch=-1)
        replica.follow(self.view, self.now_s)

    # --- invariants ------------------------------------------------------------------------------------------------

    @invariant()
    def what_was_served_stays(self) -> None:
        """Every offset below a high watermark always has the same record."""
        for replica in self.replicas.values():
            if not replica.alive:
                continue
            assert replica.high_watermark <= len(replica.log)
            for offset in range(replica.high_watermark):
                assert self.served.setdefault(offset, replica.log[offset]) == replica.log[offset]
        for number, leader_epoch, offset, value in list(self.waiting):
            replica = self.replicas[number]
            if replica.leadership is None or replica.view.leader_epoch != leader_epoch:
                self.waiting.remove((number, leader_epoch, offset, value))
            elif replica.high_watermark > offset:
                self.waiting.remove((number, leader_epoch, offset, value))
                self.acknowledged[offset] = value
        for offset, value in self.acknowledged.items():
            assert self.served[offset][1] == value

    @invariant()
    def a_leader_has_all_that_was_served(self) -> None:
        """Every leader has all served records, and so has every replica that might be elected next."""
        view = self.view
        for member in (*view.isr, *view.elr):
            if self.replicas[member].broker_epoch != view.broker_epoch(member):
                continue
            log = self.replicas[member].log
            for offset, record in self.served.items():
                in_log = log[offset] if offset < len(log) else None
                assert in_log == record, f"{member} may lead and has {in_log} at {offset} instead of {record}"

    @invariant()
    def replicas_agree_below_the_lowest_high_watermark(self) -> None:
        """The replicas have the same records there."""
        low = min(replica.high_watermark for replica in self.replicas.values())
        logs = {tuple(replica.log[:low]) for replica in self.replicas.values()}
        assert len(logs) == 1

    @invariant()
    def losses_are_made_good(self) -> None:
        """A replica that lost its tail may lose another, or another replica may, once it is in sync again."""
        if self.lost_tail is not None and self.lost_tail in self.view.isr and len(self.view.isr) >= MIN_ISR:
            self.lost_tail = None

    def teardown(self) -> None:
        """Once faults stop, everything is replicated: no partition stays stuck."""
        for number in IDS:
            if not self.replicas[number].alive:
                self.restart(number, False, 0)
        for _ in range(300):
            for number in IDS:
                self.heartbeat(number)
                self.learn(number)
                self.fetch_once(number)
            while self.proposals:
                self.alter_partition(True)
            self.now_s += 0.1
            self.what_was_served_stays()
            self.a_leader_has_all_that_was_served()
            if self.in_sync():
                return
        raise AssertionError(f"stuck: {self.view}")

    def in_sync(self) -> bool:
        logs = {tuple(replica.log) for replica in self.replicas.values()}
        ends = {len(replica.log) for replica in self.replicas.values()}
        return len(self.view.isr) == len(IDS) and len(logs) == 1 and ends == {self.leader_high_watermark()}

    def leader_high_watermark(self) -> int:
        return self.replicas[self.view.leader].high_watermark


Cluster.TestCase.settings = settings(max_examples=size(10, 100), stateful_step_count=60, deadline=None)
TestReplication = Cluster.TestCase
