"""A worker of the log cleaner in the broker's own process: a step of its round whenever it is let.

A step reads and writes at one moment of virtual time, and goes as far as the next group of segments; the log's owner,
clients and faults come in between. A process that dies takes its round with it, as the real one's ends with the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

from ottla.common.errors import InvariantError
from ottla.common.platform.disk import Disk
from ottla.storage.compaction.cleaning import CleanedGroup
from ottla.storage.compaction.worker import CleaningTask, RoundFailure, Told, run_round


class StepWorker:
    """Implements `ottla.storage.compaction.worker.Worker`."""

    __slots__ = ("_disk", "_later", "_round", "_stopped", "_tell")

    def __init__(self, disk: Disk, later: Callable[[Callable[[], None]], object]) -> None:
        """`later(step)` runs a step at some time, never during its call."""
        self._disk = disk
        self._later = later
        self._round: Generator[Told, None, None] | None = None
        self._tell: Callable[[Told], None] | None = None
        self._stopped = False

    def begin(self, task: CleaningTask, tell: Callable[[Told], None]) -> None:
        """See `Worker`."""
        if self._round is not None:
            raise InvariantError(f"a round over {task.directory} begins before the last one has ended")
        self._round = run_round(task, self._disk, lambda size: None)
        self._tell = tell
        self._stopped = False
        self.go_on()

    def go_on(self) -> None:
        """See `Worker`."""
        self._later(partial(self._step, self._round))

    def stop(self) -> None:
        """See `Worker`."""
        if not self._stopped:
            self._stopped = True
            self.go_on()

    def _step(self, of: Generator[Told, None, None] | None) -> None:
        """Of a round that was stopped meanwhile, nothing comes late."""
        if self._round is None or self._round is not of or self._tell is None:
            return
        told = RoundFailure("stopped", lacks_room=False) if self._stopped else next(self._round)
        if not isinstance(told, CleanedGroup):
            self._round.close()
            self._round = None
        self._tell(told)
