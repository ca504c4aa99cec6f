"""Evaluation of `bench/pipeline.py`; the runs themselves need Spark of two versions."""

from __future__ import annotations

from pathlib import Path

from harness.plots import draw_bars
from harness.processes import Usage

import pipeline


def runs() -> list[dict[str, object]]:
    """Two rounds on a machine that became twice as slow."""
    found = []
    for round_number, slower in enumerate((1, 2)):
        for way, cpu_s in (("load", 2.0), ("connector", 6.0)):
            work = Usage(cpu_s * slower, cpu_s * slower, 0.0)
            whole = Usage(work.seconds + 4, work.user_s + 4, 0.0)
            figures = {**pipeline.figures(12_000, work, whole), "peak_memory_mb": 100.0 * cpu_s}
            found.append({"way": way, "round": round_number, "figures": figures})
    return found


def test_ratios_are_those_of_one_round() -> None:
    reported = pipeline.summary(runs())
    assert reported["medians"]["load"]["rows_per_cpu_s"] == (6_000 + 3_000) / 2
    assert reported["medians"]["load"]["rows_per_cpu_s_with_start"] == (2_000 + 1_500) / 2
    assert reported["to_connector"]["load"]["rows_per_cpu_s"] == 3.0
    assert set(reported["to_connector"]) == {"load"}


def test_no_ratios_without_the_connector() -> None:
    reported = pipeline.summary([run for run in runs() if run["way"] == "load"])
    assert set(reported) == {"medians"}


def test_every_figure_of_the_plot_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "plots" / "pipeline.png"
    draw_bars("title", pipeline.PANELS, runs(), path)
    assert path.read_bytes().startswith(b"\x89PNG")
