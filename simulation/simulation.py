"""Base of all workloads: phases of a seed's run, its findings, and its silent end.

Invariant: any exception that reaches the loop is a finding, not only those of the checkers.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from simulation.checkers import Violation
from simulation.loop import SimLoop
from simulation.trace import LogLines, Trace

MAX_ROUNDS_OF_CANCELLING = 100


@dataclass
class RunOutcome:
    """Results of a run, common to all workloads."""

    seed: int
    description: str
    violation: str | None = None
    trace_hash: str = ""
    events: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    rebalances: int = 0
    commits: int = 0
    history: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """The results in one line."""
        return f"{self.rebalances} partitions taken, {self.commits} offsets committed"


class Simulation(ABC):
    """The world of one seed; a workload defines its clients and checks."""

    def __init__(self, seed: int, cpu_time: Callable[[], float]) -> None:
        """`cpu_time` in seconds, only for the report."""
        self.seed = seed
        self._cpu_time = cpu_time
        self.loop = SimLoop()
        self.trace = Trace(self.loop)

    @abstractmethod
    def _run(self) -> None:
        """Execute the phases of the run; raises findings."""

    @abstractmethod
    def _abandon(self) -> None:
        """End all nodes, without a stop."""

    def _run_into(self, outcome: RunOutcome) -> None:
        """Run to the end, or to the first violation, and fill in the common results."""
        handler = LogLines(self.trace)
        logger = logging.getLogger("ottla")
        propagated, logger.propagate = logger.propagate, False
        logger.addHandler(handler)
        started_s = self._cpu_time()
        try:
            self._run()
            gc.collect()  # a failed task without a waiter reports its error when it is collected
            if self.loop.failures:
                raise self.loop.failures[0]
        except Exception as error:
            outcome.violation = f"{type(error).__name__}: {error}"
            self.trace.remark("finding", outcome.violation)
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagated
            self._end()
        outcome.cpu_s = self._cpu_time() - started_s
        outcome.trace_hash = self.trace.digest()
        outcome.events = self.loop.events
        outcome.virtual_s = self.loop.time()
        outcome.history = self.trace.lines() if outcome.violation else []

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start a task; its failure ends the run."""
        task = self.loop.create_task(work)
        self._follow(task)
        return task

    def _follow(self, task: asyncio.Task[None]) -> None:
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.loop.failures.append(error)

    def _finish(self, work: Coroutine[None, None, None], within_s: float, otherwise: str) -> None:
        """Run the world until `work` is done; raises Violation with `otherwise` after the limit."""
        task = self._begin(work)
        self._wait(otherwise, within_s, task.done)
        task.result()

    def _wait(self, otherwise: str, within_s: float, condition: Callable[[], bool]) -> None:
        """Run the world until the condition holds."""
        if not self.loop.run_until(self.loop.time() + within_s, condition):
            raise Violation(f"{otherwise} after {within_s:.0f} s")

    def _end(self) -> None:
        """Destroy the world silently: pending tasks would log errors when collected."""
        self._abandon()
        for task in asyncio.all_tasks(self.loop.as_asyncio()):
            task.cancel()
        for _ in range(MAX_ROUNDS_OF_CANCELLING):
            if not asyncio.all_tasks(self.loop.as_asyncio()):
                break
            with contextlib.suppress(Exception):
                self.loop.run_until(self.loop.time())
        self.loop.failures.clear()
        self.loop.close()
