"""Answers that are given once, and one answer gathered from several shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ottla.common.errors import KafkaError

R = TypeVar("R")


class Reply(Generic[R]):
    """A response that is due later. It may be tried from several sides (the group, a failed append): the first wins."""

    __slots__ = ("_done", "outcome")

    def __init__(self, done: Callable[[R], None]) -> None:
        self._done: Callable[[R], None] | None = done
        self.outcome: Callable[[KafkaError | None], None] | None = None
        """Called by `settle`: what to do once the records of the operation are committed, or failed."""

    def answer(self, response: R) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(response)

    def settle(self, error: KafkaError | None) -> None:
        """The operation's records are committed (None) or will not be; only the first call counts."""
        outcome, self.outcome = self.outcome, None
        if outcome is not None:
            outcome(error)


class ResponseCollector(Generic[R]):
    """Parts of one response that arrive one by one, each for its place in the request."""

    __slots__ = ("_complete", "_missing", "_parts")

    def __init__(self, count: int, complete: Callable[[list[R]], None]) -> None:
        """`complete` is called once with all parts in order: by the last `put`, or here when none are due."""
        self._parts: dict[int, R] = {}
        self._missing = count
        self._complete = complete
        if not count:
            complete([])

    def put(self, index: int, part: R) -> None:
        """Add one part; each index is put exactly once."""
        self._parts[index] = part
        self._missing -= 1
        if not self._missing:
            self._complete([self._parts[each] for each in sorted(self._parts)])
