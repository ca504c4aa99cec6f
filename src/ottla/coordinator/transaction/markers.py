"""Transaction markers, and the interface that writes them to partitions, which the server implements."""

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
    """With transactions v2 the epoch after the transaction's: late writes of the transaction are rejected."""
    committed: bool
    coordinator_epoch: int
    """The leader epoch of the coordinator's partition: an older coordinator is rejected."""
    transaction_version: int
    """Selects the rules by which partitions check the epoch (KIP-1228)."""
    partitions: frozenset[TopicPartition]
    """At least one partition."""


class MarkerChannel(Protocol):
    """Sends markers to the leaders of their partitions. Runs on the loop.

    Implementation: `server.transactions.transaction_markers.TransactionMarkers`.
    """

    def send(self, coordinator_partition: int, marker: TxnMarker, done: Callable[[ErrorCode], None]) -> None:
        """Write `marker` to all its partitions, with unlimited retries.

        Calls `done(NONE)` once every partition has it or is deleted; `done(INVALID_PRODUCER_EPOCH)` or
        `done(TRANSACTION_COORDINATOR_FENCED)` when a partition rejected it permanently. Calls it once, possibly before
        this returns.
        """
        ...

    def cancel(self, coordinator_partition: int) -> None:
        """Another broker coordinates that partition from now on: drop its markers without calling `done`."""
        ...
