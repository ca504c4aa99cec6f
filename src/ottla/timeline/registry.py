"""Snapshots of all timeline objects of one state machine, named by log offsets.

A snapshot of offset N is the state after every record below N. Creating one costs nothing: the objects store their
current state as plain Python values, and a snapshot only collects, for each object that changes afterwards, the
previous values of changed entries (a delta). So current reads cost as much as a dict, an unchanged entry costs no extra
byte, and a state machine with a log that is always committed has one snapshot with an almost empty delta.

To read as of N, the deltas of N and of all later snapshots are consulted, oldest first. To revert to N they are
applied, newest first.

Invariants: offsets of the snapshots rise strictly; changes are recorded in the newest snapshot only; the delta of an
entry is recorded at its first change after that snapshot. The registry knows nothing of logs or time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ottla.common.errors import InvariantError


class Revertible(Protocol):
    """Interface of a timeline object for the registry."""

    def revert(self, delta: Any) -> None:
        """Restore the values in `delta`, which this object created; records nothing."""
        ...


class Snapshot:
    """State as of `offset`, as differences to later states."""

    __slots__ = ("deltas", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.deltas: dict[int, tuple[Revertible, Any]] = {}
        """By identity of the object, which is referenced here: it may be removed from the current state."""

    def __repr__(self) -> str:
        return f"Snapshot(offset={self.offset}, objects={len(self.deltas)})"


class SnapshotRegistry:
    """Owner of the snapshots. Timeline objects are created with it and belong to it."""

    __slots__ = ("_snapshots", "latest")

    def __init__(self) -> None:
        self._snapshots: list[Snapshot] = []
        self.latest: Snapshot | None = None
        """Delta of the newest snapshot; None before the first one, when changes can't be reverted."""

    def offsets(self) -> list[int]:
        """Offsets of all snapshots, ascending."""
        return [snapshot.offset for snapshot in self._snapshots]

    def snapshot(self, offset: int) -> None:
        """Create a snapshot of the current state at `offset`, unless the newest one has that offset.

        Raises InvariantError below the newest snapshot.
        """
        latest = self.latest
        if latest is not None:
            if offset == latest.offset:
                return
            if offset < latest.offset:
                raise InvariantError(f"a snapshot of offset {offset} after one of {latest.offset}")
        self.latest = Snapshot(offset)
        self._snapshots.append(self.latest)

    def revert_to(self, offset: int) -> None:
        """Revert to the state of `offset` and drop later snapshots. Raises InvariantError if unknown."""
        start = self._index(offset)
        for snapshot in reversed(self._snapshots[start:]):
            for owner, delta in snapshot.deltas.values():
                owner.revert(delta)
        del self._snapshots[start + 1 :]
        self.latest = self._snapshots[start]
        self.latest.deltas = {}

    def delete_up_to(self, offset: int) -> None:
        """Drop snapshots below `offset`: the state can't revert to them any more."""
        snapshots = self._snapshots
        count = 0
        while count < len(snapshots) and snapshots[count].offset < offset:
            count += 1
        if count:
            del snapshots[:count]
            if not snapshots:
                self.latest = None

    def floor(self, offset: int) -> int | None:
        """Return the greatest snapshot offset that is not above `offset`, or None."""
        for snapshot in reversed(self._snapshots):
            if snapshot.offset <= offset:
                return snapshot.offset
        return None

    def since(self, offset: int) -> Sequence[Snapshot]:
        """Return the snapshot of `offset` and all later ones, ascending. Raises InvariantError if unknown."""
        snapshots = self._snapshots
        if snapshots and snapshots[0].offset == offset:
            return snapshots
        return snapshots[self._index(offset) :]

    def _index(self, offset: int) -> int:
        for index in range(len(self._snapshots) - 1, -1, -1):
            if self._snapshots[index].offset == offset:
                return index
        raise InvariantError(f"no snapshot of offset {offset}, only of {self.offsets()}")
