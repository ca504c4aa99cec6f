"""What all shards of the transaction coordinator share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ottla.common.platform.clock import Clock
from ottla.coordinator.transaction.config import TransactionCoordinatorConfig
from ottla.coordinator.transaction.markers import MarkerChannel
from ottla.coordinator.transaction.memory import TransactionMemory


class ProducerIds(Protocol):
    """Where producer ids come from (KIP-730)."""

    def next_id(self, receiver: Callable[[int | None, BaseException | None], None]) -> None:
        """`receiver(id, None)` with one that nobody was given, now or later, or `receiver(None, why not)`."""
        ...


class Writes(Protocol):
    """The part of the runtime by which a shard writes on its own account."""

    def schedule_write(
        self, name: str, partition: int, operation: Callable[[Any], Any], done: Callable[[Any, Any], None]
    ) -> None: ...

    def leader_epoch(self, partition: int) -> int: ...


class ShardContext(NamedTuple):
    """Made once for a broker. What is callable is asked at each use, since it may change."""

    config: Callable[[], TransactionCoordinatorConfig]
    transaction_version: Callable[[], int]
    """The cluster's level of `transaction.version`."""
    clock: Clock
    producer_ids: ProducerIds
    markers: MarkerChannel
    memory: TransactionMemory
    """Shared by all shards of the broker."""
    writes: Callable[[], Writes]
    """The runtime, which is made after this."""
