"""The leader's view of a partition: progress of followers, committed offset, in-sync replicas."""

from __future__ import annotations

from ottla.replica.leadership import IsrChange, Leadership
from ottla.replica.truncation import first_fetch_offset, truncation_offset

LAG_S = 30.0
EPOCHS = {2: 20, 3: 30}
"""Broker epochs of the two followers."""


def lead(isr: tuple[int, ...] = (1, 2, 3), *, start: int = 10, barred: frozenset[int] = frozenset()) -> Leadership:
    """Broker 1 leads from offset `start` on, at time 100."""
    leadership = Leadership(
        1,
        5,
        start,
        max_lag_s=LAG_S,
        eligible=lambda replica, epoch: replica not in barred and epoch == EPOCHS[replica],
    )
    assert leadership.committed(7, (1, 2, 3), isr, 100.0)
    return leadership


def fetch(leadership: Leadership, replica: int, offset: int, leader_end: int, now_s: float, log_start: int = 0) -> bool:
    return leadership.fetched(replica, offset, log_start, leader_end, now_s, EPOCHS[replica])


class TestHighWatermark:
    def test_is_the_smallest_end_of_the_in_sync_replicas(self) -> None:
        leadership = lead()
        assert leadership.next_high_watermark(20, 20, 1, 100.0) == -1, "nothing was heard of the followers"
        assert fetch(leadership, 2, 20, 20, 100.0)
        assert leadership.next_high_watermark(20, 20, 1, 100.0) == -1
        assert fetch(leadership, 3, 15, 20, 100.0)
        assert leadership.next_high_watermark(20, 20, 1, 100.0) == 15
        assert not fetch(leadership, 3, 15, 20, 100.1)
        assert fetch(leadership, 3, 20, 20, 100.2)
        assert leadership.next_high_watermark(20, 20, 1, 100.2) == 20
        assert leadership.next_high_watermark(18, 20, 1, 100.2) == 18, "the leader itself waits for its disk"

    def test_does_not_move_below_the_smallest_isr(self) -> None:
        leadership = lead((1,))
        fetch(leadership, 2, 0, 20, 100.0)
        assert leadership.next_high_watermark(20, 20, 1, 100.0) == 20
        assert leadership.next_high_watermark(20, 20, 2, 100.0) == -1
        alone = Leadership(1, 5, 0, max_lag_s=LAG_S, eligible=lambda replica, epoch: True)
        alone.committed(0, (1,), (1,), 100.0)
        assert alone.next_high_watermark(20, 20, 2, 100.0) == 20, "one replica can't be asked for two"

    def test_waits_for_joining_replica(self) -> None:
        leadership = lead((1,))
        fetch(leadership, 2, 20, 20, 100.0)
        assert leadership.next_high_watermark(25, 25, 1, 101.0) == 20
        assert leadership.next_high_watermark(25, 25, 1, 100.0 + LAG_S + 1) == 25, "it was gone for too long"

    def test_does_not_wait_for_ineligible_replica(self) -> None:
        leadership = lead((1,), barred=frozenset({2}))
        fetch(leadership, 2, 20, 20, 100.0)
        assert leadership.next_high_watermark(25, 25, 1, 101.0) == 25

    def test_does_not_wait_for_replica_removed_from_isr(self) -> None:
        leadership = lead()
        fetch(leadership, 2, 20, 20, 100.0)
        fetch(leadership, 3, 20, 20, 100.0)
        assert leadership.committed(8, (1, 2, 3), (1, 2), 100.0)
        fetch(leadership, 2, 25, 25, 100.1)
        assert leadership.next_high_watermark(25, 25, 1, 100.1) == 25

    def test_waits_for_both_the_old_and_the_proposed_isr(self) -> None:
        leadership = lead((1, 2))
        fetch(leadership, 2, 20, 20, 100.0)
        fetch(leadership, 3, 20, 20, 100.0)
        assert leadership.expansion(3, 20) is not None
        assert leadership.maximal_isr == (1, 2, 3)
        assert leadership.next_high_watermark(22, 22, 1, 500.0) == 20
        fetch(leadership, 2, 22, 22, 500.0)
        assert leadership.next_high_watermark(22, 22, 1, 500.0) == 20, "3 may be in the ISR by now"

        shrinking = lead((1, 2, 3))
        fetch(shrinking, 2, 20, 20, 100.0)
        fetch(shrinking, 3, 15, 20, 100.0)
        assert shrinking.shrinking(20, 100.0 + LAG_S + 1) == IsrChange(5, 7, ((1, -1), (2, 20)))
        fetch(shrinking, 2, 20, 20, 131.0)
        assert shrinking.next_high_watermark(20, 20, 1, 131.0) == 15, "3 may be in the ISR still"
        shrinking.committed(8, (1, 2, 3), (1, 2), 131.0)
        assert shrinking.next_high_watermark(20, 20, 1, 131.0) == 20


