"""Plots of the streams' results, and of their windows; needs `ottla[pipeline,plots]`.

    python plot.py lake pictures       # one PNG for each table that is in the directory `lake`, and windows.png

Tables are read as they lie there, by deltalake.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import pandas as pd
from deltalake import DeltaTable
from matplotlib import dates, pyplot

SHOWN = 8
"""Readers, pages or addresses in one picture."""
FEW = 20
"""Minimum number of impressions for a meaningful share."""


def news_feed(activity: pd.DataFrame, axes: Any) -> None:
    """The feed of the most active readers: one dot for each quarter of an hour, larger for more views."""
    most = activity.groupby("user")["views"].sum().nlargest(SHOWN * 2).index
    for place, user in enumerate(most):
        mine = activity[activity["user"] == user]
        axes.scatter(mine["since"], [place] * len(mine), s=mine["views"] * 12, alpha=0.6)
    axes.set_yticks(range(len(most)), most)
    axes.invert_yaxis()
    axes.set_title(
        f"News feed: the {len(most)} most active of {activity['user'].nunique():,} readers, by quarter of an hour"
    )


def relevance(windows: pd.DataFrame, axes: Any) -> None:
    """The share of impressions that were followed, of the pages that were shown most."""
    for page in windows.groupby("page")["shown"].sum().nlargest(SHOWN).index:
        mine = windows[(windows["page"] == page) & (windows["shown"] >= FEW)].sort_values("until")
        axes.plot(mine["until"], 100 * mine["followed"] / mine["shown"], label=page)
    axes.legend(ncols=2, fontsize="small")
    axes.set(title="Relevance: impressions that were followed, sliding windows of an hour", ylabel="%", ylim=0)


def top_pages(places: pd.DataFrame, axes: Any) -> None:
    """Rank of each page, by hour."""
    for page in places.groupby("page")["views"].sum().nlargest(SHOWN).index:
        mine = places[places["page"] == page].set_index("since")["place"]
        hours = pd.date_range(places["since"].min(), places["since"].max(), freq="h")
        axes.plot(hours, mine.reindex(hours), marker="o", label=page)
    axes.legend(ncols=2, fontsize="small")
    axes.set(title="Top pages: places of each hour", ylabel="place")
    axes.invert_yaxis()


def security(alerts: pd.DataFrame, axes: Any) -> None:
    """Windows in which an address asked too often."""
    clients = list(alerts.sort_values("since")["client"].unique())[: SHOWN * 2]
    for place, client in enumerate(clients):
        for alert in alerts[alerts["client"] == client].itertuples():
            axes.barh(place, alert.until - alert.since, left=alert.since, color="tab:red", alpha=0.4)
        worst = alerts[alerts["client"] == client].nlargest(1, "requests").iloc[0]
        axes.annotate(
            f"  {worst['requests']:,} requests, {worst['refused']:,} refused", (worst["until"], place), va="center"
        )
    axes.set_yticks(range(len(clients)), clients)
    axes.margins(x=0.4)
    axes.set_title("Security: alerts, sliding windows of ten minutes")


def monitoring(windows: pd.DataFrame, axes: Any) -> None:
    """Latencies, and failures on an axis of their own; the last window may still be open."""
    windows = windows.sort_values("since").iloc[:-1]
    for name in ("p50", "p95", "p99"):
        axes.plot(windows["since"], 1000 * windows[name], label=name)
    axes.set(title="Operational monitoring: windows of five minutes", ylabel="ms", ylim=0)
    failures = axes.twinx()
    failures.fill_between(
        windows["since"], 100 * windows["failed"] / windows["requests"], color="tab:red", alpha=0.3, step="post"
    )
    failures.set(ylabel="% failed", ylim=(0, 100))
    axes.legend(loc="upper left")


def reporting(visits: pd.DataFrame, axes: Any) -> None:
    """Visits and reach of each hour."""
    hours = visits.groupby(visits["since"].dt.floor("h"))
    counts = hours.agg(visits=("client", "size"), addresses=("client", "nunique"))
    axes.bar(counts.index, counts["visits"], width=1 / 24, align="edge", alpha=0.4, label="visits")
    axes.step(counts.index, counts["addresses"], where="post", color="tab:green", label="reach: addresses")
    lengths = (visits["until"] - visits["since"]).dt.total_seconds() / 60 - GAP_MINUTES
    axes.set_title(
        f"Reporting: {len(visits):,} visits of {visits['client'].nunique():,} addresses, "
        f"half of them {lengths.median():.0f} minutes or longer"
    )
    axes.legend()


GAP_MINUTES = 30
"""After the last view a session is kept open so long, which is a part of its window."""

PICTURES: dict[str, tuple[str, Callable[[pd.DataFrame, Any], None]]] = {
    "activity": ("news-feed", news_feed),
    "relevance": ("relevance", relevance),
    "top-pages": ("top-pages", top_pages),
    "alerts": ("security", security),
    "monitoring": ("monitoring", monitoring),
    "visits": ("reporting", reporting),
}
"""Table -> name of its plot, and the function that draws it."""


def windows(axes: Any) -> None:
    """The same eight views in windows of each kind, and the effect of a watermark on a late view."""
    views = [1, 3, 4, 11, 13, 14, 16, 27]
    kinds = {
        "tumbling\nwindow(at, '10 minutes')": [(start, start + 10) for start in range(0, 30, 10)],
        "sliding\nwindow(at, '10 minutes', '5 minutes')": [(start, start + 10) for start in range(-5, 30, 5)],
        "session\nsession_window(at, '5 minutes')": [(1, 9), (11, 21), (27, 32)],
    }
    top = 0
    ticks = []
    for kind, spans in kinds.items():
        height = 2 if kind.startswith("sliding") else 1
        ticks.append((top + height / 2, kind))
        for number, (start, end) in enumerate(spans):
            row = top + number % height
            count = sum(start <= view < end for view in views)
            axes.barh(
                row + 0.5, end - start, left=start, height=0.8, color="tab:blue", alpha=0.25, edgecolor="tab:blue"
            )
            axes.annotate(str(count), ((start + end) / 2, row + 0.5), ha="center", va="center")
        axes.axhline(top + height, color="grey", linewidth=0.5)
        top += height
    axes.scatter(views, [-0.5] * len(views), color="black", zorder=3)
    axes.vlines(views, -0.5, top, color="black", linewidth=0.5, linestyle=":", zorder=0)
    ticks.append((-0.5, "views"))
    axes.axvline(17, color="tab:red")
    axes.annotate(
        "watermark: 27 less 10 minutes;\nolder views come too late", (17.3, top + 0.6), color="tab:red", va="center"
    )
    axes.set_yticks(*zip(*ticks, strict=True))
    axes.set(title="The same views in windows of each kind", xlabel="minutes", xlim=(-6, 34), ylim=(top + 1.2, -1))


def draw(path: Path, what: Callable[[Any], None], *, times: bool = True) -> None:
    canvas, axes = pyplot.subplots(figsize=(9, 4.5))
    what(axes)
    if times:
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(axes.xaxis.get_major_locator()))
        axes.grid(alpha=0.3)
    canvas.tight_layout()
    canvas.savefig(path, dpi=80)
    pyplot.close(canvas)
    print(path)


def main(lake: Path, pictures: Path) -> None:
    pictures.mkdir(parents=True, exist_ok=True)
    draw(pictures / "windows.png", windows, times=False)
    for table, (name, picture) in PICTURES.items():
        if DeltaTable.is_deltatable(str(lake / table)):
            found = DeltaTable(str(lake / table)).to_pandas()
            for column in {"since", "until"} & set(found.columns):
                found[column] = pd.to_datetime(found[column], utc=True)
            draw(pictures / f"{name}.png", partial(picture, found))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
