"""The runtime against a model, under failing appends, stalled high watermarks, lost leadership and restarts.

The log is the reference: without an open batch the state equals the log, a read sees the log up to the high watermark,
and every operation is answered once and correctly:

- success: the operation saw the state of the log at its position; its records are below the high watermark, and stay
  there for ever;
- failed append, or rejected: its records are nowhere in the log;
- timeout or lost leadership: either.

Records of a transaction take effect at its marker, under all events in between; a marker with a failed append has no
effect at all.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.scale import size

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.runtime import CoordinatorResult, CoordinatorState

from .harness import MapShard, Outcome, Put, Setup, state_of

KEYS = st.sampled_from("abc")
APPEND_ERRORS = st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])


class RuntimeModel(RuleBasedStateMachine):
    """One partition. `number` makes every write unique, so that it can be found in the log."""

    @initialize(commits=st.booleans(), batch_bytes=st.sampled_from([150, 400, 1_000_000]))
    def begin(self, commits: bool, batch_bytes: int) -> None:
        self.setup = Setup(1)
        self.setup.log.commits = commits
        self.setup.log.batch_bytes = batch_bytes
        self.leader_epoch = 0
        self.readable_from = 0
        self.number = 0
        self.waiting: list[tuple[Outcome, list[int]]] = []
        self.acknowledged: set[int] = set()
        self.refused: set[int] = set()
        self.modifications: dict[int, tuple[str, Outcome]] = {}
        self.looks: list[Outcome] = []
        self.transactional: list[Outcome] = []
        self.elect()

    # --- events -------------------------------------------------------------------------------------------------------

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4), atomic=st.booleans(), remove=st.booleans())
    def write(self, keys: list[str], atomic: bool, remove: bool) -> None:
        numbers = [self.number + index for index in range(len(keys))]
        self.number += len(keys)
        records = [Put(key, number) for key, number in zip(keys, numbers, strict=True)]
        if remove:
            records.insert(0, Put(keys[-1], None))
        outcome = self.setup.write(*records, atomic=atomic, response=numbers)
        self.waiting.append((outcome, numbers if atomic else []))

    @rule(key=KEYS)
    def read_modify_write(self, key: str) -> None:
        number, self.number = self.number, self.number + 1

        def operation(shard: MapShard) -> CoordinatorResult[Put, int | None]:
            return CoordinatorResult((Put(key, number),), shard.numbers.get(key))

        outcome = Outcome()
        self.setup.runtime.schedule_write("write", 0, operation, outcome)
        self.waiting.append((outcome, [number]))
        self.modifications[number] = (key, outcome)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=3), producer_id=st.integers(1, 2))
    def write_in_transaction(self, keys: list[str], producer_id: int) -> None:
        records = [Put(key, self.number + index) for index, key in enumerate(keys)]
        self.number += len(keys)
        self.transactional.append(self.setup.write_in_transaction(*records, producer_id=producer_id))

    @rule(producer_id=st.integers(1, 2), committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.transactional.append(self.setup.end_transaction(producer_id, committed=committed))

    @rule()
    def write_nothing(self) -> None:
        outcome = Outcome()
        self.setup.runtime.schedule_write("write", 0, lambda shard: CoordinatorResult((), dict(shard.numbers)), outcome)
        self.waiting.append((outcome, []))
        self.looks.append(outcome)

    @rule()
    def turn(self) -> None:
        self.setup.time.turn()

    @rule()
    def settle(self) -> None:
        self.setup.time.settle()

    @rule(seconds=st.sampled_from([0.1, 3.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.setup.time.advance(seconds)

    @rule(code=APPEND_ERRORS)
    def plan_failure(self, code: ErrorCode) -> None:
        self.setup.log.append_failures.append(KafkaError(code))

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """Up to the end of a batch, since no follower has a part of one."""
        log = self.setup.log
        ends = [end for end in log.ends(0) if end > log.high_watermark[0]]
        log.commit(0, data.draw(st.sampled_from([log.high_watermark[0], *ends])))

    @precondition(lambda self: self.setup.log.leader_epoch[0] is not None)
    @rule(known=st.booleans())
    def lose_leadership(self, known: bool) -> None:
        """Another broker leads; this one may notice it only at its own next election."""
        self.leader_epoch += 1
        self.setup.log.leader_epoch[0] = None
        if known:
            self.setup.runtime.resign(0, self.leader_epoch)

    @precondition(lambda self: self.setup.log.leader_epoch[0] is None)
    @rule(cut=st.booleans(), writes=st.booleans(), data=st.data())
    def elsewhere(self, cut: bool, writes: bool, data: st.DataObject) -> None:
        """The other leader truncates uncommitted records, writes, commits."""
        log = self.setup.log
        if cut:
            log.truncate(0, data.draw(st.sampled_from([log.high_watermark[0], log.end[0]])))
        if writes:
            number, self.number = self.number, self.number + 1
            self.setup.store([Put("a", number)])
            log.high_watermark[0] = log.end[0]

    @precondition(lambda self: self.setup.log.leader_epoch[0] is None)
    @rule()
    def elect(self) -> None:
        self.leader_epoch += 1
        self.readable_from = self.setup.log.end[0]
        self.setup.log.leader_epoch[0] = self.leader_epoch
        self.setup.runtime.become_leader(0, self.leader_epoch)

    @rule()
    def restart(self) -> None:
        """kill -9: waiting clients get no response, the log stays."""
        self.waiting.clear()
        self.modifications.clear()
        self.looks.clear()
        self.transactional.clear()
        self.setup.time = type(self.setup.time)()
        self.setup.log.time = self.setup.time
        self.setup.new_runtime()
        self.setup.log.leader_epoch[0] = None
        self.elect()

    # --- invariants ---------------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        return self.setup.runtime.state(0) is CoordinatorState.ACTIVE and self.setup.log.leader_epoch[0] is not None

    @invariant()
    def answers_are_right(self) -> None:
        log = self.setup.log
        stored = {record.number for record in log.records(0)}
        committed = {record.number for record in log.records(0, log.high_watermark[0])}
        still = []
        for outcome, numbers in self.waiting:
            assert len(outcome.calls) <= 1
            if outcome.pending:
                still.append((outcome, numbers))
                continue
            error = outcome.error
            if error is None:
                self.acknowledged.update(numbers)
            elif error in (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                self.refused.update(numbers)
        self.waiting = still
        assert self.acknowledged <= committed
        assert not self.refused & stored
        assert self.setup.defects == []

    @invariant()
    def responses_match_the_log(self) -> None:
        """An operation saw the log before its record, or up to some committed point."""
        log = self.setup.log
        records = log.records(0)
        index_of = {record.number: index for index, record in enumerate(records)}
        for number, (key, outcome) in list(self.modifications.items()):
            if outcome.calls:
                del self.modifications[number]
                if outcome.error is None:
                    assert outcome.response == state_of(records[: index_of[number]]).get(key)
        committed = log.records(0, log.high_watermark[0])
        points = [state_of(committed[:end]) for end in range(len(committed) + 1)]
        for outcome in self.looks:
            if outcome.calls and outcome.error is None:
                assert outcome.response in points
        self.looks = [outcome for outcome in self.looks if outcome.pending]

    @invariant()
    def state_matches_the_log(self) -> None:
        if not self.active:
            return
        log = self.setup.log
        pending = self.setup.runtime.pending_records()
        if not pending:
            assert self.setup.shard().numbers == state_of(log.records(0))
        if log.high_watermark[0] < self.readable_from:
            # Possibly acknowledged by an earlier leader, and not known to be committed by this one.
            assert self.setup.read().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return
        ends = [0, *log.ends(0)]
        readable = max(end for end in ends if end <= log.high_watermark[0])
        assert self.setup.committed() == state_of(log.records(0, readable))

    def teardown(self) -> None:
        if not hasattr(self, "setup"):
            return
        log = self.setup.log
        if log.leader_epoch[0] is None:
            self.elect()
        log.append_failures.clear()
        self.setup.time.settle()
        log.commit(0, log.end[0])
        self.setup.time.settle()
        self.answers_are_right()
        assert self.waiting == [], "every request was answered"
        assert all(len(outcome.calls) == 1 for outcome in self.transactional)
        pending = dict(self.setup.shard().pending)
        before = dict(self.setup.shard().numbers)
        self.restart()
        self.setup.time.settle()
        assert self.setup.committed() == before == state_of(log.records(0))
        assert self.setup.shard().pending == pending, "open transactions were restored"


RuntimeModel.TestCase.settings = settings(max_examples=size(20, 200), stateful_step_count=40, deadline=None)
TestRuntimeModel = RuntimeModel.TestCase
