"""Transactions of a partition: begin and end, fencing, and the last stable offset."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.record.control import EndMarker
from ottla.storage.log.verification import MAX_VERIFICATIONS, Verifications

PRODUCER = 9


@pytest.fixture
def log(fakes, disk, clock):
    return fakes.open_manager(disk, clock).create_log("t", 0)


class Producer:
    """One transactional producer of a partition, which verifies when required."""

    def __init__(self, fakes, clock, log, producer_id=PRODUCER, *, version=2):
        self.fakes, self.clock, self.log, self.producer_id, self.version = fakes, clock, log, producer_id, version

    def batch(self, sequence, *, epoch=0, count=1, transactional=True):
        return self.fakes.make_batch(
            self.clock.now_ms,
            count,
            producer_id=self.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )

    def verify(self, sequence, *, epoch=0):
        return self.log.begin_verification(self.producer_id, epoch, sequence, supports_epoch_bump=self.version >= 2)

    def append(self, sequence, *, epoch=0, count=1):
        return self.append_with(self.verify(sequence, epoch=epoch), sequence, epoch=epoch, count=count)

    def append_with(self, guard, sequence, **options):
        batch = self.batch(sequence, **options)
        return self.log.append_as_leader(batch, 0, len(batch), 1, guard=guard)

    def end(self, *, committed=True, epoch=0, coordinator_epoch=1, version=None):
        marker = EndMarker(
            self.producer_id,
            epoch,
            coordinator_epoch,
            committed,
            self.version if version is None else version,
        )
        self.log.check_marker(marker)
        return self.log.writer.append_end_markers([marker], 1)


@pytest.fixture
def producer(fakes, clock, log):
    return Producer(fakes, clock, log)


@pytest.fixture
def older(fakes, clock, log):
    """A producer with the same epoch from one transaction to the next."""
    return Producer(fakes, clock, log, version=1)


def refused(call, *args, **options):
    with pytest.raises(KafkaError) as failure:
        call(*args, **options)
    return failure.value.code


@pytest.mark.promise("T2")
class TestBeginning:
    def test_transaction_requires_verification_guard(self, log, producer):
        assert refused(producer.append_with, None, 0) == ErrorCode.INVALID_TXN_STATE
        guard = producer.verify(0)
        assert refused(producer.append_with, None, 0) == ErrorCode.INVALID_TXN_STATE
        assert refused(producer.append_with, Verifications().begin(9, 0, 0, 0, supports_epoch_bump=True), 0) == (
            ErrorCode.INVALID_TXN_STATE
        )
        assert log.log_end_offset == 0
        producer.append_with(guard, 0)
        assert producer.verify(1) is None
        producer.append_with(None, 1)

    def test_a_guard_is_good_for_one_transaction(self, producer):
        """A verification that races the end of the transaction begins no other one (KAFKA-18575)."""
        guard = producer.verify(0)
        assert producer.verify(1) is guard
        producer.append_with(guard, 0)
        producer.end(epoch=1)
        assert refused(producer.append_with, guard, 0, epoch=1) == ErrorCode.INVALID_TXN_STATE

    def test_a_marker_voids_a_verification_of_its_own_transaction(self, older):
        guard = older.verify(0)
        older.end(epoch=0)
        assert refused(older.append_with, guard, 0) == ErrorCode.INVALID_TXN_STATE

    @pytest.mark.parametrize("epoch", [0, 1])
    def test_marker_voids_verification_of_version_2_producer(self, producer, older, epoch):
        """Its next transaction may begin with the epoch of the marker, and so be verified before the marker."""
        producer.verify(0)
        guard = older.verify(0, epoch=epoch)
        older.end(epoch=epoch)
        assert refused(older.append_with, guard, 0, epoch=epoch) == ErrorCode.INVALID_TXN_STATE

    def test_next_transaction_is_verified_before_previous_marker(self, log, producer):
        producer.append(0)
        guard = producer.verify(0, epoch=1)
        producer.end(epoch=1)
        producer.append_with(guard, 0, epoch=1)
        assert log.producers.transactions.open_transactions() == {PRODUCER: 2}

    def test_an_older_epoch_begins_nothing(self, producer):
        producer.append(0, epoch=3)
        assert refused(producer.verify, 0, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert refused(producer.append_with, None, 0, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_transaction_begins_with_batch_if_unverified(self, log, producer):
        log.producers.verification_enabled = False
        producer.append_with(None, 0)
        assert log.producers.transactions.open_transactions() == {PRODUCER: 0}

    def test_transaction_of_new_epoch_begins_at_sequence_0(self, producer):
        guard = producer.verify(3)
        assert refused(producer.append_with, guard, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        producer.append(0, count=2)
        producer.append(2)
        producer.end(epoch=1)
        guard = producer.verify(3, epoch=1)
        assert refused(producer.append_with, guard, 3, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        producer.append(0, epoch=1)

    def test_the_marker_leaves_an_entry_that_begins_at_sequence_0(self, log, producer):
        """Also for a batch without a verification guard."""
        producer.append(0)
        producer.end(epoch=1)
        log.producers.verification_enabled = False
        assert refused(producer.append_with, None, 1, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        producer.append_with(None, 0, epoch=1)

    def test_version_1_producer_continues_its_sequence(self, older):
        older.append(17)  # its earlier batches are unknown
        older.end()
        assert older.append_with(None, 17).duplicate
        older.append(18)

    def test_no_batch_overtakes_the_first_awaiting_verification(self, older):
        guard = older.verify(4)
        older.verify(5)
        assert refused(older.append_with, guard, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        older.append_with(guard, 4)
        older.append_with(None, 5)

    def test_open_transaction_rejects_plain_batches_of_producer(self, producer):
        producer.append(0)
        assert refused(producer.append_with, None, 1, transactional=False) == ErrorCode.INVALID_TXN_STATE

    def test_a_duplicate_needs_no_guard(self, producer):
        producer.append(0)
        assert producer.append_with(None, 0).duplicate

    def test_a_coordinator_writes_for_a_producer_by_the_same_rules(self, fakes, clock, log, producer):
        def offsets(epoch=0, guard=None, transactional=True):
            batch = fakes.make_batch(
                clock.now_ms, producer_id=PRODUCER, producer_epoch=epoch, is_transactional=transactional
            )
            return log.append_as_leader(batch, 0, len(batch), 1, client=False, guard=guard)

        assert refused(offsets) == ErrorCode.INVALID_TXN_STATE
        offsets(guard=producer.verify(-1))
        offsets()
        assert refused(offsets, transactional=False) == ErrorCode.INVALID_TXN_STATE
        assert log.last_stable_offset(2) == 0
        producer.end(epoch=1)
        assert log.last_stable_offset(3) == 3
        assert refused(offsets) == ErrorCode.INVALID_PRODUCER_EPOCH


class TestVerifications:
    def test_verifications_are_bounded_and_oldest_is_dropped(self):
        verifications = Verifications()
        first = verifications.begin(0, 0, 0, 0, supports_epoch_bump=True)
        assert verifications.get(0) is first
        for producer_id in range(1, MAX_VERIFICATIONS + 1):
            verifications.begin(producer_id, 0, 0, 0, supports_epoch_bump=True)
        assert len(verifications.guards) == MAX_VERIFICATIONS
        assert verifications.get(0) is None

    def test_verifications_expire_with_producers(self, clock, log, producer):
        log.producer_expiration_ms = 1000
        producer.verify(0)
        clock.now_ms += 999
        log.remove_expired_producers(clock.now_ms)
        assert log.producers.verifications.get(PRODUCER) is not None
        clock.now_ms += 1
        log.remove_expired_producers(clock.now_ms)
        assert log.producers.verifications.get(PRODUCER) is None

    def test_the_lowest_sequence_of_an_epoch_counts(self):
        verifications = Verifications()
        guard = verifications.begin(1, 3, 7, 0, supports_epoch_bump=False)
        for epoch, sequence, lowest in ((3, 5, 5), (3, 6, 5), (2, 1, 5)):
            assert verifications.begin(1, epoch, sequence, 0, supports_epoch_bump=False) is guard
            assert guard.lowest_sequence == lowest

    def test_a_later_epoch_has_a_guard_of_its_own(self):
        verifications = Verifications()
        guard = verifications.begin(1, 0, 7, 0, supports_epoch_bump=True)
        later = verifications.begin(1, 1, 8, 0, supports_epoch_bump=False)
        assert later is not guard
        assert (later.producer_epoch, later.lowest_sequence, later.supports_epoch_bump) == (1, 8, False)


class TestMarkers:
    @pytest.mark.promise("T3")
    def test_late_marker_does_not_end_next_transaction(self, log, producer):
        """KAFKA-19446: at transaction version 2 a marker has a later epoch than its transaction."""
        producer.append(0, epoch=5)
        assert refused(producer.end, epoch=5) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert log.last_stable_offset(1) == 0
        producer.end(epoch=6)
        assert log.last_stable_offset(2) == 2

    @pytest.mark.promise("T3")
    def test_repeated_marker_succeeds(self, log, producer):
        """KAFKA-19999: otherwise the coordinator would send it for ever."""
        producer.append(0)
        producer.end(epoch=1)
        assert producer.end(epoch=1).last_offset == 2
        assert log.last_stable_offset(3) == 3

    def test_repeated_marker_is_fenced_after_next_transaction(self, log, producer):
        producer.append(0)
        producer.end(epoch=1)
        producer.append(0, epoch=1)
        assert refused(producer.end, epoch=1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert log.last_stable_offset(3) == 2

    def test_marker_may_have_maximum_epoch(self, log, producer):
        producer.append(0, epoch=32767)
        producer.end(epoch=32767)
        assert log.last_stable_offset(2) == 2

    def test_version_1_marker_has_epoch_of_transaction(self, log, older):
        older.append(0, epoch=5)
        assert refused(older.end, epoch=4) == ErrorCode.INVALID_PRODUCER_EPOCH
        older.end(epoch=5)
        assert log.last_stable_offset(2) == 2

    def test_version_1_becomes_2_while_a_transaction_is_open(self, older):
        older.append(0, epoch=5)
        assert refused(older.end, epoch=5, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
        older.end(epoch=6, version=2)

    def test_an_older_coordinator_is_fenced(self, producer):
        producer.append(0)
        producer.end(epoch=1, coordinator_epoch=7)
        producer.append(0, epoch=1)
        assert refused(producer.end, epoch=2, coordinator_epoch=6) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        producer.end(epoch=2, coordinator_epoch=7)

    def test_marker_fences_batches_still_in_flight(self, producer):
        producer.append(0)
        producer.end(committed=False, epoch=1)
        assert refused(producer.append_with, None, 1) == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_marker_of_unknown_producer_is_written(self, log, producer):
        producer.end(epoch=3)
        entry = log.producers.get(PRODUCER)
        assert (entry.producer_epoch, entry.last_sequence, entry.coordinator_epoch) == (3, -1, 1)

    def test_marker_after_producer_expiry_and_replay(self, fakes, disk, clock, log, producer):
        """KAFKA-9144: removed state does not return as that of a coordinator that is older than the last."""
        log.producer_expiration_ms = 1000
        producer.append(0)
        producer.end(epoch=1, coordinator_epoch=7)
        clock.now_ms += 1000
        log.remove_expired_producers(clock.now_ms)
        producer.end(epoch=1, coordinator_epoch=5)
        disk.locked.clear()
        again = fakes.open_manager(disk, clock).get_log("t", 0)
        assert again.producers.get(PRODUCER).coordinator_epoch == 5


class TestLastStableOffset:
    def test_the_first_open_transaction_bounds_it(self, fakes, clock, log, producer):
        other = Producer(fakes, clock, log, 10)
        producer.append(0)
        other.append(0)
        assert log.last_stable_offset(2) == 0
        producer.end(epoch=1)
        assert log.last_stable_offset(3) == 1
        other.end(epoch=1, committed=False)
        assert log.last_stable_offset(4) == 4

    def test_a_decided_one_counts_until_its_marker_is_replicated(self, fakes, clock, log, producer):
        other = Producer(fakes, clock, log, 10)
        producer.append(0)
        other.append(0)
        other.end(epoch=1)  # at 2
        producer.end(epoch=1)  # at 3
        assert [log.last_stable_offset(offset) for offset in (1, 2, 3, 4)] == [0, 0, 0, 4]

    def test_later_transaction_may_hold_back_longer(self, fakes, clock, log, producer):
        other = Producer(fakes, clock, log, 10)
        producer.append(0)
        other.append(0)
        producer.end(epoch=1)  # at 2
        other.end(epoch=1)  # at 3
        assert [log.last_stable_offset(offset) for offset in (1, 2, 3, 4)] == [0, 0, 1, 4]

    def test_it_is_never_below_the_log_start(self, log, producer):
        for sequence in range(3):
            producer.append(sequence)
        log.delete_records(2)
        assert log.last_stable_offset(3) == 2

    def test_truncation_reverts_open_and_decided_transactions(self, log, producer):
        producer.append(0)
        producer.end(epoch=1)
        producer.append(0, epoch=1)
        log.truncate_to(2)
        assert log.producers.transactions.open_transactions() == {}
        log.truncate_to(1)
        assert log.producers.transactions.open_transactions() == {PRODUCER: 0}
        assert log.last_stable_offset(1) == 0
        log.truncate_to(0)
        assert log.producers.transactions.open_transactions() == {}
        assert log.producers.get(PRODUCER) is None
