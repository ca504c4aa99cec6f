"""Purgatory: parked requests, such as a fetch without records or a produce that waits for its acknowledgement.

An operation is watched under one or more `Watch` objects (a partition owns one for fetches and one for produces). A
change touches the watch. A single callback sweeps all touched watches of one tick of the loop, and tries an operation
once even if it is watched under many of them. So a burst of appends costs one wake-up, however many consumers wait.

Subscribers are not parked: they are partitions of fetch sessions without news until their watch is touched. A touch
notifies each of them at once and removes it; so a session of ten thousand partitions waits at its own watch and reads
only the touched partitions.

Invariants: an operation finishes exactly once (completed, expired or cancelled) and is then watched nowhere. The number
of operations is bounded by the number of connections: each has one request in progress (`common.platform.channel`).
Retry policies, and the work of an operation when it is tried, are not defined here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ottla.common.errors import InvariantError
from ottla.common.platform.clock import Scheduler, TimerHandle


class Subscriber(Protocol):
    """Receiver of the next change at a watch, without waiting there."""

    def wake(self) -> Watch:
        """The watch was touched, and removed this subscriber. The returned watch is touched next."""
        ...


class Watch:
    """Operations that wait for the same change."""

    __slots__ = ("force", "subscribers", "touched", "waiters")

    def __init__(self) -> None:
        self.waiters: dict[DelayedOperation, None] = {}
        self.subscribers: dict[Subscriber, None] | None = None
        """In order of arrival; None while empty, since most watches never have one."""
        self.touched = False
        self.force = False

    def subscribe(self, subscriber: Subscriber) -> None:
        """Notify `subscriber` of the next touch."""
        if self.subscribers is None:
            self.subscribers = {}
        self.subscribers[subscriber] = None

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Remove `subscriber`, if present."""
        if self.subscribers is not None:
            self.subscribers.pop(subscriber, None)
            self.subscribers = self.subscribers or None


class DelayedOperation:
    """Base of parked operations. Subclasses never raise from these methods for an error that a client can cause."""

    __slots__ = ("finished", "timer", "watches")

    def __init__(self) -> None:
        self.watches: tuple[Watch, ...] = ()
        self.timer: TimerHandle | None = None
        self.finished = False

    def try_complete(self, force: bool) -> bool:
        """Answer if the awaited state is reached, and return whether; `force` answers with the current state."""
        raise NotImplementedError

    def expire(self) -> None:
        """Timeout: answer with the current state."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        """A defect surfaced in one of the methods above: answer or close."""
        raise NotImplementedError


class Failures(Protocol):
    """Receiver of defects found in a sweep."""

    def __call__(self, where: str, error: Exception) -> None: ...


class Purgatory:
    """Parked operations of one broker."""

    __slots__ = ("_failures", "_operations", "_scheduled", "_scheduler", "_touched")

    def __init__(self, scheduler: Scheduler, failures: Failures) -> None:
        self._scheduler = scheduler
        self._failures = failures
        self._touched: list[Watch] = []
        self._scheduled = False
        self._operations: dict[DelayedOperation, None] = {}

    def __len__(self) -> int:
        return len(self._operations)

    def park(self, operation: DelayedOperation, watches: Iterable[Watch], timeout_s: float) -> None:
        """Park `operation` until it completes, expires after `timeout_s` seconds or is cancelled."""
        if operation.finished or operation.watches:
            raise InvariantError("an operation is parked once")
        operation.watches = tuple(watches)
        for watch in operation.watches:
            watch.waiters[operation] = None
        self._operations[operation] = None
        operation.timer = self._scheduler.call_later(timeout_s, self._expire, operation)

    def touch(self, watch: Watch, *, force: bool = False) -> None:
        """Report a change to the operations at `watch`; they are tried at the end of this tick of the loop."""
        subscribers = watch.subscribers
        if subscribers is not None:
            watch.subscribers = None
            for subscriber in subscribers:
                self.touch(subscriber.wake(), force=force)
        if not watch.waiters:
            return
        if force:
            watch.force = True
        if watch.touched:
            return
        watch.touched = True
        self._touched.append(watch)
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.call_soon(self._sweep)

    def cancel(self, operation: DelayedOperation) -> None:
        """Drop an operation without an answer (its connection is closed)."""
        if not operation.finished:
            self._forget(operation)

    def expire_all(self) -> None:
        """Answer all operations with the current state, for the shutdown."""
        for operation in list(self._operations):
            self._expire(operation)

    def _sweep(self) -> None:
        touched, self._touched = self._touched, []
        self._scheduled = False
        candidates: dict[DelayedOperation, bool] = {}
        for watch in touched:
            watch.touched = False
            force, watch.force = watch.force, False
            for operation in watch.waiters:
                candidates[operation] = force or candidates.get(operation, False)
        for operation, force in candidates.items():
            if operation.finished:
                continue
            try:
                if operation.try_complete(force):
                    self._forget(operation)
            except Exception as error:
                self._fail(operation, error)

    def _expire(self, operation: DelayedOperation) -> None:
        if operation.finished:
            return
        self._forget(operation)
        try:
            operation.expire()
        except Exception as error:
            self._fail(operation, error)

    def _fail(self, operation: DelayedOperation, error: Exception) -> None:
        self._forget(operation)
        if isinstance(error, InvariantError):
            raise error
        self._failures(type(operation).__name__, error)
        try:
            operation.fail(error)
        except Exception as second:
            self._failures(type(operation).__name__, second)

    def _forget(self, operation: DelayedOperation) -> None:
        operation.finished = True
        for watch in operation.watches:
            watch.waiters.pop(operation, None)
        self._operations.pop(operation, None)
        if operation.timer is not None:
            operation.timer.cancel()
            operation.timer = None
