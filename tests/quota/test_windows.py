"""Rates over windows: as Apache Kafka's formula has them, and what they come to for a client that heeds nothing."""

from __future__ import annotations

import random
from math import floor

import pytest

from ottla.quota.windows import WindowedMean, WindowedRate, Windows

WINDOWS = Windows()


def test_what_ten_windows_allow_may_come_at_once(clock):
    rate = WindowedRate(WINDOWS)
    rate.record(10_000, clock.now_s)
    assert rate.throttle_ms(1000, clock.now_s) == 0
    rate.record(500, clock.now_s)
    assert rate.rate(clock.now_s) == 1050
    assert rate.throttle_ms(1000, clock.now_s) == 500, "50 above 1000 of a window of 10 s"


def test_a_fraction_of_the_window_under_way_counts(clock):
    rate = WindowedRate(WINDOWS)
    rate.record(12_000, clock.now_s)
    assert rate.window_s(clock.go_on(0.5)) == pytest.approx(10.5)
    assert rate.throttle_ms(1000, clock.now_s) == 1500


def test_what_happened_before_all_windows_counts_no_more(clock):
    rate = WindowedRate(WINDOWS)
    rate.record(50_000, clock.now_s)
    assert rate.throttle_ms(1000, clock.go_on(10.9)) > 0
    assert not rate.is_idle(clock.now_s)
    assert rate.throttle_ms(1000, clock.go_on(0.1)) == 0
    assert rate.is_idle(clock.now_s)
    assert rate.rate(clock.now_s) == 0


def test_what_is_taken_back_counts_no_more(clock):
    rate = WindowedRate(WINDOWS)
    rate.record(30_000, clock.now_s)
    rate.record(-30_000, clock.go_on(1.5))
    assert rate.throttle_ms(1000, clock.now_s) == 0
    assert rate.total == 0


def test_one_window_alone_measures_over_itself(clock):
    rate = WindowedRate(Windows(1, 2.0))
    rate.record(3000, clock.now_s)
    assert rate.throttle_ms(1000, clock.now_s) == 1000


@pytest.mark.parametrize("seed", range(8))
def test_a_rate_equals_a_list_of_everything_that_happened(seed):
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


@pytest.mark.parametrize("connections", [1, 4])
def test_who_is_muted_for_the_time_told_gets_its_rate(connections):
    """Over three times all windows, as fast as it may; each connection sends when its mute is over."""
    rate, bound, request_bytes = WindowedRate(WINDOWS), 1_000_000, 16_384
    free_s = [0.0] * connections
    sent, end_s = 0, 3 * WINDOWS.span_s
    while (now_s := min(free_s)) < end_s:
        rate.record(request_bytes, now_s)
        sent += request_bytes
        free_s[free_s.index(now_s)] = now_s + max(rate.throttle_ms(bound, now_s) / 1000, request_bytes / 100e6)
    assert sent == pytest.approx(bound * end_s, rel=0.1)


def test_a_mean_is_of_what_was_noted_lately(clock):
    waits = WindowedMean(WINDOWS)
    assert waits.mean(clock.now_s) == 0
    waits.record(100, clock.now_s)
    waits.record(300, clock.go_on(0.5))
    assert waits.mean(clock.now_s) == pytest.approx(200)
    assert waits.mean(clock.go_on(12)) == 0
