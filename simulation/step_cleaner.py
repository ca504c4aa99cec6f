"""A log cleaner worker in the broker's own process, which runs its pass in scheduled steps.

A step reads and writes at one point of virtual time, and ends at the next group of segments; the log's owner, clients
and faults run in between. A process that dies ends its pass, as a real worker ends with its broker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

from ottla.common.errors import InvariantError
from ottla.common.platform.disk import Disk
from ottla.storage.compaction.cleaning import CleanedGroup
from ottla.storage.compaction.worker import RoundFailure, WorkerReport, WorkerTask, run_round


class StepWorker:
    """Implements `ottla.storage.compaction.worker.Worker`."""

    __slots__ = ("_disk", "_later", "_report", "_round", "_stopped")

    def __init__(self, disk: Disk, later: Callable[[Callable[[], None]], object]) -> None:
        """`later(step)` runs a step at some later time, never during its call."""
        self._disk = disk
        self._later = later
        self._round: Generator[WorkerReport, None, None] | None = None
        self._report: Callable[[WorkerReport], None] | None = None
        self._stopped = False

    def begin(self, task: WorkerTask, report: Callable[[WorkerReport], None]) -> None:
        """See `Worker`."""
        if self._round is not None:
            raise InvariantError(f"a pass over {task.directory} begins before the last one has ended")
        self._round = run_round(task, self._disk, lambda size: None)
        self._report = report
        self._stopped = False
        self.resume()

    def resume(self) -> None:
        """See `Worker`."""
        self._later(partial(self._step, self._round))

    def stop(self) -> None:
        """See `Worker`."""
        if not self._stopped:
            self._stopped = True
            self.resume()

    def _step(self, of: Generator[WorkerReport, None, None] | None) -> None:
        """A pass that was stopped meanwhile sends no late result."""
        if self._round is None or self._round is not of or self._report is None:
            return
        result = RoundFailure("stopped", lacks_room=False) if self._stopped else next(self._round)
        if not isinstance(result, CleanedGroup):
            self._round.close()
            self._round = None
        self._report(result)
