"""What the runtime runs: a replayed state machine over one partition of an internal topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from ottla.coordinator.runtime.timer import CoordinatorTimer
from ottla.timeline import SnapshotRegistry

R_contra = TypeVar("R_contra", contravariant=True)
S = TypeVar("S")


class CoordinatorShard(Protocol[R_contra]):
    """One partition's state. Its hard state is made of timeline objects of the registry that it was made with, and
    changes in `replay` only; the runtime takes the snapshots and reverts."""

    def replay(self, offset: int, record: R_contra, producer_id: int, producer_epoch: int) -> None:
        """Apply one record, while loading and right before it is appended at `offset`.

        Producer id and epoch are those of the open transaction that it belongs to, both -1 where it counts at once.
        Raises nothing for a record that was ever written; what it raises fails the batch or the load.
        """
        ...

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """Apply the end of a transaction to the records of its producer that were replayed before.

        The epoch may be above that of the records (KIP-890). A marker without such records changes nothing.
        """
        ...

    def loaded(self) -> None:
        """Everything was replayed and operations follow: start timers."""
        ...

    def unloaded(self) -> None:
        """This broker coordinates no more: answer whoever waits in soft state with NOT_COORDINATOR.

        Timers are gone and nothing can be written; the shard is dropped afterwards. Also called for a shard whose load
        did not finish.
        """
        ...

    def release(self) -> Iterator[None]:
        """After `unloaded`: let go of everything that there may be much of, in steps that take no time each."""
        ...


ShardFactory = Callable[[int, SnapshotRegistry, CoordinatorTimer], S]
"""Makes the empty shard of a partition: `factory(partition, registry, timer)`."""
