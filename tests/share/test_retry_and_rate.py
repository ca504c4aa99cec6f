"""Share partitions with a back-off of failed records."""

from __future__ import annotations

import pytest

from ottla.share.acknowledgements import AcknowledgeType
from ottla.share.acquisition import AcquiredRange
from ottla.share.retry_backoff import RetryBackoff
from ottla.share.settings import ShareSettings

from .builders import KEY, Member, log_of, strict

RETRY = RetryBackoff(first_ms=1000, multiplier=2.0, max_ms=3000)
SETTINGS = ShareSettings(retry=RETRY)
LOCK_MS = SETTINGS.lock_duration_ms


def failed(member: Member, by: str) -> None:
    """The records 0 to 9 are delivered, and the delivery fails."""
    member.acquire(log_of((0, 9)))
    if by == "release":
        member.acknowledge(0, 9, AcknowledgeType.RELEASE)
    elif by == "lock":
        member.now_ms += LOCK_MS
        member.partition.expire(member.now_ms)
    else:
        member.partition.release_member("m", member.now_ms)
    member.store_all()


@pytest.mark.parametrize("by", ["release", "lock", "session"])
def test_failed_records_wait_until_their_backoff_ends(by: str) -> None:
    member = Member(settings=SETTINGS)
    failed(member, by)
    due_ms = member.partition.next_expiry_ms
    assert member.now_ms + 1000 <= due_ms <= member.now_ms + 1200
    assert member.acquire(log_of((0, 9), (10, 19)), strict(5)) == [AcquiredRange(10, 14, 1)]
    assert not member.partition.expire(due_ms - 1)
    assert member.partition.expire(due_ms)
    member.now_ms = due_ms
    assert member.acquire(log_of((0, 9))) == [AcquiredRange(0, 9, 2)]


def test_waiting_part_of_a_batch_is_left_out() -> None:
    member = Member(settings=SETTINGS)
    failed(member, "release")
    member.now_ms = 500
    member.acquire(log_of((10, 19)))
    member.acknowledge(10, 14, AcknowledgeType.RELEASE)
    member.store_all()
    member.now_ms = 1200
    assert member.acquire(log_of((0, 19))) == [AcquiredRange(0, 9, 2)]


def test_delay_grows_to_its_maximum_with_a_fixed_jitter() -> None:
    assert [RETRY.base_ms(count) for count in (0, 1, 2, 3, 32_767)] == [0, 1000, 2000, 3000, 3000]
    delays = [RETRY.delay_ms(KEY, offset, 1) for offset in range(1000)]
    assert delays == [RETRY.delay_ms(KEY, offset, 1) for offset in range(1000)]
    assert (min(delays), max(delays)) == (pytest.approx(1000, abs=5), pytest.approx(1200, abs=5))


def test_new_leader_starts_the_backoff_again() -> None:
    member = Member(settings=SETTINGS)
    failed(member, "release")
    member.acquire(log_of((10, 19)))
    member.now_ms = 900
    member.change_leader()
    assert 1900 <= member.partition.next_expiry_ms <= 2100
    assert member.acquire(log_of((0, 9), (10, 19))) == [AcquiredRange(10, 19, 1)]
    member.now_ms = 2100
    member.partition.expire(member.now_ms)
    assert member.partition.next_fetch_offset() == 0


def test_changed_backoff_only_shortens_waits() -> None:
    member = Member(settings=SETTINGS)
    failed(member, "release")
    due_ms = member.partition.next_expiry_ms
    member.partition.use(ShareSettings(retry=RetryBackoff(60_000, 2.0, 60_000)), 10)
    assert member.partition.next_expiry_ms == due_ms
    member.now_ms = 20
    member.partition.use(ShareSettings(), 20)
    assert member.acquire(log_of((0, 9))) == [AcquiredRange(0, 9, 2)]
