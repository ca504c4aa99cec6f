"""Records of transactions and their markers: batches of their own, verified, reverted and loaded like all others."""

from __future__ import annotations

from collections import deque

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.runtime import WRITE_TXN_MARKER, CoordinatorState, Transaction

from .harness import Put, Setup

A1, B2, C3 = Put("a", 1), Put("b", 2), Put("c", 3)


class TestWrite:
    def test_records_take_effect_at_the_commit_marker(self, led: Setup) -> None:
        assert led.write_in_transaction(A1).response == "written"
        assert led.shard().numbers == {}
        assert led.end_transaction().response is None
        assert led.committed() == {"a": 1}

    def test_an_abort_drops_them(self, led: Setup) -> None:
        led.write_in_transaction(A1)
        assert led.end_transaction(committed=False).response is None
        assert led.shard().pending == {}
        assert led.committed() == {}

    def test_transactional_batch_has_the_producer(self, led: Setup) -> None:
        led.write(A1)
        led.write_in_transaction(B2, producer_id=9)
        led.write(C3)
        led.time.settle()
        assert [
            (batch.records_count, batch.is_transactional, batch.producer_id, batch.producer_epoch, batch.base_sequence)
            for batch in led.log.views(0)
        ] == [(1, False, -1, -1, -1), (1, True, 9, 0, -1), (1, False, -1, -1, -1)]
        assert led.log.guards == [None, "guard of t9", None]

    def test_marker_follows_the_open_batch(self, led: Setup) -> None:
        written = led.write(A1)
        assert written.pending
        assert led.end_transaction().response is None
        assert written.response == "written"
        assert [batch.is_control for batch in led.log.views(0)] == [False, True]

    def test_is_answered_when_committed(self, led: Setup) -> None:
        led.log.commits = False
        written, ended = led.write_in_transaction(A1), led.end_transaction()
        assert led.shard().numbers == {"a": 1}
        assert (written.pending, ended.pending) == (True, True)
        assert led.committed() == {}
        led.log.commit(0, 1)
        assert (written.response, ended.pending) == ("written", True)
        led.log.commit(0, 2)
        assert ended.response is None
        assert led.committed() == {"a": 1}

    def test_markers_of_other_producers_have_no_effect(self, led: Setup) -> None:
        led.write_in_transaction(A1, producer_id=1)
        led.end_transaction(2)
        assert led.committed() == {}
        led.end_transaction(1)
        assert led.committed() == {"a": 1}

    def test_repeated_marker_has_no_effect(self, led: Setup) -> None:
        led.write_in_transaction(A1)
        for committed in (True, False, True):
            assert led.end_transaction(committed=committed).response is None
        assert led.committed() == {"a": 1}

    def test_operations_are_counted(self, led: Setup) -> None:
        led.write_in_transaction(A1)
        led.end_transaction()
        assert led.runtime.statistics.operations == {"write": 1, WRITE_TXN_MARKER: 1}


