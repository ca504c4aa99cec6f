"""What the clients of a round were told: the shared history, told by many threads, and figures for the report."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection
from pathlib import Path

from ottla.sim.checkers import Violation
from ottla.sim.history import Lag, LogHistory, Losses, Place
from ottla.sim.trace import Trace

GAP_S = 1.0
"""A time without any acknowledgement that is this long counts as a window in which the topic was not available."""
MAX_VIOLATIONS = 20


class MonotonicTime:
    """The time of a trace."""

    @staticmethod
    def time() -> float:
        return time.monotonic()


class Figures:
    """Counts over all rounds."""

    def __init__(self) -> None:
        self.sent = self.acknowledged = self.failed = self.served = self.group_reads = self.looked_up = 0
        self.group_joins = self.resent = 0
        self.errors: Counter[str] = Counter()
        self.gaps: list[tuple[float, float]] = []
        """Begin and end of each window without an acknowledgement, by the monotonic clock."""
        self.longest_gap_s = 0.0
        self.latencies_s: list[float] = []
        self.worst_lag = Lag(0.0, 0.0, "")
        """Of a reader behind an acknowledgement, by the monotonic clock."""
        self.lost_acknowledged = self.lost_served = 0
        self.forgiven: Counter[str] = Counter()


class Book:
    """One topic. Thread-safe."""

    def __init__(self, figures: Figures, *, allow_loss: bool) -> None:
        self.figures = figures
        self.trace = Trace(MonotonicTime())
        self.violations: list[str] = []
        self.progress: dict[str, set[int]] = defaultdict(set)
        """Partitions in which each producer was acknowledged since the last `begin_progress`."""
        self.allow_loss = allow_loss
        self._lock = threading.Lock()
        self._history = LogHistory(self.trace, allow_loss=allow_loss)
        self._sent_at: dict[str, float] = {}
        self._acknowledged_at: dict[str, float] = {}
        self._group_seen: dict[str, set[str]] = defaultdict(set)
        self._last_acknowledged: float | None = None

    def _checked(self, check, *arguments, **named) -> None:
        """Call with the lock held."""
        try:
            check(*arguments, **named)
        except Violation as violation:
            self._found(str(violation))

    def _found(self, what: str) -> None:
        self.trace.remark("finding", what)
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(what)

    def violated(self, what: str) -> None:
        """Something outside the history broke a promise."""
        with self._lock:
            self._found(what)

    def remark(self, who: str, what: str) -> None:
        """For the reader of the history."""
        with self._lock:
            self.trace.remark(who, what)

    def error(self, who: str, name: str) -> None:
        """A client was told an error, or told one itself."""
        with self._lock:
            self.figures.errors[name] += 1
            self.trace.remark(who, name)

    def sent(self, partition: int, value: str) -> None:
        """A producer is about to send it."""
        with self._lock:
            self.figures.sent += 1
            self._sent_at[value] = time.monotonic()
            self._history.sent(partition, value)

    def failed(self, who: str, value: str, name: str) -> None:
        """Its producer gave it up: it may be there or not."""
        with self._lock:
            self.figures.failed += 1
            self.figures.errors[name] += 1
            self.trace.remark(who, f"{value} failed: {name}")

    def acknowledged(self, who: str, partition: int, offset: int | None, value: str) -> None:
        """Its producer was told where it is; None when the leader knew a duplicate, but no longer where it is."""
        now = time.monotonic()
        with self._lock:
            self.figures.acknowledged += 1
            self.figures.latencies_s.append(now - self._sent_at[value])
            self._acknowledged_at[value] = now
            self.progress[who].add(partition)
            self._gap(now)
            self._last_acknowledged = now
            if offset is None:
                self._history.acknowledged_somewhere(partition, value)
            else:
                self._checked(self._history.acknowledged, who, partition, offset, [value])

    def _gap(self, now: float) -> None:
        last = self._last_acknowledged
        if last is None:
            return
        self.figures.longest_gap_s = max(self.figures.longest_gap_s, now - last)
        if now - last > GAP_S:
            self.figures.gaps.append((last, now))

    def begin_progress(self) -> None:
        """Forget who was acknowledged where."""
        with self._lock:
            self.progress.clear()

    def progressed(self, producers: list[str], partitions: int) -> bool:
        """Every producer was acknowledged somewhere, and together they were everywhere."""
        with self._lock:
            reached = [self.progress[who] for who in producers]
            return all(reached) and len(set().union(*reached)) == partitions

    def polled(self, who: str, partition: int, offset: int, value: str) -> None:
        """A consumer with partitions of its own choice read it."""
        with self._lock:
            self.figures.served += 1
            self._checked(self._history.polled, who, partition, offset, value)

    def group_read(self, group: str, who: str, partition: int, offset: int, value: str) -> None:
        """A member of a group read it."""
        with self._lock:
            self.figures.group_reads += 1
            self._group_seen[group].add(value)
            self._checked(self._history.served, who, partition, offset, value)

    def joined(self) -> None:
        """A member begins."""
        with self._lock:
            self.figures.group_joins += 1

    def position_lost(self, who: str, what: str) -> None:
        """A consumer was told that its position is not there."""
        with self._lock:
            self.figures.errors["position lost"] += 1
            self._checked(self._history.broken, "lost-write", f"{who}: {what}")

    def told_latest(self, who: str, partition: int, offset: int, served_before: int) -> None:
        """ListOffsets answered `who`, which had read up to `served_before` when it asked."""
        with self._lock:
            self.figures.looked_up += 1
            self._checked(self._history.told_latest, who, partition, offset, served_before)

    def unseen(self, group: str) -> set[str]:
        """Acknowledged values that no member of the group has read yet."""
        with self._lock:
            return self._acknowledged_at.keys() - self._group_seen[group]

    def finish(self, contents: dict[int, dict[int, str]], resent: Collection[Place] = ()) -> None:
        """Judge against what the partitions hold at the end; see `LogHistory.finish`."""
        with self._lock:
            self.figures.resent += len(resent)
            losses = Losses(0, 0)
            try:
                losses = self._history.finish(contents, resent)
            except Violation as violation:
                self._found(str(violation))
            self.figures.lost_acknowledged += losses.acknowledged
            self.figures.lost_served += losses.served
            self.figures.forgiven.update(self._history.forgiven)
            self.figures.worst_lag = max(self.figures.worst_lag, self._history.worst_lag, key=lambda lag: lag.seconds)

    def write_trace(self, path: Path) -> None:
        """The newest lines of the history, for who wants to understand it."""
        with self._lock:
            path.write_text("\n".join(self.trace.lines()) + "\n")
