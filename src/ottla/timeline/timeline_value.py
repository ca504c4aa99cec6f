"""One value that goes back with its registry and can be read as of an offset.

The value is not copied: a mutable one is replaced, never changed in place.
"""

from __future__ import annotations

from typing import Generic, TypeVar, cast

from ottla.timeline.registry import SnapshotRegistry

V = TypeVar("V")


class TimelineValue(Generic[V]):
    """A field of a state machine."""

    __slots__ = ("_registry", "_value")

    def __init__(self, registry: SnapshotRegistry, initial: V) -> None:
        """`initial` is also the value as of offsets before this object was created."""
        self._registry = registry
        self._value = initial

    def __repr__(self) -> str:
        return f"TimelineValue({self._value!r})"

    @property
    def value(self) -> V:
        """The current value."""
        return self._value

    @value.setter
    def value(self, value: V) -> None:
        snapshot = self._registry.latest
        if snapshot is not None and id(self) not in snapshot.deltas:
            snapshot.deltas[id(self)] = (self, self._value)
        self._value = value

    def value_at(self, offset: int) -> V:
        """The value at `offset`. Raises InvariantError unless the registry has a snapshot of exactly that offset."""
        own = id(self)
        for snapshot in self._registry.since(offset):
            entry = snapshot.deltas.get(own)
            if entry is not None:
                return cast("V", entry[1])
        return self._value

    def revert(self, delta: V) -> None:
        """Put back the value of a snapshot; for the registry."""
        self._value = delta
