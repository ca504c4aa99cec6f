"""A transactional producer of complete record batches, as they are stored; it does not build batches from records.

It uses transactions v1 (KIP-98), which every broker supports: partitions are added before they are written to, and only
InitProducerId changes the producer epoch. Only requests without effect are repeated. After a failure only `initialize`
can be called; its new epoch fences requests that are still in flight.

One failure is an exception: `BatchRefused`, for a batch that the broker rejected for its content. The broker stored
nothing of it, and the next batch takes its sequence numbers.

Left out: building batches (`ottla.client.librdkafka.transactional_producer`), idempotence without transactions. Not
thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ottla.client.admin.cluster import Cluster
from ottla.client.admin.router import NO_COORDINATOR_ERRORS
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for, response_error
from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.topic_partition import TopicPartition, by_topic
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.batch import BatchView
from ottla.record.stamp import stamped

T = TypeVar("T")

TRANSACTION_TIMEOUT_MS = 60_000
"""Kafka's default: the longest wait of read_committed consumers for an abandoned transaction."""
ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 30_000
LAST_WITHOUT_IMPLICIT_ADD = 11
"""Produce: the last version that requires AddPartitionsToTxn (KIP-890)."""
LAST_FOR_CLIENTS = 3
"""AddPartitionsToTxn: the last version for clients."""
LAST_WITHOUT_EPOCH_BUMP = 4
"""EndTxn: the last version that does not change the producer's epoch."""
FIRST_PAUSE_S = 0.002
MAX_PAUSE_S = 0.1
BUSY_S = 30.0
"""Longest wait for the completion of the previous transaction, and for an unavailable coordinator."""

