"""One-shot replies, and a collector for responses that several shards contribute to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ottla.common.errors import KafkaError

R = TypeVar("R")


class Reply(Generic[R]):
    """A response that is sent later. Several paths may answer it (the group, a failed append): the first one wins."""

    __slots__ = ("_done", "outcome")

    def __init__(self, done: Callable[[R], None]) -> None:
        self._done: Callable[[R], None] | None = done
        self.outcome: Callable[[KafkaError | None], None] | None = None
        """Called by `settle` once the operation's records are committed or failed."""

    def answer(self, response: R) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(response)

    def settle(self, error: KafkaError | None) -> None:
        """Report that the operation's records are committed (None) or failed; only the first call counts."""
        outcome, self.outcome = self.outcome, None
        if outcome is not None:
            outcome(error)


class ResponseCollector(Generic[R]):
    """Collects the parts of one response, each at its index in the request."""

    __slots__ = ("_complete", "_missing", "_parts")

    def __init__(self, count: int, complete: Callable[[list[R]], None]) -> None:
        """`complete` is called once with all parts in order: by the last `put`, or here if `count` is 0."""
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
