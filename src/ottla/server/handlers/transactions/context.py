"""Context of the transaction handlers: the transaction coordinator, producer ids, and the marker writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.coordination.transactions import TransactionCoordination
from ottla.server.transactions.marker_writer import MarkerWriter
from ottla.server.transactions.producer_id_source import ProducerIdSource

if TYPE_CHECKING:
    from ottla.coordinator.transaction.coordinator import TransactionCoordinator


class TransactionContext(NamedTuple):
    """Dependencies of the transaction handlers."""

    coordination: TransactionCoordination
    producer_ids: ProducerIdSource
    markers: MarkerWriter
    check_partition_count: Callable[[int], None]
    """Raises ProtocolError when a request names too many partitions."""

    @property
    def coordinator(self) -> TransactionCoordinator:
        """The coordinator; the first use loads it."""
        return self.coordination.coordinator