class TestStalling:
    def test_repeated_fetch_at_same_offset_is_stalling(self) -> None:
        leadership = lead()
        follower = leadership.followers[2]
        fetch(leadership, 2, 10, 20, 100.0)
        stalls = []
        for _ in range(16):
            fetch(leadership, 2, 10, 20, 100.0)
            stalls.append(follower.stalls)
        assert [number for number, stalled in enumerate(stalls, 1) if stalled] == [4, 8, 16]
        fetch(leadership, 2, 15, 20, 100.0)
        assert not follower.stalls

    def test_caught_up_follower_is_not_stalling(self) -> None:
        leadership = lead()
        for _ in range(5):
            fetch(leadership, 2, 20, 20, 100.0)
        assert not leadership.followers[2].stalls


class TestExpansion:
    def test_follower_at_high_watermark_and_epoch_start_joins(self) -> None:
        leadership = lead((1, 2), start=10)
        fetch(leadership, 3, 8, 20, 100.0)
        assert leadership.expansion(3, 8) is None, "it may still hold records of an older epoch that are not ours"
        fetch(leadership, 3, 12, 20, 100.0)
        assert leadership.expansion(3, 13) is None
        assert leadership.expansion(3, 12) == IsrChange(5, 7, ((1, -1), (2, -1), (3, 30)))
        assert leadership.expansion(3, 12) is None, "one proposal at a time"

    def test_only_in_its_present_incarnation_and_unfenced(self) -> None:
        leadership = lead((1, 2), barred=frozenset({3}))
        fetch(leadership, 3, 20, 20, 100.0)
        assert leadership.expansion(3, 20) is None
        leadership = lead((1, 2))
        leadership.fetched(3, 20, 0, 20, 100.0, 29)
        assert leadership.expansion(3, 20) is None

    def test_members_stay_members(self) -> None:
        leadership = lead()
        fetch(leadership, 3, 20, 20, 100.0)
        assert leadership.expansion(3, 20) is None


class TestShrinking:
    def test_follower_lagging_too_long_leaves(self) -> None:
        leadership = lead()
        fetch(leadership, 2, 20, 20, 100.0)
        fetch(leadership, 3, 20, 20, 100.0)
        assert leadership.shrinking(20, 1000.0) is None, "a follower with everything stays, however long it was silent"
        assert leadership.shrinking(21, 100.0 + LAG_S) is None
        fetch(leadership, 2, 21, 21, 120.0)
        assert leadership.shrinking(22, 100.0 + LAG_S + 1) == IsrChange(5, 7, ((1, -1), (2, 20)))

    def test_idle_follower_is_tracked_by_its_session(self) -> None:
        class Place:
            heard_s = 100.0

        leadership, place = lead((1, 2)), Place()
        follower = leadership.followers[2]
        fetch(leadership, 2, 20, 20, 100.0)
        follower.resting = place
        place.heard_s = 200.0
        assert follower.last_caught_up_s == 200.0
        assert leadership.shrinking(21, 200.0 + LAG_S) is None
        fetch(leadership, 2, 20, 22, 205.0)
        place.heard_s = 300.0
        assert follower.last_caught_up_s == 200.0, "it fetches at the log end of its idle time"
        fetch(leadership, 2, 21, 23, 210.0)
        assert leadership.shrinking(23, 200.0 + LAG_S + 1) is not None

    def test_follower_of_growing_log_is_caught_up(self) -> None:
        leadership = lead()
        now, end = 100.0, 20
        for _ in range(20):
            for replica in (2, 3):
                fetch(leadership, replica, end - 10, end, now)
            now += 5.0
            end += 10
        assert leadership.shrinking(end, now) is None

    def test_follower_slower_than_log_growth_leaves(self) -> None:
        leadership = lead()
        now, end = 100.0, 20
        for _ in range(20):
            fetch(leadership, 2, end, end, now)
            fetch(leadership, 3, end - 15, end, now)
            now += 5.0
            end += 10
        change = leadership.shrinking(end, now)
        assert change is not None
        assert change.isr == ((1, -1), (2, 20))

    def test_unseen_follower_gets_full_lag_timeout(self) -> None:
        leadership = lead()
        assert leadership.shrinking(20, 100.0 + LAG_S) is None
        change = leadership.shrinking(20, 100.0 + LAG_S + 1)
        assert change is not None
        assert change.isr == ((1, -1),)


