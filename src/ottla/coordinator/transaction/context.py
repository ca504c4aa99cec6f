"""Context that all shards of the transaction coordinator share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ottla.common.platform.clock import Clock
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.transaction.config import TransactionCoordinatorConfig
from ottla.coordinator.transaction.markers import MarkerChannel
from ottla.coordinator.transaction.memory import TransactionMemory


class ProducerIds(Protocol):
    """Source of producer ids (KIP-730).

    Implementation: `server.transactions.producer_id_source`.
    """

    def next_id(self, receiver: Callable[[int | None, BaseException | None], None]) -> None:
        """Call `receiver(id, None)` with an unused id, now or later, or `receiver(None, error)`."""
        ...


class ShardContext(NamedTuple):
    """Created once for a broker. Callables are read at each use, since their values may change."""

    config: Callable[[], TransactionCoordinatorConfig]
    transaction_version: Callable[[], int]
    """Finalized level of the feature `transaction.version`."""
    clock: Clock
    producer_ids: ProducerIds
    markers: MarkerChannel
    memory: TransactionMemory
    """Shared by all shards of the broker."""
    writes: Callable[[], CoordinatorRuntime[Any]]
    """The runtime, which is created later."""
