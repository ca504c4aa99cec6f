"""Engines that concurrent loads share: one Spark session, and worker processes for one load at a time.

Worker processes already use all CPUs for one load. Loads that run in the driver's process do not wait for them. The
Spark session starts when the first load needs it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any

from ottla.common.errors import OttlaError
from ottla.pipeline.load.engine import EngineChoice
from ottla.pipeline.local.pool import LocalSession, open_local


class SharedEngines:
    """A context manager that ends the Spark session; loads choose their engines by `choice`, in any thread."""

    def __init__(self, choice: EngineChoice, call_in_main: Callable[[Callable[[], None]], object]) -> None:
        """`call_in_main` lets the main thread call a function: Spark starts there, since signals arrive there."""
        self.choice = replace(
            choice,
            open_local=self._open_local,
            open_spark=self._open_spark,
            require_spark=functools.cache(choice.require_spark),
        )
        self._start_spark = choice.open_spark
        self._call_in_main = call_in_main
        self._stack = ExitStack()
        self._spark: Future[Any] | None = None
        self._spark_lock = threading.Lock()
        self._workers_lock = threading.Lock()
        self._workers: LocalSession | None = None

    def __enter__(self) -> SharedEngines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    def cancel(self) -> None:
        """Let the running loads fail at their current step; call it in the main thread."""
        if self._spark is not None and not self._spark.done():
            self._spark.set_exception(OttlaError("Spark was interrupted while it started"))
        if self._workers is not None:
            self._workers.cancel()

    @contextmanager
    def _open_local(self, workers: int, attempts: int) -> Iterator[LocalSession]:
        if not workers:
            with open_local(workers, attempts) as session:
                yield session
            return
        with self._workers_lock, open_local(workers, attempts) as session:
            self._workers = session
            yield session

    @contextmanager
    def _open_spark(self) -> Iterator[Any]:
        with self._spark_lock:
            if self._spark is None:
                self._spark = started = Future[Any]()
                self._call_in_main(lambda: self._start(started))
        yield self._spark.result()

    def _start(self, started: Future[Any]) -> None:
        try:
            started.set_result(self._stack.enter_context(self._start_spark()))
        except OttlaError as error:
            started.set_exception(error)
