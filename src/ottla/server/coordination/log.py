"""Partitions of an internal topic as the log of a coordinator: `CoordinatorLog` on this broker's replicas.

Appends are as for acks=all in the leader epoch in which the coordinator was loaded; in any other the coordinator is
told that it no longer leads. Transactions are verified as for a Produce (KIP-890). Reads go to the pool. Rises of the
high watermark reach the runtime through `ReplicaManager.listen`, which whoever builds both arranges.
"""

from __future__ import annotations

from typing import Any

from ottla.common.clock import BlockingPool, Clock
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.coordinator.runtime import LogOffsets, Marker, ReadDone, Transaction, VerificationDone
from ottla.record.builder import end_transaction_marker
from ottla.replica.manager import ReplicaManager
from ottla.replica.partition import Partition
from ottla.server.in_flight import InFlight
from ottla.server.transaction_partitions import PartitionErrors, TransactionPartitions
from ottla.storage.results import ReadResult


class ReplicaCoordinatorLog:
    """One internal topic."""

    __slots__ = ("_clock", "_in_flight", "_pool", "_replicas", "_topic", "_transactions")

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        pool: BlockingPool,
        in_flight: InFlight,
        clock: Clock,
        transactions: TransactionPartitions | None = None,
    ) -> None:
        """Without `transactions` nobody can be asked: no transaction has a partition of this topic."""
        self._topic = topic
        self._clock = clock
        self._transactions = transactions
        self._replicas = replicas
        self._pool = pool
        self._in_flight = in_flight

    def append(self, partition: int, leader_epoch: int, batch: bytearray, guard: Any = None) -> int:
        """See `CoordinatorLog`."""
        replica = self._replicas.find(self._topic, partition)
        replica.check_leader(leader_epoch)
        try:
            result = replica.append_records(batch, 0, len(batch), True, client=False)
        except KafkaError:
            raise
        except OSError as error:
            replica.mark_offline()
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return result.last_offset + 1

    def append_end_marker(self, partition: int, leader_epoch: int, marker: Marker) -> int:
        """See `CoordinatorLog`."""
        batch = end_transaction_marker(
            commit=marker.committed,
            timestamp_ms=self._clock.time_ms(),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
        )
        return self.append(partition, leader_epoch, batch)

    def verify_transaction(self, partition: int, transaction: Transaction, done: VerificationDone) -> None:
        """See `CoordinatorLog`."""
        if self._transactions is None:
            done(None, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        place = (self._topic, partition)

        def answered(errors: PartitionErrors) -> None:
            code = errors.get(place, ErrorCode.NONE)
            done(None, None if code is ErrorCode.NONE else KafkaError(code))

        self._transactions.add_or_verify(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            [place],
            verify_only=not transaction.add,
            done=answered,
        )

    def max_batch_bytes(self, partition: int) -> int:
        """See `CoordinatorLog`."""
        return self._replicas.find(self._topic, partition).log.config.max_message_bytes

    def offsets(self, partition: int) -> LogOffsets:
        """See `CoordinatorLog`."""
        replica = self._leading(partition)
        return LogOffsets(replica.log.log_start_offset, replica.high_watermark, replica.log.log_end_offset)

    def read(self, partition: int, offset: int, max_bytes: int, done: ReadDone) -> None:
        """See `CoordinatorLog`."""
        try:
            log = self._leading(partition).log
            result = log.read(offset, max_bytes, max_offset=log.log_end_offset)
        except KafkaError as error:
            self._in_flight.begin()
            self._pool.submit(lambda: None, lambda _result, _error, error=error: self._finish(done, None, error))  # type: ignore[misc]
            return

        def finished(records: bytearray | None, error: BaseException | None) -> None:
            if result.records is not None:
                result.records.release()
            failure = None
            if error is not None:
                failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"a read of {log.name} failed: {error}")
            self._finish(done, records, failure)

        self._in_flight.begin()
        self._pool.submit(lambda: _copy(result), finished)

    def _leading(self, partition: int) -> Partition:
        replica = self._replicas.find(self._topic, partition)
        replica.check_leader()
        return replica

    def _finish(self, done: ReadDone, records: bytearray | None, error: KafkaError | None) -> None:
        try:
            done(records, error)
        finally:
            self._in_flight.end()


def _copy(result: ReadResult) -> bytearray:
    """In the pool: the bytes of a region."""
    region = result.records
    if region is None:
        return bytearray()
    data = bytearray(region.length)
    position = 0
    with memoryview(data) as view:
        while position < len(data):
            count = region.read_into(view[position:], position)
            if count <= 0:
                raise InvariantError(f"a region of {len(data)} bytes ended at {position}")
            position += count
    return data
