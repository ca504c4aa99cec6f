"""Windowed rates: Apache Kafka's formula, and the throughput of clients that ignore throttle times."""

from __future__ import annotations

import copy
import heapq
import random
from collections.abc import Callable
from math import floor

import pytest

from ottla.quota.token_bucket import TokenBucket
from ottla.quota.windows import WindowedMean, WindowedRate, Windows

WINDOWS = Windows()


def test_amount_of_all_windows_may_be_used_at_once(clock):
    rate = WindowedRate(WINDOWS)
    rate.record(10_000, clock.now_s)
    assert rate.throttle_ms(1000, clock.now_s) == 0
    rate.record(500, clock.now_s)
    assert rate.rate(clock.now_s) == 1050
    assert rate.throttle_ms(1000, clock.now_s) == 500, "50 above 1000 of a window of 10 s"


def test_fraction_of_the_current_window_counts(clock):
    rate = WindowedRate(WINDOWS)
    rate.record(12_000, clock.now_s)
    assert rate.window_s(clock.advance(0.5)) == pytest.approx(10.5)
    assert rate.throttle_ms(1000, clock.now_s) == 1500


def test_samples_older_than_all_windows_expire(clock):
    rate = WindowedRate(WINDOWS)
    rate.record(50_000, clock.now_s)
    assert rate.throttle_ms(1000, clock.advance(10.9)) > 0
    assert not rate.is_idle(clock.now_s)
    assert rate.throttle_ms(1000, clock.advance(0.1)) == 0
    assert rate.is_idle(clock.now_s)
    assert rate.rate(clock.now_s) == 0


def test_reverted_values_do_not_count(clock):
    rate = WindowedRate(WINDOWS)
    rate.record(30_000, clock.now_s)
    rate.record(-30_000, clock.advance(1.5))
    assert rate.throttle_ms(1000, clock.now_s) == 0
    assert rate.total == 0


def test_one_window_alone_measures_over_itself(clock):
    rate = WindowedRate(Windows(1, 2.0))
    rate.record(3000, clock.now_s)
    assert rate.throttle_ms(1000, clock.now_s) == 1000


@pytest.mark.parametrize("seed", range(8))
def test_rate_equals_a_full_list_of_events(seed):
    rng = random.Random(seed)
    windows = Windows(rng.choice([1, 2, 5, 11]), rng.choice([0.5, 1.0, 2.0]))
    rate, bound, now_s = WindowedRate(windows), 1000.0, 5.0
    samples: list[list[float]] = []  # begin, last event, sum
    for _ in range(1500):
        now_s += rng.choice([0.0, 0.001, 0.1, 0.7, 3.0, 30.0]) * rng.random()
        value = rng.randrange(5000)
        if not samples or now_s - samples[-1][0] >= windows.size_s:
            samples.append([now_s, now_s, 0])
        samples[-1][1] = now_s
        samples[-1][2] += value
        rate.record(value, now_s)
        counting = [sample for sample in samples if now_s - sample[1] < windows.number * windows.size_s]
        elapsed_s = now_s - counting[0][0]
        elapsed_s += max(0, windows.number - 1 - int(elapsed_s / windows.size_s)) * windows.size_s
        elapsed_s = max(elapsed_s, windows.size_s)
        measured = sum(sample[2] for sample in counting) / elapsed_s
        due_ms = floor((measured - bound) / bound * elapsed_s * 1000 + 0.5) if measured > bound else 0
        assert rate.rate(now_s) == pytest.approx(measured)
        assert abs(rate.throttle_ms(bound, now_s) - due_ms) <= 1
        assert len(rate._samples) <= windows.number + 1


def test_a_wait_is_over_when_the_rate_is_within_its_bound(clock):
    rate = WindowedRate(WINDOWS)
    rate.record(10_500, clock.now_s)
    assert rate.wait_ms(1000, clock.now_s) == rate.throttle_ms(1000, clock.now_s) == 500
    rate.record(1500, clock.now_s)
    assert rate.throttle_ms(1000, clock.now_s) == 2000, "computed as if measured over 12 s then, but it is over 10"
    assert rate.wait_ms(1000, clock.now_s) == 11_000
    rate.record(20_000, clock.now_s)
    assert rate.wait_ms(1000, clock.now_s) == rate.throttle_ms(1000, clock.now_s) == 22_000, "a large excess"


@pytest.mark.parametrize("seed", range(4))
def test_wait_is_neither_too_short_nor_too_long(seed):
    rng = random.Random(seed)
    windows = Windows(rng.choice([1, 2, 5, 11]), rng.choice([0.5, 1.0, 2.0]))
    rate, bound, now_s, waits = WindowedRate(windows), 1000.0, 5.0, 0
    for _ in range(150):
        now_s += rng.choice([0.0, 0.01, 0.3, 2.0]) * rng.random()
        rate.record(rng.randrange(2500), now_s)
        least_ms, wait_ms = rate.throttle_ms(bound, now_s), rate.wait_ms(bound, now_s)
        assert wait_ms >= least_ms
        later = copy.deepcopy(rate)
        early_ms = range(least_ms, wait_ms - 1)
        for at_ms in sorted(rng.choices(early_ms, k=10) if early_ms else ()):
            assert later.throttle_ms(bound, now_s + at_ms / 1000) > 0, "a shorter wait would do"
        assert later.throttle_ms(bound, now_s + wait_ms / 1000 + 1e-6) <= 1
        waits += wait_ms > least_ms
        if rng.random() < 0.1:
            now_s += wait_ms / 1000
    assert waits, "Kafka's throttle time would be too short"


