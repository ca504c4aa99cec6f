"""Context of the transaction handlers: the transaction coordinator, producer ids, and the marker writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.server.transactions.marker_writer import MarkerWriter
from ottla.server.transactions.producer_id_source import ProducerIdSource


class TransactionContext(NamedTuple):
    """Dependencies of the transaction handlers."""

    coordinator: TransactionCoordinator
    producer_ids: ProducerIdSource
    markers: MarkerWriter
    check_partition_count: Callable[[int], None]
    """Raises ProtocolError when a request names too many partitions."""
