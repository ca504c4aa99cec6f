"""Partitions of an internal topic as the log of a coordinator: `CoordinatorLog` on this broker's replicas.

Appends are as for acks=all in the leader epoch in which the coordinator was loaded; in any other the coordinator is
told that it no longer leads. Reads go to the pool. Rises of the high watermark reach the runtime through
`ReplicaManager.listen`, which whoever builds both arranges.
"""

from __future__ import annotations

from ottla.common.clock import BlockingPool
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.coordinator.runtime import LogOffsets, ReadDone
from ottla.replica.manager import ReplicaManager
from ottla.replica.partition import Partition
from ottla.server.in_flight import InFlight
from ottla.storage.results import ReadResult


class ReplicaCoordinatorLog:
    """One internal topic."""

    __slots__ = ("_in_flight", "_pool", "_replicas", "_topic")

    def __init__(self, topic: str, replicas: ReplicaManager, pool: BlockingPool, in_flight: InFlight) -> None:
        self._topic = topic
        self._replicas = replicas
        self._pool = pool
        self._in_flight = in_flight

    def append(self, partition: int, leader_epoch: int, batch: bytearray) -> int:
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
