"""A dict that reverts with its registry and can be read as of an offset.

It is a dict: current reads run at C speed and cost no memory beyond it. Writes record the old value in the newest
snapshot, once for each key and snapshot.

Invariant: every method that changes entries records them first. Iteration follows insertion, as in any dict; an entry
restored by a revert is moved to the end, so nothing that reaches the wire, the log or a decision may depend on the
order without sorting. Values are not copied: one that is itself mutable must be timeline state too, or be replaced
instead of changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar, cast

from ottla.timeline.registry import SnapshotRegistry

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class _Absent:
    """Marks "had no entry" in a delta."""

    __slots__ = ()


_ABSENT: Final[Any] = _Absent()
_MISSING: Final[Any] = _Absent()


class TimelineDict(dict[K, V], Generic[K, V]):
    """Entries of one state machine. `TimelineDict(registry)` starts empty."""

    __slots__ = ("_registry",)

    def __init__(self, registry: SnapshotRegistry) -> None:
        super().__init__()
        self._registry = registry

    # --- current state: changes ------------------------------------------------------------------------------------

    def __setitem__(self, key: K, value: V) -> None:
        # The code of `_note`, inlined: this is called for every offset that is committed or loaded.
        snapshot = self._registry.latest
        if snapshot is not None:
            entry = snapshot.deltas.get(id(self))
            if entry is None:
                snapshot.deltas[id(self)] = (self, {key: self.get(key, _ABSENT)})
            elif key not in entry[1]:
                entry[1][key] = self.get(key, _ABSENT)
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._note(key)
        dict.__delitem__(self, key)

    def pop(self, key: K, default: Any = _MISSING) -> Any:
        """See `dict.pop`."""
        if key not in self:
            if default is _MISSING:
                raise KeyError(key)
            return default
        self._note(key)
        return dict.pop(self, key)

    def popitem(self) -> tuple[K, V]:
        """Remove the last entry; raises KeyError if there is none."""
        for key in reversed(self):
            return key, self.pop(key)
        raise KeyError("the dict is empty")

    def setdefault(self, key: K, default: V) -> V:
        """See `dict.setdefault`; the default is required."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, entries: Mapping[K, V] | Iterable[tuple[K, V]]) -> None:  # type: ignore[override]
        """Set several entries."""
        for key, value in entries.items() if isinstance(entries, Mapping) else entries:
            self[key] = value

    def __ior__(self, entries: Mapping[K, V] | Iterable[tuple[K, V]]) -> TimelineDict[K, V]:  # type: ignore[override,misc]
        self.update(entries)
        return self

    def clear(self) -> None:
        """Remove all entries; takes time proportional to their number if a snapshot has to record them."""
        if self._registry.latest is not None:
            for key in self:
                self._note(key)
        dict.clear(self)

    # --- as of an offset -------------------------------------------------------------------------------------------
    # All raise InvariantError unless the registry has a snapshot of exactly that offset.

    def get_at(self, key: K, offset: int, default: D | None = None) -> V | D | None:
        """Return the value that `key` had at `offset`."""
        own = id(self)
        for snapshot in self._registry.since(offset):
            entry = snapshot.deltas.get(own)
            if entry is not None:
                value = entry[1].get(key, _MISSING)
                if value is not _MISSING:
                    return default if value is _ABSENT else cast("V", value)
        return self.get(key, default)

    def items_at(self, offset: int) -> Iterator[tuple[K, V]]:
        """Entries as of `offset`; nothing may change while they are iterated."""
        overlay = self._overlay(offset)
        if not overlay:
            return iter(self.items())
        return self._merged(overlay)

    def values_at(self, offset: int) -> Iterator[V]:
        """Values as of `offset`; nothing may change while they are iterated."""
        return (value for _, value in self.items_at(offset))

    # --- for the registry ------------------------------------------------------------------------------------------

    def revert(self, delta: Mapping[K, V]) -> None:
        """Put back the entries that `delta` holds."""
        for key, value in delta.items():
            if value is _ABSENT:
                dict.pop(self, key, None)
            else:
                dict.__setitem__(self, key, value)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _note(self, key: K) -> None:
        snapshot = self._registry.latest
        if snapshot is None:
            return
        entry = snapshot.deltas.get(id(self))
        if entry is None:
            snapshot.deltas[id(self)] = (self, {key: self.get(key, _ABSENT)})
        elif key not in entry[1]:
            entry[1][key] = self.get(key, _ABSENT)

    def _overlay(self, offset: int) -> dict[K, V]:
        """Return the differences to the current state: values (or _ABSENT) as of `offset`."""
        own = id(self)
        overlay: dict[K, V] = {}
        for snapshot in reversed(self._registry.since(offset)):
            entry = snapshot.deltas.get(own)
            if entry is not None:
                overlay.update(entry[1])
        return overlay

    def _merged(self, overlay: dict[K, V]) -> Iterator[tuple[K, V]]:
        for key, value in self.items():
            value = overlay.get(key, value)
            if value is not _ABSENT:
                yield key, value
        for key, value in overlay.items():
            if value is not _ABSENT and key not in self:
                yield key, value
