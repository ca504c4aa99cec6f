"""The engine that executes the tasks of a run: this machine without Spark, or Spark.

Plan, tasks, lease, dead letters and commit are the same on both. The choice is made for each plan, before the table is
created:

1. An engine that the caller requests is taken.
2. Options of Spark (a master, settings, an environment) select Spark.
3. A plan of at most LOCAL_MAX_BYTES runs on this machine, a larger one on Spark if it is installed.

A local run of at most IN_PROCESS_BYTES that fits one task is executed by this process, a larger one by worker
processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from ottla.pipeline.local.pool import LocalSession, open_local
from ottla.pipeline.spark.engines import AUTO, LOCAL, SPARK

LOCAL_MAX_BYTES = 4 << 30
"""Stored bytes that are loaded without Spark unless an engine is requested."""
IN_PROCESS_BYTES = 32 << 20
"""Stored bytes that take less time than the start of worker processes."""

OpenSession = Callable[[], AbstractContextManager[Any]]
"""Opens a Spark session or a `LocalSession`."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine and the reason for its choice, for the summary; the reason is empty if there was no choice."""

    name: str
    reason: str
    open_session: OpenSession


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """Chooses the engine of each plan."""

    requested: str = AUTO
    """`auto`, `local` or `spark`."""
    spark_option: str = ""
    """An option of the command line that only Spark has; `auto` takes Spark then."""
    workers: int = 1
    """Maximum number of local worker processes."""
    attempts: int = 4
    """Attempts at each task of a local run."""
    open_spark: OpenSession
    require_spark: Callable[[], object]
    """Raises OperatorError if Spark can't start."""
    open_local: Callable[[int, int], AbstractContextManager[LocalSession]] = open_local
    """Opens a local session with that number of workers and of attempts."""

    def choose(self, size_bytes: int, task_bytes: int) -> Engine:
        """The engine for a plan of `size_bytes` stored bytes with up to `task_bytes` a task.

        Raises OperatorError if it is Spark and Spark can't start.
        """
        name, reason = self._name(size_bytes)
        if name == LOCAL:
            is_small = size_bytes <= min(IN_PROCESS_BYTES, task_bytes)
            return Engine(LOCAL, reason, partial(self.open_local, 0 if is_small else self.workers, self.attempts))
        self.require_spark()
        return Engine(SPARK, reason, self.open_spark)

    def _name(self, size_bytes: int) -> tuple[str, str]:
        if self.requested != AUTO:
            return self.requested, f"--engine {self.requested}"
        if self.spark_option:
            return SPARK, f"{self.spark_option} is set"
        limit = f"{LOCAL_MAX_BYTES >> 30} GiB"
        if size_bytes <= LOCAL_MAX_BYTES:
            return LOCAL, f"at most {limit} to read"
        if find_spec("pyspark") is None:
            return LOCAL, "Spark is not installed"
        return SPARK, f"more than {limit} to read"


def engine_for(given: OpenSession | EngineChoice, size_bytes: int, task_bytes: int) -> Engine:
    """The engine for a plan, as `EngineChoice.choose`; a function that opens a session is taken as Spark."""
    if isinstance(given, EngineChoice):
        return given.choose(size_bytes, task_bytes)
    return Engine(SPARK, "", given)


@contextmanager
def noted_session(engine: Engine, notes: list[str]) -> Iterator[Any]:
    """Open the engine's session; facts about a local one are added to `notes` when the block ends."""
    with engine.open_session() as session:
        yield session
        if isinstance(session, LocalSession):
            notes += session.notes
