"""Filter of fetched batches for consumers: removes control batches and aborted transactions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ottla.record.batch import BatchView
from ottla.record.control import ControlRecordType, control_record_type


class AbortedEntry(Protocol):
    """One aborted transaction of a Fetch response."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


class AbortedAt(NamedTuple):
    """An `AbortedEntry` for a response without a list."""

    producer_id: int
    first_offset: int


class TransactionFilter:
    """Filters the batches of one Fetch response in order; `aborted` is the list of aborted transactions in it.

    Under read_uncommitted the list is empty, and every data batch passes. The list contains no epochs: the markers
    between the batches separate a producer's transactions, since brokers begin no transaction before the marker of the
    last one. A marker may be repeated.
    """

    __slots__ = ("_aborted_ids", "_pending")

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        self._pending = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborted_ids: set[int] = set()

    def passes(self, batch: BatchView) -> bool:
        """Return whether a reader sees the records of `batch`. Raises KafkaError for an unreadable control batch."""
        while self._pending and self._pending[-1].first_offset <= batch.last_offset:
            self._aborted_ids.add(self._pending.pop().producer_id)
        if batch.is_control:
            if batch.producer_id in self._aborted_ids and any(
                control_record_type(record) == ControlRecordType.ABORT for record in batch.records()
            ):
                self._aborted_ids.discard(batch.producer_id)
            return False
        return not (batch.is_transactional and batch.producer_id in self._aborted_ids)
