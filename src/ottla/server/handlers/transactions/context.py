"""What handlers of this room may touch: the transaction coordinator, producer ids, and where markers are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.server.transactions.marker_writer import MarkerWriter
from ottla.server.transactions.producer_id_source import ProducerIdSource


class TransactionContext(NamedTuple):
    """Transactions that this broker coordinates, and those that end in its partitions."""

    coordinator: TransactionCoordinator
    producer_ids: ProducerIdSource
    markers: MarkerWriter
    check_partition_count: Callable[[int], None]
    """Raises ProtocolError when a request names too many."""
