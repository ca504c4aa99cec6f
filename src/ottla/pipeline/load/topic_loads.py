"""Loads of several topics at a time, each into a table of its own.

Each load is one of `ottla.pipeline.load.driver`, with a plan, a commit and dead letters of its own: a load that fails
or is killed changes no other table. Threads run the loads and share the engines (`ottla.pipeline.load.shared_engines`).

**Invariant:** after an interruption no load starts. Running loads fail at their next step and remove their files. A
load that takes longer than END_S for that is abandoned as if it were killed: its table stays as it was, and a vacuum
removes its files.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, NoReturn

from ottla.common.errors import OperatorError, OttlaError
from ottla.common.runbooks import with_runbook
from ottla.pipeline.load.driver import LoadSummary, Observer
from ottla.pipeline.load.engine import EngineChoice
from ottla.pipeline.load.land import Counters, WrittenRange
from ottla.pipeline.load.shared_engines import SharedEngines
from ottla.pipeline.load.topic_tables import TableAssignment
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.model.plan import DeadLettersError, LoadPlan
from ottla.pipeline.model.retriable import as_retriable

END_S = 5.0
"""Seconds for running loads to end after an interruption."""
MAX_LISTED = 10
"""Maximum number of reasons, and of topics with the same reason, in an error message."""

LoadTopic = Callable[[TableAssignment, EngineChoice, Observer], LoadSummary]
"""Loads one topic. Raises OttlaError or OSError if that fails; it is called in several threads at a time."""


@dataclass(frozen=True, slots=True)
class TopicLoad:
    """Result of the load of one topic: a summary, or an error."""

    topic: str
    table: str
    summary: LoadSummary | None = None
    error: OttlaError | None = None

    @property
    def exit_code(self) -> int:
        """Exit code of a command that loads this topic only."""
        return 0 if self.error is None else self.error.exit_code

    def to_json(self) -> dict[str, Any]:
        """Fields of the summary, if there is one, and of the error, null without one."""
        found = {} if self.summary is None else self.summary.to_json()
        error = None if self.error is None else str(self.error)
        end = {"error": error, "exit_code": self.exit_code, "retriable": self.exit_code == OttlaError.exit_code}
        return {"topic": self.topic, "table": self.table} | found | end


@dataclass(frozen=True, slots=True)
class TopicLoads:
    """Results of one run, by topic; `seconds` is its duration."""

    loads: Sequence[TopicLoad]
    seconds: float

    @property
    def failed(self) -> list[TopicLoad]:
        return [load for load in self.loads if load.error is not None]

    @property
    def summaries(self) -> list[LoadSummary]:
        return [load.summary for load in self.loads if load.summary is not None]

    @property
    def exit_code(self) -> int:
        """The highest exit code of a topic."""
        return max((load.exit_code for load in self.loads), default=0)

    def failure(self) -> OttlaError | None:
        """An error with the highest exit code and the reasons of all failed topics, None if all were loaded."""
        failed = self.failed
        if not failed:
            return None
        topics: dict[str, list[str]] = {}
        for load in failed:
            if load.error is not None:
                topics.setdefault(with_runbook(str(load.error), load.error.runbook), []).append(load.topic)
        reasons = [f"{_listed(names, ', ')}: {reason.removesuffix('.')}" for reason, names in topics.items()]
        kinds: Sequence[type[OttlaError]] = (DeadLettersError, OperatorError)
        kind = next((kind for kind in kinds if kind.exit_code == self.exit_code), OttlaError)
        return kind(f"{len(failed):,} of {len(self.loads):,} topics were not loaded: {_listed(reasons, '; ')}")

    def totals(self) -> dict[str, Any]:
        """Sums over all topics, number of topics and of failed ones, and the exit code."""
        names = ("rows", "dead_letters", "nulled", "offsets", "files", "fetched_bytes", "written_bytes")
        sums = {name: sum(getattr(summary, name) for summary in self.summaries) for name in names}
        counts = {"topics": len(self.loads), "failed": len(self.failed)}
        return {**counts, **sums, "seconds": self.seconds, "exit_code": self.exit_code}

    def to_json(self) -> dict[str, Any]:
        return {"topics": [load.to_json() for load in self.loads], "totals": self.totals()}


def _listed(texts: Sequence[str], separator: str) -> str:
    more = len(texts) - MAX_LISTED
    return separator.join(texts[:MAX_LISTED]) + (f" and {more:,} more, see --json" if more > 0 else "")


def load_topics(
    tables: Sequence[TableAssignment],
    load_topic: LoadTopic,
    choice: EngineChoice,
    *,
    parallel: int,
    observe: Callable[[TopicLoad], object] | None = None,
) -> TopicLoads:
    """Load each topic into its table by `load_topic`, up to `parallel` of them at a time; call it in the main thread.

    The error of a topic is part of the result and does not stop the others. Refused topics fail without a load.
    `observe` gets each result, in the main thread, as soon as the load has ended. Raises other exceptions of
    `load_topic`, and those of an engine that ends.
    """
    started = time.monotonic()
    found: list[TopicLoad] = []

    def add(load: TopicLoad) -> None:
        found.append(load)
        if observe is not None:
            observe(load)

    for one in tables:
        if one.refusal is not None:
            add(TopicLoad(one.topic, one.table, error=one.refusal))
    accepted = [one for one in tables if one.refusal is None]
    if accepted:
        _Run(accepted, load_topic, choice, add).run(parallel)
    return TopicLoads(sorted(found, key=lambda load: load.topic), time.monotonic() - started)


class _Stop(Observer):
    """Ends a load at its next step after an interruption."""

    def __init__(self, interrupted: threading.Event) -> None:
        self._interrupted = interrupted

    def planned(self, plan: LoadPlan) -> None:
        self._check()

    def landing(self, plan: LoadPlan, counters: Counters | None) -> None:
        self._check()

    def landed(self, rows: Sequence[WrittenRange]) -> None:
        self._check()

    def _check(self) -> None:
        if self._interrupted.is_set():
            raise OttlaError("the load was interrupted")


class _Run:
    """Threads that load topics, and the main thread that calls the functions that they send."""

    def __init__(
        self,
        tables: Sequence[TableAssignment],
        load_topic: LoadTopic,
        choice: EngineChoice,
        add: Callable[[TopicLoad], None],
    ) -> None:
        self._load_topic = load_topic
        self._add = add
        self._waiting = deque(tables)
        self._left = len(tables)
        self._interrupted = threading.Event()
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._engines = SharedEngines(choice, self._calls.put)

    def run(self, parallel: int) -> None:
        """Return when all topics have a result."""
        names = [f"load-{number}" for number in range(min(parallel, self._left))]
        threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        try:
            with self._engines:
                try:
                    for thread in threads:
                        thread.start()
                    while self._left:
                        self._calls.get()()
                except BaseException:
                    self._interrupted.set()
                    self._engines.cancel()
                    raise
        finally:
            deadline = time.monotonic() + END_S
            for thread in threads:
                if thread.ident is not None:
                    thread.join(max(deadline - time.monotonic(), 0.0))

    def _work(self) -> None:
        observer = _Stop(self._interrupted)
        while not self._interrupted.is_set():
            try:
                one = self._waiting.popleft()
            except IndexError:
                return
            try:
                summary = self._load_topic(one, self._engines.choice, observer)
                load = TopicLoad(one.topic, one.table, summary)
            except (OttlaError, OSError) as error:
                load = TopicLoad(one.topic, one.table, error=_as_failure(error))
            except BaseException as error:
                self._calls.put(partial(_raise, error))
                return
            self._calls.put(partial(self._end, load))

    def _end(self, load: TopicLoad) -> None:
        self._left -= 1
        self._add(load)


def _as_failure(error: OttlaError | OSError) -> OttlaError:
    if isinstance(error, OttlaError):
        return as_retriable(error)
    failure = OperatorError(os_reason(error))
    failure.__cause__ = error
    return as_retriable(failure)


def _raise(error: BaseException) -> NoReturn:
    raise error
