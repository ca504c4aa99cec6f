"""Interface of a coordinator shard: a replayed state machine over one partition of an internal topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from ottla.coordinator.runtime.timer import CoordinatorTimer
from ottla.timeline import SnapshotRegistry

R_contra = TypeVar("R_contra", contravariant=True)
S = TypeVar("S")


class CoordinatorShard(Protocol[R_contra]):
    """State of one partition. Its hard state consists of timeline objects of its registry, and changes in `replay`
    only; the runtime takes the snapshots and reverts."""

    def replay(self, offset: int, record: R_contra, producer_id: int, producer_epoch: int) -> None:
        """Apply one record, while loading and right before it is appended at `offset`.

        Producer id and epoch are those of the record's open transaction, both -1 for a record outside transactions.
        Must not raise for a record that was ever written; an exception fails the batch or the load.
        """
        ...

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """Apply the end of a transaction to the records of its producer that were replayed before.

        The epoch may be above that of the records (KIP-890). A marker without such records has no effect.
        """
        ...

    def loaded(self) -> None:
        """Everything was replayed and operations follow: start timers."""
        ...

    def unloaded(self) -> None:
        """This broker stops coordinating: answer requests that wait in soft state with NOT_COORDINATOR.

        Timers are cancelled and nothing can be written; the shard is dropped afterwards. Also called for a shard after
        an incomplete load.
        """
        ...

    def release(self) -> Iterator[None]:
        """Called after `unloaded`: release all large collections, in short steps."""
        ...


ShardFactory = Callable[[int, SnapshotRegistry, CoordinatorTimer], S]
"""Creates the empty shard of a partition: `factory(partition, registry, timer)`."""
