"""Interface of a broker's lifecycle for `server.broker`, implemented for a quorum and for ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.common.kafka.ids import Uuid

LifeDone = Callable[[BaseException | None], None]


class BrokerLife(Protocol):
    """A broker's lifecycle, in the order of the calls; all of them run on the loop.

    Implementations: in `server.lifecycle.lifecycle`, `server.zookeeper.migration_lifecycle` and
    `server.zookeeper.zookeeper_node`.
    """

    @property
    def broker_epoch(self) -> int:
        """Epoch of the current registration; -1 before the first."""
        ...

    def start(self, done: LifeDone) -> None:
        """Register: `done(None)` once the metadata published here has it.

        OperatorError if the cluster refuses it, NotJoinedInTimeError if no controller admits it in time.
        """
        ...

    def serve(self, done: LifeDone) -> None:
        """All partitions are open: `done(None)` once the cluster uses this broker."""
        ...

    def shut_down(self, done: LifeDone) -> None:
        """Move this broker's leaderships; `done(None)` afterwards, or if no controller can move them."""
        ...

    def directory_failed(self, directory_id: Uuid) -> None:
        """One of several data directories is lost."""
        ...

    def end(self) -> None:
        """Stop sending requests."""
        ...
