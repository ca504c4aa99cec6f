"""Reports of the runs: medians and spread, ratios within rounds, a table, and plots.

A ratio is taken within a round, from two consecutive runs, and its median over the rounds is reported.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Run = Mapping[str, Any]
MORE = "more is better"

PUBLISHED_PLOTS = (
    "produce_broker_cpu_per_gb.png",
    "consume_broker_cpu_per_gb.png",
    "broker_cpu_per_request_broker_cpu_per_m_requests.png",
    "broker_cpu_per_fetch_broker_cpu_per_m_requests.png",
    "cluster_latency_end_to_end_p99.png",
    "unclean_restart_restart_to_first_record.png",
)
"""Plots shown in the documents; the others can be drawn from summary.json."""


def load_runs(folder: Path) -> list[Run]:
    """Returns every stored run, by file name."""
    return [json.loads(path.read_text()) for path in sorted((folder / "runs").glob("*.json"))]


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": len(values)}


def ratio(numerator: Mapping[int, float], denominator: Mapping[int, float]) -> dict[str, float] | None:
    """Returns the ratio over the rounds that both have; None without such a round, or for a zero."""
    shared = [number for number in numerator if denominator.get(number)]
    return spread([numerator[number] / denominator[number] for number in shared]) if shared else None


def summarise(runs: Iterable[Run], first: str, second: str) -> list[dict[str, Any]]:
    """Returns a row for each cell and figure: every peer's spread, and the ratio of the first peer to the second."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    values: dict[tuple[str, str], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        for figure in run.get("figures", ()):
            key = run["cell"], figure["name"]
            rows.setdefault(
                key,
                {
                    "cell": run["cell"],
                    "figure": figure["name"],
                    "unit": figure["unit"],
                    "better": figure["better"],
                    "yardstick": figure["yardstick"],
                    "axis": run["axis"],
                    "shape": run["shape"],
                },
            )
            values[key][run["peer"]][run["round"]] = figure["value"]
    for key, row in rows.items():
        row["peers"] = {peer: spread(list(rounds.values())) for peer, rounds in values[key].items()}
        row["ratio"] = ratio(values[key].get(first, {}), values[key].get(second, {}))
    return list(rows.values())


def number(value: float) -> str:
    """Formats a number with three significant digits and thousands separators."""
    if abs(value) < 1:
        return f"{value:.3g}"
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"


def shown(values: Mapping[str, float] | None) -> str:
    """Formats the median and, for several runs, the spread."""
    if values is None:
        return ""
    median = number(values["median"])
    return median if values["runs"] == 1 else f"{median} ({number(values['min'])} to {number(values['max'])})"


def table(rows: Sequence[Mapping[str, Any]], first: str, second: str) -> list[str]:
    peers = sorted(
        {peer for row in rows for peer in row["peers"]}, key=lambda name: (name != first, name != second, name)
    )
    lines = [
        "| cell | figure | " + " | ".join(peers) + f" | {first} / {second} |",
        "| --- | --- |" + " ---: |" * (len(peers) + 1),
    ]
    for row in rows:
        cells = [shown(row["peers"].get(peer)) for peer in peers]
        title = ", ".join(filter(None, (row["figure"], row["unit"], MORE if row["better"] == "more" else "")))
        lines.append(f"| {row['cell']} | {title} | " + " | ".join(cells) + f" | {shown(row['ratio'])} |")
    return lines


def conditions_lines(runs: Sequence[Run]) -> list[str]:
    """Returns common conditions of all runs once, and differing ones with all their values."""
    seen: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        for name, value in {**run["conditions"], **run["profile"]}.items():
            if name not in ("when", "page_cache_write_s_per_gb") and str(value) not in seen[name]:
                seen[name].append(str(value))
    lines = [f"- {name.replace('_', ' ')}: {' / '.join(values)}" for name, values in seen.items()]
    moments = sorted(run["conditions"]["when"] for run in runs)
    floors = [run["conditions"]["page_cache_write_s_per_gb"] for run in runs]
    lines.append(f"- when: {moments[0]} to {moments[-1]}")
    lines.append(f"- a plain write of new pages to the page cache, CPU s/GB before each run: {shown(spread(floors))}")
    return lines


def markdown(runs: Sequence[Run], summary: Sequence[Mapping[str, Any]], first: str, second: str) -> str:
    """Returns the table: yardsticks first, then all other figures, failures, and conditions."""
    yardsticks = [row for row in summary if row["yardstick"]]
    others = [row for row in summary if not row["yardstick"]]
    failed = [f"- {run['cell']} {run['peer']} #{run['round']}: {run['error']}" for run in runs if "error" in run]
    parts = [
        ["# Measured", "", "Medians of the rounds, in brackets the spread. Less is better where nothing else is said."],
        table(yardsticks, first, second),
        ["## Failed runs", "", *(failed or ["None."])],
        ["## Every other figure"],
        table(others, first, second),
        ["## Conditions", "", *conditions_lines(runs)],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def write_report(folder: Path, first: str = "ottla", second: str = "kafka") -> list[dict[str, Any]]:
    """Write summary.json, table.md and the plots next to the runs."""
    from harness.plots import draw  # matplotlib takes a second to load

    runs = load_runs(folder)
    if not runs:
        raise SystemExit(f"no runs in {folder}")
    summary = summarise(runs, first, second)
    (folder / "summary.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in summary) + "\n]\n")
    (folder / "table.md").write_text(markdown(runs, summary, first, second))
    draw(summary, folder / "plots")
    return summary


def publish(folder: Path, published: Path) -> list[Path]:
    """Copy the report of `folder`, without its runs, to the path that the documents link to; returns the copied files.

    Files missing in `folder`, such as plots in a report of some cells, keep their last published version.
    """
    names = ("summary.json", "table.md", "groups.json", *(f"plots/{name}" for name in PUBLISHED_PLOTS))
    copied = [published / name for name in names if (folder / name).exists()]
    for path in copied:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / path.relative_to(published), path)
    return copied
