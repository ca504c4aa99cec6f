"""Client history of a round: the shared history, recorded by many threads, and figures for the report."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection
from pathlib import Path

from simulation.checkers import Violation
from simulation.history import (
    Findings,
    Lag,
    LogHistory,
    Losses,
    Outcome,
    Place,
    Progress,
    Transactions,
    judge_copies,
    judge_stable_offsets,
)
from simulation.trace import Trace

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
        """Worst lag of a reader behind an acknowledgement, by the monotonic clock."""
        self.lost_acknowledged = self.lost_served = 0
        self.transactions: Counter[str] = Counter()
        """Number of transactions by outcome, as known by their producers."""
        self.forgiven: Counter[str] = Counter()

    def beside(self) -> Figures:
        """Those of another topic, which counts errors and transactions with this one."""
        other = Figures()
        other.errors, other.transactions = self.errors, self.transactions
        return other


class Book:
    """One topic. Thread-safe."""

    def __init__(
        self, figures: Figures, *, allow_loss: bool = False, transactional: bool = False, beside: Book | None = None
    ) -> None:
        """`beside` is the book of another topic, to which the same transactions write."""
        self.figures = figures
        self.trace: Trace = Trace(MonotonicTime()) if beside is None else beside.trace
        self.violations: list[str] = [] if beside is None else beside.violations
        self.findings = Findings()
        self.transactions: Transactions = Transactions(self.findings) if beside is None else beside.transactions
        self.copies: dict[str, str] = {}
        """The source of each copy that was ever sent."""
        self.progress: dict[str, set[int]] = defaultdict(set)
        """Partitions in which each producer was acknowledged since the last `begin_progress`."""
        self.allow_loss = allow_loss
        self._lock: threading.RLock = threading.RLock() if beside is None else beside._lock
        self._history = LogHistory(
            self.trace,
            allow_loss=allow_loss,
            transactions=self.transactions if transactional else None,
            named="" if beside is None else "copies-",
        )
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

    def remark(self, client: str, what: str) -> None:
        """For the reader of the history."""
        with self._lock:
            self.trace.remark(client, what)

    def error(self, client: str, name: str) -> None:
        """A client received an error, or raised one."""
        with self._lock:
            self.figures.errors[name] += 1
            self.trace.remark(client, name)

    def sent(self, partition: int, value: str, transaction: str | None = None) -> None:
        """A producer is about to send it."""
        with self._lock:
            self.figures.sent += 1
            self._sent_at[value] = time.monotonic()
            self._history.sent(partition, value, transaction)

    def began(self, transaction: str) -> None:
        """A producer begins a transaction."""
        with self._lock:
            self.transactions.began(transaction)

    def asked(self, transaction: str) -> None:
        """Its producer is about to ask for the commit."""
        with self._lock:
            self.transactions.asked(transaction)

    def ended(self, client: str, transaction: str, partitions: Collection[int], *, committed: bool) -> None:
        """Its producer received the end of the transaction; it wrote to these partitions."""
        with self._lock:
            self.figures.transactions["committed" if committed else "aborted"] += 1
            self.trace.remark(client, f"{transaction} {'committed' if committed else 'aborted'}")
            if committed:
                self.progress[client].update(partitions)
                self._checked(self.transactions.committed, transaction)
            else:
                self._checked(self.transactions.aborted, transaction)

    def left_open(self, client: str, what: str) -> None:
        """A producer went without knowing what becomes of its transaction."""
        with self._lock:
            self.figures.transactions["left open"] += 1
            self.trace.remark(client, f"leaves {what}")

    def failed(self, client: str, value: str, name: str) -> None:
        """Its producer gave it up: it may be there or not."""
        with self._lock:
            self.figures.failed += 1
            self.figures.errors[name] += 1
            self.trace.remark(client, f"{value} failed: {name}")

    def acknowledged(self, client: str, partition: int, offset: int | None, value: str) -> None:
        """Its producer received its offset; None if the leader detected a duplicate, but no longer knows the offset."""
        now = time.monotonic()
        with self._lock:
            self.figures.acknowledged += 1
            self.figures.latencies_s.append(now - self._sent_at[value])
            self._acknowledged_at[value] = now
            if self.transactions.of(value) is None:
                self.progress[client].add(partition)
            self._gap(now)
            self._last_acknowledged = now
            if offset is None:
                self._history.acknowledged_somewhere(partition, value)
            else:
                self._checked(self._history.acknowledged, client, partition, offset, [value])

    def _gap(self, now: float) -> None:
        last = self._last_acknowledged
        if last is None:
            return
        self.figures.longest_gap_s = max(self.figures.longest_gap_s, now - last)
        if now - last > GAP_S:
            self.figures.gaps.append((last, now))

    def begin_progress(self) -> None:
        """Forget the acknowledged partitions."""
        with self._lock:
            self.progress.clear()

    def progressed(self, producers: list[str], partitions: int) -> bool:
        """Every producer was acknowledged somewhere, and together they were everywhere."""
        with self._lock:
            reached = [self.progress[client] for client in producers]
            return all(reached) and len(set().union(*reached)) == partitions

    def polled(self, client: str, partition: int, offset: int, value: str, *, committed: bool = False) -> None:
        """A consumer with partitions of its own choice read it; `committed` by read_committed."""
        with self._lock:
            self.figures.served += 1
            self._checked(self._history.polled, client, partition, offset, value, committed=committed)

    def group_read(self, group: str, client: str, partition: int, offset: int, value: str) -> None:
        """A member of a group read it."""
        with self._lock:
            self.figures.group_reads += 1
            self._group_seen[group].add(value)
            self._checked(self._history.served, client, partition, offset, value, committed=True)

    def joined(self) -> None:
        """A member begins."""
        with self._lock:
            self.figures.group_joins += 1

    def position_lost(self, client: str, what: str) -> None:
        """A consumer was informed that its position does not exist."""
        with self._lock:
            self.figures.errors["position lost"] += 1
            self._checked(self._history.broken, "lost-write", f"{client}: {what}")

    def latest_offset_listed(self, client: str, partition: int, offset: int, served_before: int) -> None:
        """ListOffsets answered `client`, which had read up to `served_before` at the time of the request."""
        with self._lock:
            self.figures.looked_up += 1
            self._checked(self._history.latest_offset_listed, client, partition, offset, served_before)

    def unseen(self, group: str) -> set[str]:
        """Acknowledged and committed records that no member of the group has read yet."""
        with self._lock:
            return self._wanted() - self._group_seen[group]

    def unread(self, client: str) -> set[str]:
        """Acknowledged and committed records that this reader has not read yet."""
        with self._lock:
            return self._wanted() - set(self._history.seen(client))

    def uncopied(self, copies: Book, reader: str) -> set[str]:
        """Acknowledged and committed records without a copy seen by `reader`."""
        with self._lock:
            return self._wanted() - {copies.copies[copy] for copy in copies._history.seen(reader)}

    def _wanted(self) -> set[str]:
        return {value for value in self._acknowledged_at if self._is_committed(value)}

    def _is_committed(self, value: str) -> bool:
        transaction = self.transactions.of(value)
        return transaction is None or self.transactions.outcome(transaction) is Outcome.COMMITTED

    def finish(
        self,
        contents: dict[int, dict[int, str]],
        resent: Collection[Place] = (),
        committed: dict[int, dict[int, str]] | None = None,
        readers: dict[str, bool] | None = None,
    ) -> None:
        """Check against the content of the partitions at the end; see `LogHistory.finish`."""
        with self._lock:
            self.figures.resent += len(resent)
            losses = Losses(0, 0)
            try:
                losses = self._history.finish(contents, resent, committed, readers)
            except Violation as violation:
                self._found(str(violation))
            self.figures.lost_acknowledged += losses.acknowledged
            self.figures.lost_served += losses.served
            self.figures.forgiven.update(self._history.forgiven)
            self.figures.worst_lag = max(self.figures.worst_lag, self._history.worst_lag, key=lambda lag: lag.seconds)

    def finish_transactions(
        self, sources: dict[int, dict[int, str]], copies: dict[int, dict[int, str]], sources_of: dict[str, str]
    ) -> None:
        """Judge by what read_committed finds at the end: transactions are whole, the copies equal their sources."""
        visible = [*sources.values(), *copies.values()]
        with self._lock:
            self._checked(self.transactions.finish, frozenset(value for each in visible for value in each.values()))
            self._checked(
                judge_copies,
                self.findings,
                {partition: _values(records) for partition, records in sources.items()},
                {
                    partition: [(copy, sources_of[copy]) for copy in _values(records)]
                    for partition, records in copies.items()
                },
            )

    def judge_stable_offsets(self, partitions: dict[str, Progress], within_s: float) -> None:
        """Every transaction has ended; see `simulation.history`."""
        with self._lock:
            self._checked(judge_stable_offsets, self.findings, partitions, within_s)

    def write_trace(self, path: Path) -> None:
        """Write the newest lines of the history, to explain a failure."""
        with self._lock:
            path.write_text("\n".join(self.trace.lines()) + "\n")


def _values(records: dict[int, str]) -> list[str]:
    """In the order of their offsets."""
    return [records[offset] for offset in sorted(records)]
