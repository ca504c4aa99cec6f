"""Share partitions with a back-off of failed records, and with a rate of deliveries."""

from __future__ import annotations

import random

import pytest

from ottla.share.acknowledgements import AcknowledgeType
from ottla.share.acquisition import AcquiredRange
from ottla.share.delivery_rate import DeliveryRate
from ottla.share.retry_backoff import RetryBackoff
from ottla.share.settings import ShareSettings

from .builders import KEY, MANY, Member, log_of, strict

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


# --- back-off ---------------------------------------------------------------------------------------------------------


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
    member.partition.use(ShareSettings(retry=RetryBackoff(60_000, 2.0, 60_000)), None, 10)
    assert member.partition.next_expiry_ms == due_ms
    member.now_ms = 20
    member.partition.use(ShareSettings(), None, 20)
    assert member.acquire(log_of((0, 9))) == [AcquiredRange(0, 9, 2)]


# --- rate -------------------------------------------------------------------------------------------------------------


def limited(rate: DeliveryRate, now_ms: int = 0) -> Member:
    member = Member(settings=ShareSettings(max_record_locks=1_000_000, lock_duration_ms=1 << 40))
    member.now_ms = now_ms
    member.partition.use(member.settings, rate, now_ms)
    return member


@pytest.mark.parametrize("rate", [DeliveryRate(1, 3), DeliveryRate(50, 1), DeliveryRate(50, 4), DeliveryRate(5000, 2)])
def test_deliveries_are_at_the_rate_and_never_above(rate: DeliveryRate) -> None:
    """Batches are larger than the rate permits, and the limits of both fetch modes are above it."""
    rng = random.Random(7)
    member = limited(rate)
    batches = log_of(*((first, first + 499) for first in range(0, 500_000, 500)))
    per_ms = rate.records_per_second / rate.partition_count / 1000
    taken: list[tuple[int, int]] = []
    while member.now_ms < 60_000:
        member.now_ms += rng.randrange(1, 200)
        member.partition.expire(member.now_ms)
        offset = member.partition.next_fetch_offset()
        if offset is not None:
            ranges = member.acquire(batches[offset // 500 :], rng.choice((MANY, strict(100_000))))
            taken.append((member.now_ms, sum(each.last_offset - each.first_offset + 1 for each in ranges)))
    burst = max(1, per_ms * 1000)
    for begin in range(0, len(taken), 7):
        count = 0
        for at_ms, records in taken[begin:]:
            count += records
            assert count <= burst + per_ms * (at_ms - taken[begin][0])
    assert sum(records for _, records in taken) >= 0.9 * 60_000 * per_ms - 1


def test_closed_bucket_stops_fetches_until_it_opens() -> None:
    member = limited(DeliveryRate(40, 2), now_ms=5000)
    assert member.partition.next_fetch_offset() is None
    assert member.partition.next_expiry_ms == 5100
    assert member.partition.expire(5100)
    member.now_ms = 5100
    assert member.acquire(log_of((0, 99))) == [AcquiredRange(0, 1, 1)]
    assert member.partition.next_fetch_offset() is None
    member.now_ms = 60_000
    assert member.acquire(log_of((0, 99))) == [AcquiredRange(2, 21, 1)], "a second's tokens at most"


def test_same_rate_keeps_the_tokens_and_no_rate_ends_the_limit() -> None:
    member = limited(DeliveryRate(10, 1))
    for now_ms in range(0, 150, 10):
        member.partition.use(member.settings, DeliveryRate(10, 1), now_ms)
    member.now_ms = 150
    assert member.acquire(log_of((0, 99))) == [AcquiredRange(0, 0, 1)]
    member.partition.use(member.settings, None, 150)
    assert member.acquire(log_of((0, 99))) == [AcquiredRange(1, 99, 1)]
