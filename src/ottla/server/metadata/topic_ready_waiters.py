"""Waiters for created topics: notified when this broker knows a topic and has opened its partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.common.platform.clock import Scheduler, TimerHandle
from ottla.metadata.image import MetadataImage
from ottla.replica.manager import ReplicaManager

TIMEOUT_S = 5.0
"""Maximum wait; the client is answered afterwards, and retries."""


class _Waiter:
    """One wait for some topics."""

    __slots__ = ("done", "names", "timer")

    def __init__(self, names: Sequence[str], done: Callable[[], None]) -> None:
        self.names = names
        self.done = done
        self.timer: TimerHandle | None = None


class TopicReadyWaiters:
    """Gets every image from `server.broker`, after the replicas have applied it."""

    __slots__ = ("_replicas", "_scheduler", "_waiters")

    def __init__(self, replicas: ReplicaManager, scheduler: Scheduler) -> None:
        self._replicas = replicas
        self._scheduler = scheduler
        self._waiters: list[_Waiter] = []

    def wait(self, image: MetadataImage, names: Sequence[str], done: Callable[[], None]) -> None:
        """Call `done` once all of `names` are in the image and opened; possibly before this returns."""
        if all(name in image.topics for name in names):
            self._replicas.opening.when_opened(done)
            return
        waiter = _Waiter(names, done)
        waiter.timer = self._scheduler.call_later(TIMEOUT_S, self._gave_up, waiter)
        self._waiters.append(waiter)

    def follow(self, image: MetadataImage) -> None:
        """Another image was published."""
        if not self._waiters:
            return
        arrived = [waiter for waiter in self._waiters if all(name in image.topics for name in waiter.names)]
        for waiter in arrived:
            self._waiters.remove(waiter)
            if waiter.timer is not None:
                waiter.timer.cancel()
            self._replicas.opening.when_opened(waiter.done)

    def _gave_up(self, waiter: _Waiter) -> None:
        self._waiters.remove(waiter)
        waiter.done()

    def stop(self) -> None:
        """Release all waiters."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.timer is not None:
                waiter.timer.cancel()
            waiter.done()
