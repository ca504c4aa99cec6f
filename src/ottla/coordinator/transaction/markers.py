"""What ends a transaction on its partitions, and the way there, which the server implements."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.common.errors import ErrorCode
from ottla.common.kafka.topic_partition import TopicPartition


class TxnMarker(NamedTuple):
    """The end of one transaction, for each of its partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    """Under transactions v2 the epoch that follows the transaction's: whatever of it is late is refused."""
    committed: bool
    coordinator_epoch: int
    """The leader epoch of the coordinator's partition: of two coordinators the older one is refused."""
    transaction_version: int
    """By whose rules the partitions check the epoch (KIP-1228)."""
    partitions: frozenset[TopicPartition]
    """At least one."""


class MarkerChannel(Protocol):
    """Takes markers to the leaders of their partitions. Belongs to the loop."""

    def send(self, coordinator_partition: int, marker: TxnMarker, done: Callable[[ErrorCode], None]) -> None:
        """Write `marker` to all its partitions, with retries for ever.

        `done(NONE)` once every partition has it or is deleted; `done(INVALID_PRODUCER_EPOCH)` or
        `done(TRANSACTION_COORDINATOR_FENCED)` when a partition refused it for good. Once, possibly before this returns.
        """
        ...

    def cancel(self, coordinator_partition: int) -> None:
        """Another broker coordinates that partition from now on: forget its markers, call no `done` for them."""
        ...
