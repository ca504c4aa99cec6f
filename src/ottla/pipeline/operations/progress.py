"""The progress line of a load or a snapshot, on a terminal: rows, rows a second, lag, time left. Silent in a pipe.

The engine's counters move when tasks end, so the line moves in steps. While several tables are loaded, it shows the
topics that have ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TextIO

from ottla.pipeline.load.land import Counters, WrittenRange
from ottla.pipeline.model.plan import LoadPlan
from ottla.pipeline.snapshot.run import SnapshotObserver

if TYPE_CHECKING:
    from rich.live import Live

REFRESH_PER_S = 4.0


def _live(line: Callable[[], str], stream: TextIO) -> Live:
    """A line that is drawn again and again on `stream`, and removed at the end."""
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream)
    return Live(get_renderable=line, console=console, refresh_per_second=REFRESH_PER_S, transient=True)


class ProgressLine(SnapshotObserver):
    """Draws on `stream` while tasks run; `close` always removes the line."""

    def __init__(self, stream: TextIO) -> None:
        self._plan: LoadPlan | None = None
        self._counters: Counters | None = None
        self._started = 0.0
        self._buckets: int | None = None
        """Number of merged buckets, once merging has started."""
        self._live = _live(self._line, stream)

    def planned(self, plan: LoadPlan) -> None:
        self._plan = plan
        if plan.tasks:
            self._live.start()

    def landing(self, plan: LoadPlan, counters: Counters | None) -> None:
        self._counters = counters
        self._started = time.monotonic()

    def landed(self, rows: Sequence[WrittenRange]) -> None:
        self.close()

    def merging(self, buckets: int, counters: Counters | None) -> None:
        self._buckets, self._counters = buckets, counters
        self._started = time.monotonic()
        self._live.start()

    def merged(self) -> None:
        self.close()

    def close(self) -> None:
        """Stop drawing; idempotent."""
        self._live.stop()

    def _line(self) -> str:
        if self._plan is None:
            return ""
        if self._started == 0.0:
            return f"starting the tasks for {self._plan.offsets:,} offsets in {len(self._plan.ranges)} partitions"
        elapsed = max(time.monotonic() - self._started, 1e-9)
        if self._buckets is not None:
            return merge_text(self._buckets, self._counters, elapsed)
        if self._counters is None:
            return f"loading {self._plan.offsets:,} offsets, {elapsed:.0f} s"
        return progress_text(
            self._plan, self._counters.tasks.value, self._counters.rows.value, self._counters.offsets.value, elapsed
        )


class TopicsProgress:
    """A context manager that draws `topics 3/40 · 1,200,000 rows · 4 s` on `stream`."""

    def __init__(self, stream: TextIO, topics: int) -> None:
        self._topics = topics
        self._ended = 0
        self._rows = 0
        self._started = time.monotonic()
        self._live = _live(self._line, stream)

    def __enter__(self) -> TopicsProgress:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def end_topic(self, rows: int) -> None:
        """Count a topic whose load has ended, with its rows."""
        self._ended += 1
        self._rows += rows

    def _line(self) -> str:
        elapsed_s = time.monotonic() - self._started
        return f"topics {self._ended}/{self._topics} · {self._rows:,} rows · {elapsed_s:.0f} s"


def progress_text(plan: LoadPlan, tasks: int, rows: int, offsets: int, elapsed_s: float) -> str:
    """`tasks 3/8 · 1,200,000 rows · 400,000 rows/s · lag 2,000,000 · 5 s left`."""
    parts = [f"tasks {tasks}/{len(plan.tasks)}", f"{rows:,} rows", f"{rows / elapsed_s:,.0f} rows/s"]
    lag = plan.offsets - offsets
    parts.append(f"lag {lag:,}")
    if offsets:
        parts.append(f"{lag * elapsed_s / offsets:.0f} s left")
    return " · ".join(parts)


def merge_text(buckets: int, counters: Counters | None, elapsed_s: float) -> str:
    """`buckets 3/16 · 1,200,000 rows written · 4 s`."""
    parts = [f"buckets {buckets}"]
    if counters is not None:
        parts = [f"buckets {counters.tasks.value}/{buckets}", f"{counters.rows.value:,} rows written"]
    return " · ".join([*parts, f"{elapsed_s:.0f} s"])