FIRST_WITH_ZSTD = 7
"""Produce: the first version for zstd batches (KIP-110). Older brokers respond with an unknown error."""
REQUEST_OVERHEAD_BYTES = 256
"""Upper bound of the size of a Produce request for one batch, without the batch and the names in it."""
REFUSALS = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Error codes with which a broker rejects the content of a batch."""

BUSY_ERRORS = NO_COORDINATOR_ERRORS | {ErrorCode.CONCURRENT_TRANSACTIONS}
_SEQUENCES = 1 << 31


class BatchRefused(KafkaError):
    """A batch that was rejected for its content; the broker stored nothing of it.

    `index` is its number among the batches of the call. `records` maps record numbers within the batch to reasons. It
    is empty if the broker names no records: before Produce 8, and for a batch that is too large.
    """

    def __init__(self, error: KafkaError, index: int, records: Mapping[int, str | None]) -> None:
        super().__init__(error.code, error.message)
        self.index = index
        self.records = records


class RequestTooLarge(BatchRefused):
    """A batch that exceeds `socket.request.max.bytes` of its broker, which would close the connection; not sent."""


class BatchProducer:
    """Producer of one transactional id; one transaction at a time."""

    def __init__(self, cluster: Cluster, transactional_id: str, max_request_bytes: int | None = None) -> None:
        """Sends nothing before `initialize`. `max_request_bytes`: the brokers' `socket.request.max.bytes`, if known."""
        self._cluster = cluster
        self._max_request_bytes = max_request_bytes
        self._transactional_id = transactional_id
        self._coordinator: Connection | None = None
        self._producer_id = self._producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self.is_open = False
        """A transaction was started, and its completion is not confirmed."""

    @property
    def producer_id(self) -> int:
        """The producer id; -1 before `initialize`."""
        return self._producer_id

    def initialize(self) -> None:
        """Take the next epoch: fences earlier producers of the id, and waits for the end of their transaction.

        Raises KafkaError, BrokerUnreachable.
        """
        self._producer_id, self._producer_epoch = self._cluster.transactions.terminate(
            self._transactional_id, TRANSACTION_TIMEOUT_MS
        )
        self._sequences.clear()
        self.is_open = False

    def begin(self, positions: Iterable[TopicPartition]) -> None:
        """Begin a transaction over these partitions. Raises KafkaError, BrokerUnreachable."""
        topics = [AddPartitionsToTxnTopic(name=name, partitions=found) for name, found in by_topic(positions).items()]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._producer_epoch,
            v3_and_below_topics=topics,
        )

        def attempt(connection: Connection) -> None:
            response: AddPartitionsToTxnResponse = connection.request(
                ApiKey.ADD_PARTITIONS_TO_TXN, request, max_version=LAST_FOR_CLIENTS
            )
            for topic in response.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    if result.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                        subject = f"{topic.name}-{result.partition_index} in a transaction of {self._transactional_id}"
                        raise_for(result.partition_error_code, subject)

        self.is_open = True
        self._ask_coordinator(attempt)

    def send(self, position: TopicPartition, batches: Sequence[BatchView]) -> list[int]:
        """Write batches to a partition of the transaction, in order; returns the base offset of each.

        Raises BatchRefused. If the call had one batch, the transaction may continue without it. Otherwise abort the
        transaction: batches after the rejected one may be stored. Raises KafkaError, BrokerUnreachable.
        """
        topic, partition = position
        connection = self._cluster.records.leader_connection(position)
        self._require_sendable(topic, batches, connection)
        sequence = self._sequences.get(position, 0)
        requests, next_sequences = [], []
        for batch in batches:
            records = stamped(batch, self._producer_id, self._producer_epoch, sequence)
            sequence = (sequence + batch.last_offset_delta + 1) % _SEQUENCES
            next_sequences.append(sequence)
            data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])
            requests.append(
                ProduceRequest(
                    transactional_id=self._transactional_id,
                    acks=ACKS_ALL,
                    timeout_ms=PRODUCE_TIMEOUT_MS,
                    topic_data=[data],
                )
            )
        offsets: list[int] = []
        refusal: BatchRefused | None = None
        responses: list[ProduceResponse] = connection.request_each(
            ApiKey.PRODUCE, requests, max_version=LAST_WITHOUT_IMPLICIT_ADD
        )
        for index, response in enumerate(responses):
            (result,) = [each for found in response.responses for each in found.partition_responses] or (None,)
            if result is None:
                raise ProtocolError(f"{connection.address} omitted the partition from its Produce response")
            if result.error_code != ErrorCode.NONE:
                error = response_error(result.error_code, f"a batch for {topic}-{partition}", result.error_message)
                is_gap = refusal is not None and error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                if error.code not in REFUSALS and not is_gap:
                    raise error
                named = {each.batch_index: each.batch_index_error_message for each in result.record_errors}
                refusal = refusal or BatchRefused(error, index, named)
                continue
            offsets.append(result.base_offset)
            self._sequences[position] = next_sequences[index]
        if refusal is not None:
            raise refusal
        return offsets

    def _require_sendable(self, topic: str, batches: Sequence[BatchView], connection: Connection) -> None:
        """Raise BatchRefused for a batch to which the broker would respond with no error code, or an ambiguous one."""
        knows_zstd = connection.version_for(ApiKey.PRODUCE, LAST_WITHOUT_IMPLICIT_ADD) >= FIRST_WITH_ZSTD
        overhead = REQUEST_OVERHEAD_BYTES + len(self._transactional_id.encode()) + len(topic)
        for index, batch in enumerate(batches):
            if batch.compression == "zstd" and not knows_zstd:
                reason = f"the broker at {connection.address} does not support zstd, which needs Apache Kafka 2.1"
                raise BatchRefused(KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, reason), index, {})
            size = batch.size_bytes + overhead
            if self._max_request_bytes is not None and size > self._max_request_bytes:
                reason = f"a request of {size} bytes exceeds socket.request.max.bytes, {self._max_request_bytes}"
                raise RequestTooLarge(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, reason), index, {})

    def commit(self) -> None:
        """Commit the transaction; its outcome is unknown after a KafkaError or BrokerUnreachable."""
        self._end(committed=True)

    def abort(self) -> None:
        """Abort the transaction; unlike `initialize`, it fails if another producer has fenced this one.

        Of all failures only BatchRefused permits an abort. Raises KafkaError, BrokerUnreachable.
        """
        self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            committed=committed,
        )
        subject = f"the {'commit' if committed else 'abort'} of {self._transactional_id}"

        def attempt(connection: Connection) -> None:
            response: EndTxnResponse = connection.request(ApiKey.END_TXN, request, max_version=LAST_WITHOUT_EPOCH_BUMP)
            raise_for(response.error_code, subject)

        self._ask_coordinator(attempt)
        self.is_open = False

    def _ask_coordinator(self, ask: Callable[[Connection], T]) -> T:
        """Repeat a request while the coordinator responds that it has had no effect yet."""
        deadline = time.monotonic() + BUSY_S
        pause_s = FIRST_PAUSE_S
        while True:
            if self._coordinator is None or self._coordinator.closed:
                self._coordinator = self._cluster.transactions.connection(self._transactional_id)
            try:
                return ask(self._coordinator)
            except KafkaError as error:
                if error.code not in BUSY_ERRORS or time.monotonic() + pause_s > deadline:
                    raise
                if error.code in NO_COORDINATOR_ERRORS:
                    self._coordinator = None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
