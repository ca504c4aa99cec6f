"""Medians, spread, ratios of one round, and the words about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness.cells import cpu_figures
from harness.compare import regressions, verdict
from harness.processes import Usage
from harness.report import PUBLISHED_PLOTS, number, publish, ratio, shown, spread, summarise, write_report


def run(peer: str, round_number: int, value: float, **more: Any) -> dict[str, Any]:
    """A run as the runner keeps it."""
    figure = {"name": "CPU", "value": value, "unit": "s/GB", "better": "less", "yardstick": True}
    other = {"name": "rate", "value": 5.0, "unit": "GB/s", "better": "more", "yardstick": False}
    return {
        "cell": "produce/1024",
        "peer": peer,
        "round": round_number,
        "profile": {"seconds": 10, "warm_up_s": 5},
        "settings": {},
        "shape": "",
        "axis": None,
        "conditions": {"when": f"2026-01-0{round_number + 1}", "commit": "abc", "page_cache_write_s_per_gb": 0.2},
        "figures": [figure, other],
        **more,
    }


def test_spread_is_median_least_and_most() -> None:
    assert spread([3.0, 1.0, 10.0]) == {"median": 3.0, "min": 1.0, "max": 10.0, "runs": 3}
    assert spread([1.0, 2.0])["median"] == 1.5


def test_a_ratio_is_taken_within_a_round() -> None:
    slow_machine_in_round_one = ratio({0: 1.0, 1: 10.0, 2: 1.2}, {0: 2.0, 1: 20.0, 2: 2.0})
    assert slow_machine_in_round_one == {"median": 0.5, "min": 0.5, "max": 0.6, "runs": 3}


def test_a_ratio_needs_both_in_a_round_and_no_zero() -> None:
    assert ratio({0: 1.0}, {1: 2.0}) is None
    assert ratio({0: 1.0, 1: 3.0}, {0: 0.0, 1: 2.0}) == {"median": 1.5, "min": 1.5, "max": 1.5, "runs": 1}


def test_a_summary_has_a_row_for_each_figure_with_every_peer() -> None:
    runs = [run(peer, each, value) for each in range(3) for peer, value in (("ottla", 1.0 + each), ("kafka", 4.0))]
    rows = summarise([*runs, run("nats", 0, 7.0)], "ottla", "kafka")
    assert [row["figure"] for row in rows] == ["CPU", "rate"]
    assert rows[0]["peers"]["ottla"]["median"] == 2.0
    assert rows[0]["peers"]["nats"] == {"median": 7.0, "min": 7.0, "max": 7.0, "runs": 1}
    assert rows[0]["ratio"] == {"median": 0.5, "min": 0.25, "max": 0.75, "runs": 3}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.01234, "0.0123"), (0.5, "0.5"), (1.234, "1.23"), (12.34, "12.3"), (12345.6, "12,346")],
)
def test_numbers_have_three_digits_that_matter(value: float, text: str) -> None:
    assert number(value) == text


def test_one_run_has_no_spread() -> None:
    assert shown(spread([2.0])) == "2.00"
    assert shown(spread([2.0, 4.0])) == "3.00 (2.00 to 4.00)"


def test_cpu_by_payload_and_records() -> None:
    figures = cpu_figures(Usage(10.0, 1.0, 3.0), payload_bytes=2 * 10**9, records=8 * 10**6)
    values = {figure.name: figure.value for figure in figures}
    assert values["broker CPU per GB"] == 2.0
    assert values["broker CPU per M records"] == 0.5
    assert values["GB per second"] == 0.2
    assert values["broker cores used"] == 0.4
    assert values["system share of CPU"] == 0.75


def test_report_contains_failures_and_conditions(tmp_path: Path) -> None:
    runs = [run("ottla", 0, 1.0), run("kafka", 0, 4.0)]
    failed = run("kafka", 1, 0.0, error="RuntimeError: it ended with 1")
    del failed["figures"]
    (tmp_path / "runs").mkdir()
    for index, each in enumerate([*runs, failed]):
        (tmp_path / "runs" / f"{index}.json").write_text(json.dumps(each))
    summary = write_report(tmp_path)
    table = (tmp_path / "table.md").read_text()
    assert "| produce/1024 | CPU, s/GB | 1.00 | 4.00 | 0.25 |" in table
    assert "produce/1024 kafka #1: RuntimeError: it ended with 1" in table
    assert "- commit: abc" in table
    assert json.loads((tmp_path / "summary.json").read_text()) == summary


def test_plots_are_drawn_for_cells_with_an_axis(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "runs").mkdir()
    for index, size in enumerate((1, 10, 100)):
        axis = {"plot": "fetch", "line": "cold", "x": size, "unit": "partitions"}
        row = run("ottla", 0, 0.5 * size, axis=axis, cell=f"fetch/{size}")
        (tmp_path / "runs" / f"{index}.json").write_text(json.dumps(row))
    write_report(tmp_path)
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["fetch_cpu.png"]


def test_a_report_is_published_without_its_runs(tmp_path: Path) -> None:
    folder, published = tmp_path / "measured", tmp_path / "published"
    (folder / "runs").mkdir(parents=True)
    (folder / "plots").mkdir()
    published.mkdir()
    (published / "groups.json").write_text("of an earlier day")
    for name in ("summary.json", "table.md", "runs/a.json", f"plots/{PUBLISHED_PLOTS[0]}", "plots/other.png"):
        (folder / name).write_text(name)
    assert publish(folder, published) == [
        published / "summary.json",
        published / "table.md",
        published / "plots" / PUBLISHED_PLOTS[0],
    ]
    assert sorted(path.name for path in published.rglob("*") if path.is_file()) == sorted(
        ["summary.json", "table.md", "groups.json", PUBLISHED_PLOTS[0]]
    )
    assert (published / "groups.json").read_text() == "of an earlier day"
    assert (published / "table.md").read_text() == "table.md"


def test_a_rate_that_falls_is_a_regression() -> None:
    runs = [run("base", 0, 1.0), run("head", 0, 1.0)]
    for each, value in zip(runs, (10.0, 5.0), strict=True):
        each["figures"][1] |= {"value": value, "yardstick": True}
    assert [row["figure"] for row in regressions(summarise(runs, "head", "base"), 1.15)] == ["rate"]


def test_regression_needs_median_above_limit_and_all_rounds() -> None:
    def summary(*heads: float) -> list[dict[str, Any]]:
        rounds = [run("base", each, 1.0) for each in range(3)]
        return summarise([*rounds, *(run("head", each, value) for each, value in enumerate(heads))], "head", "base")

    assert regressions(summary(1.3, 1.2, 1.4), 1.15)
    assert not regressions(summary(1.1, 1.1, 1.1), 1.15)
    assert not regressions(summary(0.9, 1.5, 1.5), 1.15)
    assert verdict(summary(1.3, 1.2, 1.4), 1.15).endswith("1 worse by more than 1.15")