class TestOutcomes:
    def test_a_commit_ends_the_proposal(self) -> None:
        leadership = lead((1, 2))
        fetch(leadership, 3, 20, 20, 100.0)
        assert leadership.expansion(3, 20) is not None
        assert not leadership.committed(6, (1, 2, 3), (1,), 100.0), "that is older"
        assert leadership.maximal_isr == (1, 2, 3)
        assert leadership.committed(8, (1, 2, 3), (1, 2, 3), 100.0)
        assert leadership.proposed is None
        assert leadership.isr == (1, 2, 3)

    def test_rejected_proposal_is_reverted(self) -> None:
        leadership = lead((1, 2))
        fetch(leadership, 3, 20, 20, 100.0)
        change = leadership.expansion(3, 20)
        assert change is not None
        leadership.not_attempted(change)
        assert leadership.maximal_isr == (1, 2)
        assert leadership.expansion(3, 20) == change

    def test_late_response_changes_nothing(self) -> None:
        leadership = lead((1, 2))
        fetch(leadership, 3, 20, 20, 100.0)
        change = leadership.expansion(3, 20)
        assert change is not None
        leadership.committed(8, (1, 2, 3), (1, 2), 100.0)
        assert leadership.expansion(3, 20) is not None
        leadership.not_attempted(change)
        assert leadership.proposed is not None

    def test_replicas_are_added_and_removed(self) -> None:
        leadership = lead((1, 2))
        fetch(leadership, 2, 20, 20, 100.0)
        leadership.committed(8, (1, 2, 4), (1, 2), 100.0)
        assert sorted(leadership.followers) == [2, 4]
        assert leadership.followers[2].log_end_offset == 20
        assert leadership.followers[4].log_end_offset == -1

    def test_the_lowest_log_start(self) -> None:
        leadership = lead()
        fetch(leadership, 2, 20, 20, 100.0, log_start=7)
        assert leadership.lowest_log_start(9, lambda replica: True) == -1
        assert leadership.lowest_log_start(9, lambda replica: replica == 2) == 7
        fetch(leadership, 3, 20, 20, 100.0, log_start=8)
        assert leadership.lowest_log_start(8, lambda replica: True) == 7


class TestTruncation:
    def test_first_fetch_offset_of_follower(self) -> None:
        assert first_fetch_offset(20, 3, 5) == 20
        assert first_fetch_offset(20, -1, 5) == 5
        assert first_fetch_offset(0, -1, 5) == 0

    def test_both_have_the_epoch(self) -> None:
        assert truncation_offset((3, 15), (3, 20), 20, 20) == 15
        assert truncation_offset((3, 15), (3, 12), 20, 20) == 12

    def test_unknown_epoch_compares_next_lower_epoch(self) -> None:
        assert truncation_offset((3, 15), (2, 10), 20, 20) == 10

    def test_nothing_to_compare(self) -> None:
        assert truncation_offset((3, 15), (-1, -1), 20, 20) == 15
        assert truncation_offset((-1, 15), (3, 20), 20, 20) == 15
        assert truncation_offset((-1, -1), (3, 20), 20, 18) == 18
