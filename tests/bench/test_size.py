"""Evaluation of `bench/size.py`; the measured windows themselves need brokers and disk."""

from __future__ import annotations

from pathlib import Path

import size
from harness.plots import draw


def points() -> list[size.Point]:
    """Ottla is flat over the log's size, Apache Kafka twice as dear at its end; the largest came first."""
    found = []
    for x in (50.0, 1.0, 5.0):
        for number, noise in enumerate((0.5, 1.0, 1.5)):
            for peer, figure in (("ottla", 10.0), ("kafka", 20.0 if x == 50.0 else 10.0)):
                found.append(size.Point(peer, "gigabytes", x, number, dict.fromkeys(size.UNITS, figure * noise)))
    return found


def test_growth_is_the_ratio_of_last_to_first_median() -> None:
    reported = size.growth(size.summary(points()))
    assert reported["Log size: CPU"] == {"ottla": 1.0, "kafka": 2.0}
    assert len(reported) == len(size.UNITS)


def test_each_figure_is_a_plot(tmp_path: Path) -> None:
    drawn = draw(size.summary(points()), tmp_path)
    assert {path.name for path in drawn} >= {"log_size_cpu.png", "log_size_end_to_end_p99.png"}
    assert len(drawn) == len(size.UNITS)