class TestVerification:
    def test_partition_is_verified_first(self, led: Setup) -> None:
        led.log.verifications = deque()
        written = led.write_in_transaction(A1)
        assert led.log.verified == [(0, Transaction("t7", 7, 0, add=True))]
        assert led.shard().pending == {}
        led.log.verifications.popleft()()
        assert written.response == "written"

    @pytest.mark.parametrize(
        ("refused", "expected"),
        [
            (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
            (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
            (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
            (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        ],
    )
    def test_verification_errors_are_translated(self, led: Setup, refused: ErrorCode, expected: ErrorCode) -> None:
        led.log.verification_failures.append(KafkaError(refused))
        assert led.write_in_transaction(A1).error == expected
        assert led.log.end[0] == 0

    def test_leadership_loss_during_verification(self, led: Setup) -> None:
        led.log.verifications = deque()
        written = led.write_in_transaction(A1)
        led.runtime.resign(0)
        led.log.verifications.popleft()()
        assert written.error == ErrorCode.NOT_COORDINATOR

    def test_no_verification_without_active_shard(self, setup: Setup) -> None:
        assert setup.write_in_transaction(A1).error == ErrorCode.NOT_COORDINATOR
        setup.log.leader_epoch[0] = 1
        setup.runtime.become_leader(0, 1)
        assert setup.write_in_transaction(A1).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert setup.end_transaction().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert setup.end_transaction(partition=1).error == ErrorCode.NOT_COORDINATOR
        assert setup.log.verified == []

    def test_no_producer_has_no_transaction(self, led: Setup) -> None:
        """Its records would take effect at once."""
        assert led.write_in_transaction(A1, producer_id=-1).error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert led.log.verified == []
        assert led.log.end[0] == 0


class TestFailure:
    def test_of_the_append_reverts_the_records(self, led: Setup) -> None:
        led.write_in_transaction(A1)
        led.log.append_failures.append(KafkaError(ErrorCode.INVALID_TXN_STATE))
        assert led.write_in_transaction(B2).error == ErrorCode.INVALID_TXN_STATE
        led.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
        assert led.write_in_transaction(B2).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert led.shard().pending == {7: (A1,)}

    @pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NOT_ENOUGH_REPLICAS])
    def test_of_a_marker_leaves_the_transaction_open(self, led: Setup, code: ErrorCode) -> None:
        led.write_in_transaction(A1)
        led.log.append_failures.append(KafkaError(code))
        assert led.end_transaction().error == code, "unchanged, because the sender depends on it"
        assert (dict(led.shard().numbers), dict(led.shard().pending)) == ({}, {7: (A1,)})
        assert led.end_transaction().response is None
        assert led.committed() == {"a": 1}

    def test_of_the_open_batch_before_a_marker(self, led: Setup) -> None:
        led.write_in_transaction(A1)
        led.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
        written = led.write(B2)
        assert led.end_transaction().response is None
        assert written.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert led.committed() == {"a": 1}

    def test_unreplayable_marker_is_not_written(self, led: Setup) -> None:
        led.write_in_transaction(A1)
        led.poisoned_markers = True
        assert led.end_transaction().error == ErrorCode.UNKNOWN_SERVER_ERROR
        assert led.log.end[0] == 1
        assert led.shard().pending == {7: (A1,)}
        assert len(led.defects) == 1

    def test_unreplayable_records_are_not_written(self, led: Setup) -> None:
        led.write_in_transaction(A1)
        assert led.write_in_transaction(Put("poison", 1)).error == ErrorCode.UNKNOWN_SERVER_ERROR
        assert led.log.end[0] == 1
        assert led.shard().pending == {7: (A1,)}
        assert len(led.defects) == 1

    def test_foreign_write_before_the_marker_reloads(self, led: Setup) -> None:
        led.write_in_transaction(A1)
        led.store([B2])
        assert led.end_transaction().error == ErrorCode.NOT_COORDINATOR
        led.time.settle()
        assert led.runtime.state(0) is CoordinatorState.ACTIVE
        assert led.shard().numbers == {"a": 1, "b": 2}, "reloaded from the log, which contains the marker"


class TestLoad:
    def test_open_and_ended_transactions(self, led: Setup) -> None:
        led.write_in_transaction(A1, producer_id=1)
        led.write_in_transaction(B2, producer_id=2)
        led.write_in_transaction(C3, producer_id=3)
        led.end_transaction(1)
        led.end_transaction(3, committed=False)
        led.new_runtime()
        led.lead(leader_epoch=2)
        assert led.shard().numbers == {"a": 1}
        assert led.shard().pending == {2: (B2,)}
        led.end_transaction(2)
        assert led.committed() == {"a": 1, "b": 2}

    def test_across_the_high_watermark(self, led: Setup) -> None:
        led.write_in_transaction(A1)
        led.log.commits = False
        led.end_transaction()
        led.new_runtime()
        led.lead(leader_epoch=2)
        assert led.read().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        led.log.commit(0, 2)
        assert led.committed() == {"a": 1}

    def test_the_marker_is_cut_off_by_the_next_leader(self, led: Setup) -> None:
        led.write_in_transaction(A1)
        led.log.commits = False
        led.end_transaction()
        led.log.truncate(0, 1)
        led.lead(leader_epoch=2)
        assert led.committed() == {}
        assert led.shard().pending == {7: (A1,)}