BOUND = 1_000_000
PERIOD_S = 30.0


Wait = Callable[[WindowedRate, float, int], float]


def taken(connections: int, request_bytes: int, wait_s: Wait, *, extended: bool) -> float:
    """Share of its quota that a group uses in 30 s, from rest, at full speed: 1 is all of it.

    Each connection sends its next request when its wait is over, and ignores the throttle time. With `extended`, the
    wait is recomputed at its end, as for mutes.
    """
    rate, sent = WindowedRate(WINDOWS), 0
    due = [(0.0, number, False) for number in range(connections)]
    while (now_s := due[0][0]) < PERIOD_S:
        _, number, muted = heapq.heappop(due)
        left_s = wait_s(rate, now_s, request_bytes) if muted and extended else 0.0
        if left_s <= 0:
            rate.record(request_bytes, now_s)
            sent += request_bytes
            left_s = wait_s(rate, now_s, request_bytes) if rate.total > BOUND * WINDOWS.least_s else 0.0
        heapq.heappush(due, (now_s + max(left_s, connections * request_bytes / 100e6), number, left_s > 0))
    return sent / BOUND / PERIOD_S


def as_kafka(rate: WindowedRate, now_s: float, _next_bytes: int) -> float:
    return rate.throttle_ms(BOUND, now_s) / 1000


def until_there_is_room(rate: WindowedRate, now_s: float, next_bytes: int) -> float:
    return rate.wait_ms(BOUND, now_s, next_bytes) / 1000


def test_waits_of_apache_kafka_let_a_group_take_a_third_more():
    """While windows are missing, a client is as far above its bound after the wait, and sends one more."""
    assert taken(1, 100_000, as_kafka, extended=False) == pytest.approx(1.13, abs=0.01)
    assert taken(10, 100_000, as_kafka, extended=False) == pytest.approx(1.32, abs=0.01)


@pytest.mark.promise("S7")
@pytest.mark.parametrize("request_bytes", [16_384, 100_000, 1_000_000])
def test_one_connection_takes_its_quota_and_a_tenth(request_bytes):
    """The tenth is due to the windows: the amount of eleven is measured over ten, repeatedly."""
    assert taken(1, request_bytes, until_there_is_room, extended=True) <= 1.1


@pytest.mark.parametrize("request_bytes", [16_384, 100_000])
def test_ten_connections_take_no_more_than_one(request_bytes):
    assert taken(10, request_bytes, until_there_is_room, extended=True) <= 1.1


@pytest.mark.promise("S7")
@pytest.mark.parametrize("connections", [1, 4])
def test_usual_requests_get_apache_kafkas_throttle_time(connections):
    theirs = taken(connections, 16_384, as_kafka, extended=False)
    assert taken(connections, 16_384, until_there_is_room, extended=True) == pytest.approx(theirs, rel=0.05)


def test_wait_leaves_room_for_one_request_within_a_window(clock):
    rate = WindowedRate(WINDOWS)
    rate.record(10_400, clock.now_s)
    assert rate.throttle_ms(1000, clock.advance(0.5)) == 0
    assert rate.wait_ms(1000, clock.now_s, 100) == 0
    assert rate.wait_ms(1000, clock.now_s, 200) == pytest.approx(100, abs=1)
    assert rate.wait_ms(1000, clock.now_s, 900) == pytest.approx(10_500, abs=1), (
        "in the window under way there is none any more"
    )
    assert rate.wait_ms(1000, clock.now_s, 1000) == 0


def test_mean_covers_recent_values_only(clock):
    waits = WindowedMean(WINDOWS)
    assert waits.mean(clock.now_s) == 0
    waits.record(100, clock.now_s)
    waits.record(300, clock.advance(0.5))
    assert waits.mean(clock.now_s) == pytest.approx(200)
    assert waits.mean(clock.advance(12)) == 0


@pytest.mark.parametrize("bound", [5e-324, 1e-300, 1e-9])
def test_tiny_limit_waits_the_longest_representable_time(bound: float) -> None:
    rate, bucket = WindowedRate(Windows()), TokenBucket(Windows(), bound, 0.0)
    rate.record(1e6, 0.0)
    bucket.take(1e6, 0.0)
    assert rate.throttle_ms(bound, 0.0) == rate.wait_ms(bound, 0.0, 1.0) == bucket.throttle_ms(0.0) == 2**31 - 1
