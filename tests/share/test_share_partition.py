"""Share partitions: acquiring, acknowledging, locks, limits, and the known traps of Apache Kafka's share groups."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.share_state import RecordState, ShareState, StateBatch
from ottla.share.acknowledgements import AcknowledgeType, decisions_of
from ottla.share.acquisition import AcquiredRange, AcquireLimits
from ottla.share.settings import ShareSettings, reset_duration_ms
from ottla.share.share_partition import SharePartition

from .builders import KEY, Member, log_of, strict

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def refused(code: ErrorCode, *arguments, member: Member, **fields) -> None:
    with pytest.raises(KafkaError) as error:
        member.acknowledge(*arguments, **fields)
    assert error.value.code == code


# --- acquire ----------------------------------------------------------------------------------------------------------


def test_batch_mode_acquires_the_batch_across_the_limit_whole() -> None:
    limits = AcquireLimits(max_records=15, batch_size=500, record_limit=False)
    assert Member().acquire(log_of((0, 9), (10, 19), (20, 29)), limits) == [AcquiredRange(0, 19, 1)]


def test_batch_size_ends_ranges_at_batches_of_the_log() -> None:
    limits = AcquireLimits(max_records=500, batch_size=15, record_limit=False)
    acquired = Member().acquire(log_of((0, 9), (10, 19), (20, 29)), limits)
    assert acquired == [AcquiredRange(0, 19, 1), AcquiredRange(20, 29, 1)]


def test_record_limit_is_strict_and_needs_no_more_records() -> None:
    """Trap 11 (KAFKA-19929): fewer records than the limit are delivered, and never more than it."""
    member = Member()
    assert member.acquire(log_of((0, 9)), strict(4)) == [AcquiredRange(0, 3, 1)]
    assert member.acquire(log_of((0, 9)), strict(100)) == [AcquiredRange(4, 9, 1)]


def test_acquired_records_are_skipped_for_other_members() -> None:
    member = Member()
    batches = log_of((0, 9), (10, 19))
    member.acquire(batches, strict(5), "a")
    assert member.acquire(batches, strict(10), "b") == [AcquiredRange(5, 14, 1)]
    member.acknowledge(0, 4, RELEASE, "a")
    member.store_all()
    assert member.acquire(batches, strict(10), "c") == [AcquiredRange(0, 4, 2), AcquiredRange(15, 19, 1)]


def test_window_counts_the_span_from_the_start_offset() -> None:
    """Trap 10: one slow record stops the partition, and only records within the window are delivered again."""
    member = Member(settings=ShareSettings(max_record_locks=100))
    batches = log_of((0, 99), (100, 199))
    assert member.acquire(batches) == [AcquiredRange(0, 99, 1)]
    member.acknowledge(1, 99, ACCEPT)
    member.store_all()
    assert member.partition.next_fetch_offset() is None
    member.acknowledge(0, 0, RELEASE)
    member.store_all()
    assert member.acquire(batches) == [AcquiredRange(0, 0, 2)]
    member.acknowledge(0, 0, ACCEPT)
    member.store_all()
    assert (member.partition.start_offset, member.partition.next_fetch_offset()) == (100, 100)


def test_batch_larger_than_the_window_is_acquired_in_parts() -> None:
    member = Member(settings=ShareSettings(max_record_locks=100))
    assert member.acquire(log_of((0, 999))) == [AcquiredRange(0, 99, 1)]


def test_holes_and_control_batches_are_archived_on_the_way() -> None:
    """Trap 9: the start offset is not stuck at offsets without records."""
    member = Member()
    acquired = member.acquire(log_of((0, 4), (8, 9), (10, 10, True), (11, 12), (13, 14)), aborted=[3])
    assert acquired == [AcquiredRange(0, 4, 1), AcquiredRange(8, 9, 1), AcquiredRange(13, 14, 1)]
    for first, last in ((0, 4), (8, 9), (13, 14)):
        member.acknowledge(first, last, ACCEPT)
    member.store_all()
    assert member.partition.start_offset == member.partition.end_offset == 15
    assert not member.partition.in_flight()


def test_gap_acknowledgements_are_accepted_and_leave_one_run() -> None:
    """Trap 9: a client reports offsets without records within a batch, and state does not stay divided."""
    member = Member()
    member.acquire(log_of((0, 9)))
    for offset in range(1, 10):
        member.acknowledge(offset, offset, GAP if offset % 2 else ACCEPT)
    member.store_all()
    member.acknowledge(3, 3, GAP)
    member.acknowledge(0, 0, ACCEPT)
    member.store_all()
    assert (member.partition.start_offset, list(member.partition.in_flight())) == (10, [])
    assert member.store.start_offset == 10


def test_log_start_drops_records_whatever_their_state() -> None:
    member = Member()
    member.acquire(log_of((0, 9)), strict(5))
    member.partition.move_log_start(7)
    assert (member.partition.start_offset, member.partition.end_offset) == (7, 7)
    assert member.acknowledge(0, 4, ACCEPT) == 0
    member.partition.move_log_start(3)
    assert member.partition.start_offset == 7


# --- acknowledge ------------------------------------------------------------------------------------------------------


def test_acknowledgement_is_visible_once_it_is_stored() -> None:
    member = Member()
    batches = log_of((0, 9))
    member.acquire(batches)
    assert member.acknowledge(0, 9, RELEASE) == 1
    assert member.partition.next_fetch_offset() == 10
    member.store_all()
    assert member.acquire(batches) == [AcquiredRange(0, 9, 2)]


def test_failed_write_reverts_acknowledgements_to_their_owner() -> None:
    member = Member()
    member.acquire(log_of((0, 9)))
    member.acknowledge(0, 9, ACCEPT)
    refused(ErrorCode.INVALID_RECORD_STATE, 0, 9, ACCEPT, member=member)
    member.store_all(stored=False)
    assert member.partition.start_offset == 0
    member.acknowledge(0, 9, ACCEPT)
    member.store_all()
    assert member.partition.start_offset == 10


def test_records_of_others_are_not_acknowledged() -> None:
    member = Member()
    member.acquire(log_of((0, 9)), strict(5))
    refused(ErrorCode.INVALID_RECORD_STATE, 0, 4, ACCEPT, "other", member=member)
    refused(ErrorCode.INVALID_RECORD_STATE, 5, 9, ACCEPT, member=member)
    refused(ErrorCode.INVALID_REQUEST, 3, 7, ACCEPT, member=member)
    assert set(member.states().values()) == {(RecordState.ACQUIRED, 1)}


@pytest.mark.parametrize("types", [[], [1, 1], [5], [-1], [4]])
def test_acknowledge_types_are_checked(types: list[int]) -> None:
    class Batch:
        first_offset, last_offset, acknowledge_types = 0, 2, types

    with pytest.raises(KafkaError) as error:
        decisions_of([Batch()], renews=False)
    assert error.value.code == ErrorCode.INVALID_REQUEST


def test_types_by_offset_become_decisions() -> None:
    class Batch:
        first_offset, last_offset, acknowledge_types = 7, 10, [1, 1, 2, 4]

    assert decisions_of([Batch()], renews=True) == [(7, 8, ACCEPT), (9, 9, RELEASE), (10, 10, RENEW)]


# --- locks ------------------------------------------------------------------------------------------------------------


def test_renewal_restarts_the_lock_each_time() -> None:
    """Trap 12: a lock may be renewed twice, and not any more once it ended."""
    member = Member()
    member.acquire(log_of((0, 0)))
    for now_ms in (20_000, 40_000):
        member.now_ms = now_ms
        assert member.acknowledge(0, 0, RENEW) == 0
    member.now_ms = 69_999
    assert not member.partition.expire(member.now_ms)
    member.now_ms = 70_000
    refused(ErrorCode.INVALID_RECORD_STATE, 0, 0, RENEW, member=member)
    assert member.states() == {0: (RecordState.AVAILABLE, 1)}


def test_release_of_a_member_keeps_delivery_counts() -> None:
    """Trap 6 (KAFKA-19972): the end of a session does not lower delivery counts."""
    member = Member()
    member.acquire(log_of((0, 4)), member="a")
    member.acquire(log_of((0, 4), (5, 9)), member="b")
    assert member.partition.release_member("a", 0)
    member.store_all()
    states = member.states()
    assert states[0] == (RecordState.AVAILABLE, 1)
    assert states[5] == (RecordState.ACQUIRED, 1)


def test_reverted_acknowledgement_after_release_is_available() -> None:
    member = Member()
    member.acquire(log_of((0, 4)))
    member.acknowledge(0, 4, ACCEPT)
    write = member.partition.begin_write()
    assert write is not None
    member.partition.release_member("m", 0)
    member.partition.end_write(member.now_ms, stored=False)
    assert member.partition.expire(0)
    assert member.states()[0] == (RecordState.AVAILABLE, 1)


def test_unstored_lock_end_is_in_the_next_write() -> None:
    """Trap 7 (KAFKA-19476): the end of a lock is not reverted by a failed write, and stored by a later one."""
    member = Member()
    member.acquire(log_of((0, 4)))
    member.partition.expire(30_000)
    member.store_all(stored=False)
    assert member.states()[0] == (RecordState.AVAILABLE, 1)
    member.store_all()
    member.change_leader()
    assert member.states()[0] == (RecordState.AVAILABLE, 1)


def test_count_is_stored_although_the_record_was_acquired_again() -> None:
    """Else each lock that ends during a write is lost with the leader, and the limit is exceeded."""
    member = Member()
    batches = log_of((0, 4), (5, 9))
    member.acquire(batches)
    member.acknowledge(5, 9, ACCEPT)
    write = member.partition.begin_write()
    assert write is not None
    member.partition.expire(30_000)
    assert member.acquire(batches) == [AcquiredRange(0, 4, 2)]
    member.store.write(write)
    member.partition.end_write(member.now_ms, stored=True)
    member.store_all()
    assert member.states()[0] == (RecordState.ACQUIRED, 2)
    member.change_leader()
    assert member.states()[0] == (RecordState.AVAILABLE, 1)


def test_acknowledgement_is_not_part_of_an_earlier_write() -> None:
    """The write contains the count of the delivery before; the acknowledgement needs the next one."""
    member = Member()
    batches = log_of((0, 4))
    member.acquire(batches)
    member.partition.expire(30_000)
    member.acquire(batches)
    write = member.partition.begin_write()
    assert write is not None
    assert member.acknowledge(0, 4, ACCEPT) == 2
    member.store.write(write)
    member.partition.end_write(member.now_ms, stored=True)
    assert member.states()[0] == (RecordState.ACQUIRED, 2)
    member.store_all()
    assert member.partition.start_offset == 5
    assert member.partition.begin_write() is None


def test_new_leader_starts_without_locks() -> None:
    """Trap 8 (KAFKA-20736): acquired records are available at once, and older acknowledgements are refused."""
    member = Member()
    batches = log_of((0, 4), (5, 9))
    member.acquire(batches)
    member.acknowledge(5, 9, ACCEPT)
    member.store_all()
    member.change_leader()
    refused(ErrorCode.INVALID_RECORD_STATE, 0, 4, ACCEPT, member=member)
    assert member.acquire(batches, member="other") == [AcquiredRange(0, 4, 1)]


def test_chosen_start_offset_is_stored_before_acknowledgements() -> None:
    member = Member(start_offset=42)
    write = member.store_all()
    assert write is not None
    assert (write.start_offset, write.batches) == (42, ())
    assert member.partition.begin_write() is None


# --- delivery count ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["release", "expire"])
def test_records_are_archived_at_the_delivery_count_limit(ends: str) -> None:
    member = Member(settings=ShareSettings(delivery_count_limit=2))
    for _ in range(2):
        assert member.acquire(log_of((0, 0)))
        if ends == "release":
            member.acknowledge(0, 0, RELEASE)
        else:
            member.now_ms += 30_000
            member.partition.expire(member.now_ms)
        member.store_all()
    assert member.partition.start_offset == member.store.start_offset == 1


def test_records_that_failed_before_are_delivered_apart() -> None:
    """Poison isolation: halves after the threshold, single records at the last attempt, and nothing else with them."""
    batches = log_of((0, 7), (8, 9))
    state = ShareState(0, 0, (StateBatch(0, 7, RecordState.AVAILABLE, 3),))
    member = Member()
    member.partition = SharePartition(KEY, state, 0, 0, ShareSettings(), 0)
    assert member.acquire(batches) == [AcquiredRange(0, 3, 4)]
    assert member.acquire(batches) == [AcquiredRange(4, 5, 4)]
    member.acknowledge(0, 3, RELEASE)
    member.store_all()
    assert member.acquire(batches) == [AcquiredRange(0, 0, 5)]


def test_complete_count_has_settled_records_behind_the_start() -> None:
    member = Member()
    member.acquire(log_of((0, 9)))
    member.acknowledge(2, 5, ACCEPT)
    member.acknowledge(8, 8, REJECT)
    write = member.store_all()
    assert write is not None
    assert (write.start_offset, write.delivery_complete_count) == (0, 5)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:PT1H", 3_600_000),
        ("latest", None),
        ("by_duration:x", None),
    ],
)
def test_reset_by_duration_is_parsed(text: str, duration_ms: int | None) -> None:
    assert reset_duration_ms(text) == duration_ms
