"""Answers that are given once, and one answer gathered from several shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

R = TypeVar("R")


class Reply(Generic[R]):
    """A response that is due. It may be tried from several sides (the group, a failed append): the first one wins."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[R], None]) -> None:
        self._done: Callable[[R], None] | None = done

    @property
    def due(self) -> bool:
        return self._done is not None

    def answer(self, response: R) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(response)


class Gathering(Generic[R]):
    """Parts of one response from several shards, each in the place where the request asked for it."""

    __slots__ = ("_complete", "_missing", "_parts")

    def __init__(self, count: int, complete: Callable[[list[R]], None]) -> None:
        """`complete` is called with all parts in order: at the last `put`, or at once by `start` if none are due."""
        self._parts: list[R | None] = [None] * count
        self._missing = count
        self._complete = complete

    def put(self, index: int, part: R) -> None:
        """Add one part; each index is put exactly once."""
        self._parts[index] = part
        self._missing -= 1
        if not self._missing:
            self._complete([each for each in self._parts if each is not None])

    def complete_if_empty(self) -> None:
        if not self._parts:
            self._complete([])
