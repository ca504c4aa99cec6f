"""Log of a coordinator on an internal topic's partitions: `CoordinatorLog` on this broker's replicas.

Appends use acks=all in the leader epoch in which the coordinator was loaded; in any other epoch they fail because the
broker is no longer leader. Transactions are verified as for a Produce (KIP-890). Reads run in the pool. Advances of the
high watermark reach the runtime through `ReplicaManager.listen`, set up by the caller that builds both.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.platform.clock import BlockingPool
from ottla.coordinator.runtime import LogOffsets, ReadDone, Transaction, VerificationDone
from ottla.record.batch import NO_SEQUENCE
from ottla.record.control import EndMarker
from ottla.replica.manager import ReplicaManager
from ottla.replica.partition import Partition
from ottla.server.requests.in_flight import InFlight
from ottla.server.transactions.transaction_partitions import PartitionErrors, TransactionPartitions
from ottla.storage.log.verification import VerificationGuard
from ottla.storage.segment.results import ReadResult


class ReplicaCoordinatorLog:
    """One internal topic."""

    __slots__ = ("_in_flight", "_pool", "_replicas", "_topic", "_transactions")

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        pool: BlockingPool,
        in_flight: InFlight,
        transactions: TransactionPartitions | None = None,
    ) -> None:
        """Without `transactions` nothing is verified: no transaction has a partition of this topic."""
        self._topic = topic
        self._transactions = transactions
        self._replicas = replicas
        self._pool = pool
        self._in_flight = in_flight

    def append(
        self, partition: int, leader_epoch: int, batch: bytearray, guard: VerificationGuard | None = None
    ) -> int:
        """See `CoordinatorLog`."""
        replica = self._replicas.find(self._topic, partition)
        replica.check_leader(leader_epoch)
        try:
            result = replica.append_records(batch, 0, len(batch), True, client=False, guard=guard)
        except OSError as error:
            raise _offline(replica, error) from error
        return result.last_offset + 1

    def append_end_marker(self, partition: int, leader_epoch: int, marker: EndMarker) -> int:
        """See `CoordinatorLog`."""
        replica = self._replicas.find(self._topic, partition)
        replica.check_leader(leader_epoch)
        try:
            result = replica.append_end_marker(marker)
        except OSError as error:
            raise _offline(replica, error) from error
        return result.last_offset + 1

    def verify_transaction(self, partition: int, transaction: Transaction, done: VerificationDone) -> None:
        """See `CoordinatorLog`. Without `transaction.partition.verification.enable` nothing is verified."""
        if self._transactions is None:
            done(None, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        try:
            replica = self._leading(partition)
            if not transaction.add and not replica.log.producers.verification_enabled:
                done(None, None)
                return
            guard = replica.begin_verification(
                transaction.producer_id,
                transaction.producer_epoch,
                NO_SEQUENCE,
                supports_epoch_bump=transaction.add,
            )
        except KafkaError as error:
            done(None, error)
            return
        if guard is None:
            done(None, None)  # the transaction is already open here
            return
        place = (self._topic, partition)

        def answered(errors: PartitionErrors) -> None:
            code = errors.get(place, ErrorCode.NONE)
            done(guard, None if code is ErrorCode.NONE else KafkaError(code))

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


def _offline(replica: Partition, error: OSError) -> KafkaError:
    replica.mark_offline()
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


def _copy(result: ReadResult) -> bytearray:
    """Runs in the pool: the bytes of a region."""
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
