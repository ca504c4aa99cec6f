"""A broker's life in its cluster as `server.broker` sees it, whoever keeps the cluster: a quorum, or ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.common.kafka.ids import Uuid

LifeDone = Callable[[BaseException | None], None]


class BrokerLife(Protocol):
    """In the order of the calls; all of them belong to the loop."""

    @property
    def broker_epoch(self) -> int:
        """Of the registration that holds; -1 before the first."""
        ...

    def start(self, done: LifeDone) -> None:
        """Register: `done(None)` once the metadata published here has it, OperatorError where that can't be."""
        ...

    def serve(self, done: LifeDone) -> None:
        """Everything is open: `done(None)` once the others count on this broker."""
        ...

    def shut_down(self, done: LifeDone) -> None:
        """Have others lead what this broker leads; `done(None)` when they do, or nobody is there to see to it."""
        ...

    def directory_failed(self, directory_id: Uuid) -> None:
        """A data directory of several is lost."""
        ...

    def end(self) -> None:
        """Ask for nothing any more."""
        ...
