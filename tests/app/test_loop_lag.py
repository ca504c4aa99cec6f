"""Lag of the event loop: the measured delay, and the warning that names its cause."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.app.loop_lag import INTERVAL_S, WARNING_S, LoopLag
from ottla.metrics.registry import Histogram, MetricsRegistry
from ottla.server.requests.statistics import LONG_REQUEST_MS, LongestRequest


class Loop:
    """A loop with one timer, and its clocks."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.used_s = 5.0
        self.timer: Callable[[], Any] | None = None

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Any:
        raise NotImplementedError

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Any:
        assert delay == INTERVAL_S
        self.timer = callback

    def run_late(self, lag_s: float, cpu_s: float = 0.0) -> None:
        """Run the timer, `lag_s` after its time."""
        self.now_s += INTERVAL_S + lag_s
        self.used_s += cpu_s
        timer = self.timer
        assert timer is not None
        timer()


def made() -> tuple[Loop, MetricsRegistry, LongestRequest]:
    loop, registry, longest = Loop(), MetricsRegistry(), LongestRequest()
    lag = LoopLag(loop, lambda: loop.now_s, lambda: loop.used_s, registry, longest)
    lag.begin()
    return loop, registry, longest


def test_lag_is_counted_in_seconds() -> None:
    loop, registry, _ = made()
    for lag_s in (0.0, 0.004, 0.3):
        loop.run_late(lag_s)
    (family,) = registry.families()
    (histogram,) = family.series.values()
    assert isinstance(histogram, Histogram)
    assert family.name == "ottla_loop_lag_seconds"
    assert (histogram.total, histogram.sum) == (3, pytest.approx(0.304))


def test_timer_before_its_time_counts_as_no_lag() -> None:
    loop, registry, _ = made()
    loop.run_late(-0.0005)
    (family,) = registry.families()
    (histogram,) = family.series.values()
    assert isinstance(histogram, Histogram)
    assert (histogram.total, histogram.sum) == (1, 0)


def test_long_lag_warns_with_the_longest_request(caplog: pytest.LogCaptureFixture) -> None:
    loop, _, longest = made()
    longest.note("Fetch", 120.0)
    longest.note("Produce", 290.4)
    longest.note("Metadata", 40.0)
    with caplog.at_level(logging.WARNING):
        loop.run_late(0.3, cpu_s=0.295)
        loop.run_late(0.2)
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "event loop lag of 300 ms; longest request Produce, 290 ms; processor time of the loop 295 ms"
    assert second == "event loop lag of 200 ms; no long request; processor time of the loop 0 ms"


def test_request_of_an_earlier_interval_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    loop, _, longest = made()
    longest.note("Produce", 90.0)
    loop.run_late(WARNING_S / 2)
    loop.run_late(WARNING_S * 2)
    assert [record.getMessage().split("; ")[1] for record in caplog.records] == ["no long request"]


def test_long_request_bound_is_below_the_warning() -> None:
    assert LONG_REQUEST_MS < WARNING_S * 1000
