"""Check that a transaction coordinator's state equals its log whenever it has no pending append.

Clients can't detect the difference: an epoch that was raised only in memory fences a producer like a durable one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ottla.common.errors import KafkaError
from ottla.common.kafka.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.transaction.metadata import TransactionMetadata
from ottla.coordinator.transaction.records import decode_record
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.record.batch import BatchView, iter_batches
from ottla.replica.partition import Partition
from ottla.server.broker import Broker
from ottla.server.coordination.coordinator_host import CoordinatorType
from simulation.checkers import Violation
from simulation.node import SimNode

READ_BYTES = 1 << 20

Known = dict[str, tuple[object, ...]]
"""The fields that every version of a value contains, by transactional id."""


class CoordinatorLogs:
    """Reads the logs of all coordinators incrementally, one log for each time that a broker became leader of a
    partition."""

    def __init__(self, nodes: Sequence[SimNode]) -> None:
        self._nodes = nodes
        self._read: dict[tuple[str, int, int], tuple[int, Known]] = {}

    def look(self) -> None:
        """Compare every coordinator with its log. Raises Violation with the first id at which they differ."""
        for node in self._nodes:
            if node.broker is not None:
                self._look_at(node.host, node.broker)

    def _look_at(self, host: str, broker: Broker) -> None:
        runtime: CoordinatorRuntime[TransactionShard] = broker.parts.coordinations[CoordinatorType.TRANSACTION].runtime
        if runtime.pending_records():
            return
        for index, shard in runtime.active_shards():
            epoch = runtime.leader_epoch(index)
            try:
                log = broker.parts.replicas.find(TRANSACTION_STATE_TOPIC, index)
                log.check_leader(epoch)
                said = self._said((host, index, epoch), log)
            except (KafkaError, OSError):
                continue  # The disk fails, or another broker leads; the coordinator does not know it yet.
            _compare(f"{host}, {TRANSACTION_STATE_TOPIC}-{index}", said, shard.transactions)

    def _said(self, place: tuple[str, int, int], log: Partition) -> Known:
        position, known = self._read.get(place, (log.log.log_start_offset, {}))
        for batch in log_batches(log, position):
            for record in batch.records():
                decoded = decode_record(record.key or b"", record.value)
                if decoded is None:
                    continue
                if decoded.metadata is None:
                    known.pop(decoded.transactional_id, None)
                else:
                    known[decoded.transactional_id] = _facts(decoded.metadata)
        self._read[place] = (log.log.log_end_offset, known)
        return known


def log_batches(log: Partition, position: int) -> Iterator[BatchView]:
    """The batches of a log from an offset to its end."""
    end = log.log.log_end_offset
    while position < end:
        result = log.log.read(position, READ_BYTES, max_offset=end)
        if result.records is None:
            return
        data = result.records.read_all()
        result.records.release()
        for batch in iter_batches(data):
            position = batch.next_offset
            yield batch


def _facts(metadata: TransactionMetadata) -> tuple[object, ...]:
    return metadata.producer_id, metadata.producer_epoch, metadata.state, metadata.partitions, metadata.timeout_ms


def _compare(host: str, said: Known, believed: Mapping[str, TransactionMetadata]) -> None:
    for transactional_id in sorted(said.keys() | believed.keys()):
        metadata = believed.get(transactional_id)
        facts = None if metadata is None else _facts(metadata)
        if facts != said.get(transactional_id):
            raise Violation(
                f"coordinator-state: {host} has {transactional_id} as {facts}, its log has {said.get(transactional_id)}"
            )
