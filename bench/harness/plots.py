"""Plots of cost against size from the summary: one PNG for each plot that cells name, and figure.

Both axes are logarithmic; if a cost is zero, as an idle broker's may be, the vertical one is linear. Cells without a
size are bars.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

COLOURS = {"ottla": "tab:blue", "kafka": "tab:red", "nats": "tab:green"}
STYLES = ("-", "--", ":", "-.")


def draw(summary: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Draw every yardstick of the cells with an axis: medians as lines, the spread as bars."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in summary:
        if row["axis"] and row["yardstick"]:
            groups[row["axis"]["plot"], row["figure"]].append(row)
    drawn = []
    for (plot, figure), rows in sorted(groups.items()):
        if len({row["axis"]["x"] for row in rows}) > 1:
            path = folder / (re.sub(r"\W+", "_", f"{plot} {figure}".lower()) + ".png")
            path.parent.mkdir(parents=True, exist_ok=True)
            draw_one(f"{plot}: {figure}", rows, path)
            drawn.append(path)
    return drawn


def draw_one(title: str, rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw one line for each peer and line of the axis."""
    canvas, axes = pyplot.subplots(figsize=(8, 5))
    names = sorted({row["axis"]["line"] for row in rows})
    for number, line in enumerate(names):
        mine = sorted((row for row in rows if row["axis"]["line"] == line), key=lambda row: float(row["axis"]["x"]))
        for peer in sorted({peer for row in mine for peer in row["peers"]}):
            points = [(row["axis"]["x"], row["peers"][peer]) for row in mine if peer in row["peers"]]
            medians = [values["median"] for _, values in points]
            below = [values["median"] - values["min"] for _, values in points]
            above = [values["max"] - values["median"] for _, values in points]
            axes.errorbar(
                [x for x, _ in points],
                medians,
                yerr=[below, above],
                label=f"{peer} {line}",
                color=COLOURS.get(peer),
                linestyle=STYLES[number % len(STYLES)],
                marker="o",
                capsize=3,
            )
    positive = all(values["median"] > 0 for row in rows for values in row["peers"].values())
    axes.set(
        xscale="log",
        yscale="log" if positive else "linear",
        title=title,
        xlabel=rows[0]["axis"]["unit"],
        ylabel=rows[0]["unit"],
    )
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    canvas.tight_layout()
    canvas.savefig(path, dpi=100)
    pyplot.close(canvas)


def draw_bars(title: str, panels: Mapping[str, str], runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw one panel for each figure in `panels` (figure -> label), with a bar and its spread for each `way` of the
    runs.
    """
    ways = list(dict.fromkeys(run["way"] for run in runs))
    canvas, all_axes = pyplot.subplots(1, len(panels), figsize=(4 * len(panels), 4), squeeze=False)
    for axes, (figure, words) in zip(all_axes[0], panels.items(), strict=True):
        values = {way: [run["figures"][figure] for run in runs if run["way"] == way] for way in ways}
        medians = [statistics.median(values[way]) for way in ways]
        below = [median - min(values[way]) for way, median in zip(ways, medians, strict=True)]
        above = [max(values[way]) - median for way, median in zip(ways, medians, strict=True)]
        bars = axes.bar(ways, medians, yerr=[below, above], capsize=4, color=["tab:blue", "tab:cyan", "tab:red"])
        axes.bar_label(bars, fmt="{:,.0f}", label_type="center", color="white")
        axes.set(title=words)
        axes.grid(True, axis="y", alpha=0.3)
    canvas.suptitle(title)
    canvas.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path, dpi=100)
    pyplot.close(canvas)


def draw_percentiles(title: str, unit: str, lines: Mapping[str, Sequence[float]], path: Path) -> None:
    """Draw one line per name: the percentiles from 1 to 99 on the vertical axis over their values in `unit`."""
    canvas, axes = pyplot.subplots(figsize=(8, 5))
    for name, percentiles in lines.items():
        axes.plot(percentiles, range(1, len(percentiles) + 1), label=name)
    axes.set(xscale="log", title=title, xlabel=unit, ylabel="% of records")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    canvas.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path, dpi=100)
    pyplot.close(canvas)
