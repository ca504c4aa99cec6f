"""Pool of objects that a Python worker of Spark reuses across tasks, such as connected clients, by their settings.

A worker has one task at a time, and tasks of any query. **Invariants:** a pooled object is never in use: a task takes
it out, and returns it only after success; another task gets it only by the same key, which contains every setting and
the query; the pool has a maximum size and drops the oldest first. A worker that dies loses nothing: a new client
fetches again all that the old one knew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class LruPool(Generic[T]):
    """See the module. `close` is called for an object that is dropped."""

    def __init__(self, max_size: int, close: Callable[[T], None] = lambda _: None) -> None:
        self._max_size = max_size
        self._close = close
        self._held: OrderedDict[Hashable, T] = OrderedDict()

    def take(self, key: Hashable) -> T | None:
        """Remove and return the object of that key, which the caller then owns; None without one."""
        return self._held.pop(key, None)

    def keep(self, key: Hashable, one: T) -> None:
        """Pool an object until it is taken or newer ones displace it. An older one of the same key is dropped."""
        before = self._held.pop(key, None)
        if before is not None:
            self._close(before)
        self._held[key] = one
        while len(self._held) > self._max_size:
            _, oldest = self._held.popitem(last=False)
            self._close(oldest)
