"""The benchmark of the console: all pages are measured, and rows are judged by the goals."""

from __future__ import annotations

import pytest

import console


def test_every_page_of_the_route_table_is_measured() -> None:
    console.check_pages()


@pytest.mark.parametrize(("seconds", "cpu_s", "slow"), [(0.9, 0.4, False), (1.1, 0.1, True), (0.6, 0.6, True)])
def test_page_is_slow_by_time_or_by_cpu(seconds: float, cpu_s: float, slow: bool) -> None:
    assert console.is_slow(seconds, cpu_s) == slow


def test_ratio_is_of_two_runs_of_one_round() -> None:
    rows = [
        {"producer": name, "round": number, "p99_ms": value}
        for number, pair in enumerate([(1.0, 1.1), (4.0, 4.0), (2.0, 3.0)])
        for name, value in zip(("alone", "beside consoles"), pair, strict=True)
    ]
    assert console.p99_ratio(rows) == pytest.approx(1.1)
