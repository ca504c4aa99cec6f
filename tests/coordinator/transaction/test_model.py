"""Any schedule of requests, faults, leader changes and delays.

Invariants: a restart from the log restores the same state; committed decisions are completed as decided; no identity is
assigned to two instances; and once faults are over every transaction ends.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.scale import size

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.transaction.metadata import TransactionMetadata
from ottla.coordinator.transaction.state import VALID_PREVIOUS_STATES, TransactionState
from ottla.record.batch import NO_PRODUCER_EPOCH

from ..answers import Answer
from .conversation import LAST_EPOCH, TIMEOUT_MS, Conversation

IDS = ["a", "b"]
FAULTS = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER]

ids = st.sampled_from(IDS)
booleans = st.booleans()


def as_loaded(metadata: TransactionMetadata) -> TransactionMetadata:
    """Return the metadata without fields that the log does not contain."""
    return metadata._replace(last_producer_epoch=NO_PRODUCER_EPOCH)


class Schedules(RuleBasedStateMachine):
    """Clients use the identities they got, and late ones use earlier identities."""

    @initialize(level=st.sampled_from([1, 2]), near_the_edge=booleans)
    def begin(self, level: int, near_the_edge: bool) -> None:
        self.talk = Conversation(
            transaction_version=level,
            transactional_id_expiration_ms=600_000,
            transaction_remove_expired_transaction_cleanup_interval_ms=60_000,
        )
        self.talk.markers.prompt = False
        self.known: dict[str, list[tuple[int, int]]] = {name: [(1, 0)] for name in IDS}
        self.waiting: list[tuple[str, Answer[Any]]] = []
        self.initialized: list[tuple[str, int, int]] = []
        self.markers_seen = 0
        if near_the_edge:
            for name in IDS:
                producer_id, _ = self.talk.producer(name)
                metadata = self.talk.metadata(name)
                self.talk.put(metadata._replace(producer_epoch=LAST_EPOCH - 2), name)
                self.known[name].append((producer_id, LAST_EPOCH - 2))

    def _watch(self, name: str, answer: Answer[Any]) -> None:
        self.waiting.append((name, answer))
        self._learn()

    def _learn(self) -> None:
        still = []
        for name, answer in self.waiting:
            if answer.pending:
                still.append((name, answer))
            elif getattr(answer.response, "producer_id", -1) >= 0:
                self.known[name].append((answer.response.producer_id, answer.response.producer_epoch))
        self.waiting = still

    def _producer(self, name: str, age: int) -> tuple[int, int]:
        identities = self.known[name]
        return identities[max(0, len(identities) - 1 - age)]

    # --- clients -----------------------------------------------------------------------------------------------------

    @rule(name=ids, age=st.integers(0, 2), new=booleans)
    def init(self, name: str, age: int, new: bool) -> None:
        producer = (-1, -1) if new else self._producer(name, age)
        self._watch(name, self.talk.init(name, producer))

    @rule(name=ids, age=st.integers(0, 2), index=st.integers(0, 7), version=st.sampled_from([3, 5]))
    def add(self, name: str, age: int, index: int, version: int) -> None:
        self.talk.add(self._producer(name, age), ("t", index), transactional_id=name, version=version)

    @rule(name=ids, age=st.integers(0, 2), committed=booleans, version=st.sampled_from([4, 5]))
    def end(self, name: str, age: int, committed: bool, version: int) -> None:
        answer = self.talk.end(self._producer(name, age), committed=committed, transactional_id=name, version=version)
        self._watch(name, answer)

    @rule(name=ids, age=st.integers(0, 1), committed=booleans)
    def a_turn_of_many(self, name: str, age: int, committed: bool) -> None:
        """Requests of one tick share a batch, and its outcome."""
        producer = self._producer(name, age)
        self.talk.add(producer, ("u", 0), transactional_id=name, version=5, settle=False)
        ended = self.talk.end(producer, committed=committed, transactional_id=name, settle=False)
        again = self.talk.init(name, producer, settle=False)
        self.talk.time.settle()
        self._watch(name, ended)
        self._watch(name, again)

    # --- markers and time --------------------------------------------------------------------------------------------

    @rule(code=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH]))
    def markers(self, code: ErrorCode) -> None:
        if code is ErrorCode.NONE or self.talk.markers.out:
            self.talk.markers.written(code)
            self.talk.time.settle()

    @rule(seconds=st.sampled_from([0.3, 2.0, 6.0, 30.0, 75.0, 700.0]))
    def wait(self, seconds: float) -> None:
        self.talk.time.advance(seconds)

    # --- faults ------------------------------------------------------------------------------------------------------

    @rule(code=st.sampled_from(FAULTS), count=st.integers(1, 2))
    def appends_fail(self, code: ErrorCode, count: int) -> None:
        for _ in range(count):
            self.talk.log.append_failures.append(KafkaError(code))

    @precondition(lambda self: self.talk.log.commits)
    @rule()
    def replicas_fall_behind(self) -> None:
        self.talk.log.commits = False

    @precondition(lambda self: not self.talk.log.commits)
    @rule()
    def replicas_catch_up(self) -> None:
        self.talk.log.commits = True
        self.talk.log.commit(0, self.talk.log.end[0])
        self.talk.time.settle()

    @rule(level=st.sampled_from([1, 2]))
    def the_level_changes(self, level: int) -> None:
        self.talk.transaction_version = level

    @rule()
    def producer_ids_come_late(self) -> None:
        self.talk.producer_ids.hold = True

    @rule()
    def producer_ids_come(self) -> None:
        self.talk.producer_ids.come()
        self.talk.time.settle()

    @rule(truncate=booleans)
    def move(self, truncate: bool) -> None:
        """Another coordinator, which may lack uncommitted records."""
        self.talk.runtime.resign(0)
        if truncate:
            self.talk.log.truncate(0, self.talk.log.high_watermark[0])
        self.talk.log.append_failures.clear()
        self.talk.lead()

    @rule()
    def restart(self) -> None:
        """The state from the log equals the previous one, except fields that are only in memory."""
        before = {name: as_loaded(each) for name, each in self.talk.shard.transactions.items()}
        was_open = set(self.talk.shard.open_ids)
        self.talk.log.append_failures.clear()
        self.waiting.clear()
        self.talk.producer_ids.waiting.clear()
        commits, self.talk.log.commits = self.talk.log.commits, False
        high_watermark = self.talk.log.high_watermark[0]
        records = len(self.talk.records())
        self.talk.restart()
        self.talk.log.commits = commits
        if len(self.talk.records()) == records:
            assert {name: as_loaded(each) for name, each in self.talk.shard.transactions.items()} == before
            assert set(self.talk.shard.open_ids) == was_open
        if commits:
            self.talk.log.commit(0, max(high_watermark, self.talk.log.end[0]))
            self.talk.time.settle()

    # --- invariants ---------------------------------------------------------------------------------------------------

    @invariant()
    def it_holds(self) -> None:
        self._learn()
        talk = self.talk
        assert not talk.defects, talk.defects
        self._the_log_makes_sense()
        self._markers_are_of_committed_decisions()
        assert set(talk.shard.open_ids) == {
            name for name, each in talk.shard.transactions.items() if 1 <= each.state <= 3
        }
        for name in IDS:
            for identity in self.known[name]:
                assert identity[1] <= LAST_EPOCH

    def _the_log_makes_sense(self) -> None:
        last: dict[str, TransactionMetadata] = {}
        for name, metadata, _ in self.talk.records():
            if metadata is None:
                assert name in last
                del last[name]
                continue
            before = last.get(name)
            if before is not None:
                assert before.state in VALID_PREVIOUS_STATES[metadata.state], (before, metadata)
                assert metadata.producer_id >= before.producer_id
                if metadata.producer_id == before.producer_id:
                    assert metadata.producer_epoch - before.producer_epoch in (0, 1, LAST_EPOCH - 2), (before, metadata)
                else:
                    assert metadata.producer_epoch == 0
            assert 0 <= metadata.producer_epoch <= LAST_EPOCH + 1
            last[name] = metadata

    def _markers_are_of_committed_decisions(self) -> None:
        """Each decision was below the high watermark: those are never truncated."""
        sent = self.talk.markers.sent
        if self.markers_seen == len(sent):
            return
        decided = {
            (name, each.producer_id, each.producer_epoch, each.state is TransactionState.PREPARE_COMMIT)
            for name, each, _ in self.talk.records()
            if each is not None and each.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
        }
        for marker in sent[self.markers_seen :]:
            key = (marker.transactional_id, marker.producer_id, marker.producer_epoch, marker.committed)
            assert key in decided
        self.markers_seen = len(sent)

    def teardown(self) -> None:
        """Faults are over: everything ends within the timeout, a sweep interval and the retries."""
        if not hasattr(self, "talk"):
            return
        talk = self.talk
        talk.log.append_failures.clear()
        talk.producer_ids.come()
        talk.log.commits = True
        talk.log.commit(0, talk.log.end[0])
        talk.time.settle()
        talk.markers.prompt = True
        talk.markers.written()
        # Permanently rejected markers wait for the next coordinator.
        talk.runtime.resign(0)
        talk.lead()
        talk.time.advance(TIMEOUT_MS / 1000 + 10 + 7)
        assert talk.shard.open_count == 0
        assert talk.shard.endings.pending_count == 0
        outcomes: dict[tuple[str, int, int], bool] = {}
        for marker in talk.markers.sent:
            key = (marker.transactional_id, marker.producer_id, marker.producer_epoch)
            if marker.transaction_version == 2:
                # Each end of v2 has an epoch of its own, and one outcome.
                assert outcomes.setdefault(key, marker.committed) is marker.committed
        for name in IDS:
            assert talk.init(name).error is ErrorCode.NONE


@pytest.mark.promise("T6")
def test_any_schedule_ends_as_was_decided() -> None:
    run_state_machine_as_test(
        Schedules, settings=settings(max_examples=size(6, 60), stateful_step_count=40, deadline=None)
    )
