"""What a Python worker of Spark keeps from one task to the next: clients that are connected, by all that made them.

A worker has one task at a time, and tasks of any query. **Invariants:** what is kept is in nobody's use: a task takes
it out, and gives it back only when all went well; another task has it only by the same key, which holds every setting
and the query; there are at most as many as was said, the oldest go first. A worker that dies loses nothing by it, for
what a client knows is nothing that a new one would not be told.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class LruPool(Generic[T]):
    """See the module. `let_go` ends one that has to go."""

    def __init__(self, most: int, let_go: Callable[[T], None] = lambda _: None) -> None:
        self._most = most
        self._let_go = let_go
        self._held: OrderedDict[Hashable, T] = OrderedDict()

    def take(self, key: Hashable) -> T | None:
        """The one that was kept by that key, which is the caller's now."""
        return self._held.pop(key, None)

    def keep(self, key: Hashable, one: T) -> None:
        """Until it is taken, or others came. The one that was there goes: it is older."""
        before = self._held.pop(key, None)
        if before is not None:
            self._let_go(before)
        self._held[key] = one
        while len(self._held) > self._most:
            _, oldest = self._held.popitem(last=False)
            self._let_go(oldest)
