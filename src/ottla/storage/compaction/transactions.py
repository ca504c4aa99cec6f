"""State of transactions while a pass reads a log: aborted batches, and markers that are still needed.

A marker is retained until a pass finds no batch of its transaction, and then until the delete horizon. The entries of
`.txnindex` files are the input, and those of retained markers the output, which becomes the index of a rewritten
segment. One pass reads all batches from an offset on, mostly the beginning of the log.

Invariant: aborted records never count as committed, since their keys would supersede committed ones. If marker and
index differ, the pass fails.

As Apache Kafka's CleanedTransactionMetadata.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from ottla.record.batch import BatchView
from ottla.record.control import ControlRecordType, control_record_type
from ottla.record.errors import CorruptBatch
from ottla.storage.segment.transactions import CompletedTransaction


class _OpenAbort:
    """An aborted transaction before the pass reaches its marker."""

    __slots__ = ("has_batches", "transaction")

    def __init__(self, transaction: CompletedTransaction) -> None:
        self.transaction = transaction
        self.has_batches = False


class CleanedTransactions:
    """State of one pass; see the module."""

    __slots__ = ("_aborted", "_coming", "_committed", "kept")

    def __init__(self, aborted: Iterable[CompletedTransaction]) -> None:
        """`aborted` are the transactions of all indexes of the log, each once."""
        self._committed: set[int] = set()
        self._aborted: dict[int, _OpenAbort] = {}
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self.kept: Callable[[CompletedTransaction], object] = lambda transaction: None
        """Called with each aborted transaction with a marker that is retained for its batches."""

    def is_aborted(self, batch: BatchView) -> bool:
        """Return whether the records of a data batch were aborted."""
        aborted = self._aborted_of(batch)
        if not batch.is_transactional:
            return False
        if aborted is None:
            self._committed.add(batch.producer_id)
            return False
        aborted.has_batches = True
        return True

    def ends_nothing(self, batch: BatchView) -> bool:
        """Return whether a control batch is a marker without remaining batches, or an empty one of an earlier pass.

        Raises KafkaError for an unreadable control batch, and for an abort marker without an index entry.
        """
        aborted = self._aborted_of(batch)
        record = next(iter(batch.records()), None)
        if record is None:
            return True
        kind = control_record_type(record)
        if kind is ControlRecordType.ABORT:
            if batch.producer_id in self._committed:
                raise CorruptBatch(f"the transaction that ends at offset {batch.base_offset} is in no index")
            if aborted is None or not aborted.has_batches:
                self._aborted.pop(batch.producer_id, None)
                return True
            del self._aborted[batch.producer_id]
            self.kept(aborted.transaction)
            return False
        if kind is ControlRecordType.COMMIT:
            if batch.producer_id not in self._committed:
                return True
            self._committed.discard(batch.producer_id)
        return False

    def _aborted_of(self, batch: BatchView) -> _OpenAbort | None:
        """Return the aborted transaction of the batch's producer that is open there."""
        while self._coming and self._coming[0].first_offset <= batch.last_offset:
            transaction = self._coming.popleft()
            self._aborted[transaction.producer_id] = _OpenAbort(transaction)
        aborted = self._aborted.get(batch.producer_id)
        if aborted is not None and batch.base_offset > aborted.transaction.last_offset:
            del self._aborted[batch.producer_id]  # its marker was dropped, and must not apply to the next one's batches
            return None
        return aborted
