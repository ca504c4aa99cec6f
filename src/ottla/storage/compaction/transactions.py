"""What a walk over a log knows of transactions: which batches were aborted, which markers still end something.

A marker stays until a walk finds no batch of its transaction any more, and then for the delete horizon. The entries of
`.txnindex` files go in, and come out with the markers that stay: so the index of a rewritten segment is made. One walk
goes over all batches from an offset on, mostly the beginning of the log.

Invariant: what was aborted is never taken for committed, since its keys would displace what was: where marker and index
differ the walk ends.

As Apache Kafka's CleanedTransactionMetadata.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from ottla.record.batch import BatchView
from ottla.record.control import ControlRecordType, control_record_type
from ottla.record.errors import CorruptBatch
from ottla.storage.segment.transactions import CompletedTransaction


class _Aborted:
    """An aborted transaction whose marker the walk has not met yet."""

    __slots__ = ("has_batches", "transaction")

    def __init__(self, transaction: CompletedTransaction) -> None:
        self.transaction = transaction
        self.has_batches = False


class CleanedTransactions:
    """See the module."""

    __slots__ = ("_aborted", "_coming", "_committed", "kept")

    def __init__(self, aborted: Iterable[CompletedTransaction]) -> None:
        """`aborted` are those that any index of the log names, each once."""
        self._committed: set[int] = set()
        self._aborted: dict[int, _Aborted] = {}
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self.kept: Callable[[CompletedTransaction], object] = lambda transaction: None
        """Told of each aborted transaction whose marker stays because of its batches."""

    def is_aborted(self, batch: BatchView) -> bool:
        """Whether the records of a batch of data were aborted."""
        aborted = self._aborted_of(batch)
        if not batch.is_transactional:
            return False
        if aborted is None:
            self._committed.add(batch.producer_id)
            return False
        aborted.has_batches = True
        return True

    def ends_nothing(self, batch: BatchView) -> bool:
        """Whether a control batch is a marker of which no batch was met, or an empty one that was cleaned before.

        Raises KafkaError for a control batch that can't be read, and for a marker that aborts what no index names.
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

    def _aborted_of(self, batch: BatchView) -> _Aborted | None:
        """The aborted transaction of the batch's producer that is open there."""
        while self._coming and self._coming[0].first_offset <= batch.last_offset:
            transaction = self._coming.popleft()
            self._aborted[transaction.producer_id] = _Aborted(transaction)
        aborted = self._aborted.get(batch.producer_id)
        if aborted is not None and batch.base_offset > aborted.transaction.last_offset:
            del self._aborted[batch.producer_id]  # its marker is gone, and must not reach on to the next one's batches
            return None
        return aborted
