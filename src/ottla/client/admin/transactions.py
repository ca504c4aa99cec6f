"""Transactions (KIP-664): requests, and the service `Cluster.transactions`.

See `client.admin.topics`. ListTransactions is sent to every broker, DescribeProducers and WriteTxnMarkers to a replica
of the partition, the others to the coordinator of the transactional id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.client.admin.coordinators import CoordinatorType, coordinator_of
from ottla.client.admin.router import NO_COORDINATOR_ERRORS, NOT_LEADER_ERRORS, ClusterService
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import TopicNotFound, raise_for, response_error
from ottla.client.wire.model import (
    NO_OFFSET,
    ProducerState,
    TransactionDescription,
    TransactionFilters,
    TransactionListing,
)
from ottla.common.errors import RETRIABLE_ERRORS, ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.topic_partition import TopicPartition, by_topic
from ottla.protocol.messages.describe_producers import (
    ActiveProducer,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.registry import ApiKey

FENCE_ERRORS = NO_COORDINATOR_ERRORS | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""Errors after which the completion of a transaction may be retried: its coordinator may require a wait."""

DESCRIBED_PARTITIONS = 500
"""Partitions per DescribeProducers request."""

NO_EPOCH = -1
NO_TIME = -1


def transactional_id_not_found(transactional_id: str) -> KafkaError:
    """The error for a transactional id that does not exist."""
    return KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id!r} does not exist")


def list_transactions(connection: Connection, node_id: int, filters: TransactionFilters) -> list[TransactionListing]:
    """The transactional ids that this broker coordinates.

    Raises KafkaError UNSUPPORTED_VERSION for an unsupported filter, INVALID_REGULAR_EXPRESSION for a bad pattern.
    """
    request = ListTransactionsRequest(
        state_filters=list(filters.states),
        producer_id_filters=list(filters.producer_ids),
        duration_filter=-1 if filters.min_duration_ms is None else filters.min_duration_ms,
        transactional_id_pattern=filters.id_pattern,
    )
    response: ListTransactionsResponse = connection.request(ApiKey.LIST_TRANSACTIONS, request)
    raise_for(response.error_code, f"transactions of {connection.address}")
    return [
        TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node_id)
        for each in response.transaction_states
    ]


def describe_transaction(connection: Connection, transactional_id: str, coordinator_id: int) -> TransactionDescription:
    """A transaction as its coordinator knows it. Raises KafkaError TRANSACTIONAL_ID_NOT_FOUND."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    response: DescribeTransactionsResponse = connection.request(ApiKey.DESCRIBE_TRANSACTIONS, request)
    for found in response.transaction_states:
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise transactional_id_not_found(transactional_id)
        raise_for(found.error_code, f"transactional id {transactional_id!r}")
        return TransactionDescription(
            transactional_id=transactional_id,
            state=found.transaction_state,
            coordinator_id=coordinator_id,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            timeout_ms=found.transaction_timeout_ms,
            start_ms=None if found.transaction_start_time_ms == NO_TIME else found.transaction_start_time_ms,
            partitions=tuple(sorted((topic.topic, index) for topic in found.topics for index in topic.partitions)),
        )
    raise ProtocolError(f"{connection.address} omitted the transactional id {transactional_id!r} from its response")


def describe_producers(
    connection: Connection, positions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, tuple[ProducerState, ...]], KafkaError | None]:
    """The producers of the partitions that succeeded, and the first failure of the others."""
    topics = [
        DescribeProducersTopic(name=topic, partition_indexes=indexes) for topic, indexes in by_topic(positions).items()
    ]
    request = DescribeProducersRequest(topics=topics)
    response: DescribeProducersResponse = connection.request(ApiKey.DESCRIBE_PRODUCERS, request)
    producers: dict[TopicPartition, tuple[ProducerState, ...]] = {}
    error: KafkaError | None = None
    for described in response.topics:
        for found in described.partitions:
            if found.error_code == ErrorCode.NONE:
                states = sorted(found.active_producers, key=lambda each: each.producer_id)
                producers[described.name, found.partition_index] = tuple(map(_producer_state, states))
            elif error is None:
                error = _partition_error(found.error_code, described.name, found.partition_index, found.error_message)
    return producers, error


def _producer_state(found: ActiveProducer) -> ProducerState:
    return ProducerState(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        last_sequence=found.last_sequence,
        last_timestamp_ms=found.last_timestamp,
        coordinator_epoch=None if found.coordinator_epoch == NO_EPOCH else found.coordinator_epoch,
        transaction_start_offset=(
            None if found.current_txn_start_offset == NO_OFFSET else found.current_txn_start_offset
        ),
    )


def _partition_error(code: int, topic: str, partition: int, message: str | None) -> KafkaError:
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        message = "the broker has no online replica of it"
    return response_error(code, f"producers of {topic}-{partition}", message)


def write_abort_marker(
    connection: Connection, position: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Abort the producer's transaction in one partition, without its coordinator.

    Raises KafkaError INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED if the partition knows newer epochs.
    """
    topic, partition = position
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=coordinator_epoch,
    )
    response: WriteTxnMarkersResponse = connection.request(
        ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker])
    )
    codes = [
        each.error_code
        for result in response.markers
        for answer in result.topics
        for each in answer.partitions
        if (answer.name, each.partition_index) == position
    ]
    if len(codes) != 1:
        raise ProtocolError(f"{connection.address} responded with other partitions than those of WriteTxnMarkers")
    subject = f"transaction of producer {producer_id} in {topic}-{partition}"
    if codes[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise TopicNotFound(topic, partition)
    if codes[0] == ErrorCode.INVALID_PRODUCER_EPOCH:
        raise response_error(codes[0], subject, "the partition knows another epoch of this producer")
    if codes[0] == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        raise response_error(codes[0], subject, "the partition knows a newer epoch of the coordinator")
    raise_for(codes[0], subject)


def fence(connection: Connection, transactional_id: str, timeout_ms: int) -> tuple[int, int]:
    """Take the next epoch of a transactional id, which aborts its transaction and fences its producers.

    Returns producer id and epoch. Raises KafkaError CONCURRENT_TRANSACTIONS until the transaction is complete.
    """
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    response: InitProducerIdResponse = connection.request(ApiKey.INIT_PRODUCER_ID, request)
    raise_for(response.error_code, f"transactional id {transactional_id!r}")
    return response.producer_id, response.producer_epoch


def in_batches(positions: Sequence[TopicPartition], size: int) -> Iterable[Sequence[TopicPartition]]:
    """Batches of at most `size`, so that the size of a request does not depend on the cluster."""
    return (positions[start : start + size] for start in range(0, len(positions), size))


class TransactionService(ClusterService):
    """Transactions, their producers and coordinators."""

    def find(self, filters: TransactionFilters | None = None) -> list[TransactionListing]:
        """All transactional ids of the cluster that match the filters, sorted."""
        wanted = filters or TransactionFilters()
        return self._router.ask_brokers(
            lambda connection, node_id: list_transactions(connection, node_id, wanted),
            lambda each: each.transactional_id,
        )

    def describe(self, transactional_id: str) -> TransactionDescription:
        """A transactional id and its latest transaction. Raises KafkaError TRANSACTIONAL_ID_NOT_FOUND."""

        def attempt() -> TransactionDescription:
            coordinator = coordinator_of(self._router, CoordinatorType.TRANSACTION, transactional_id)
            connection = self._router.connection(coordinator.node_id)
            return describe_transaction(connection, transactional_id, coordinator.node_id)

        return self._router.retry(attempt)

    def producers(
        self, positions: Sequence[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The active producers of each partition, as known to its leader or to the replica on `broker_id`.

        Raises TopicNotFound, KafkaError NOT_LEADER_OR_FOLLOWER for a broker without a replica.
        """
        found: dict[TopicPartition, tuple[ProducerState, ...]] = {}

        def attempt() -> dict[TopicPartition, tuple[ProducerState, ...]]:
            missing = [key for key in positions if key not in found]
            asked = self._router.by_leader(missing) if broker_id is None else {broker_id: missing}
            for node_id, keys in asked.items():
                for part in in_batches(keys, DESCRIBED_PARTITIONS):
                    states, error = describe_producers(self._router.broker_connection(node_id), part)
                    found.update(states)
                    if error is not None:
                        raise error
            return {key: found[key] for key in positions}

        return self._router.retry(
            attempt, RETRIABLE_ERRORS if broker_id is None else RETRIABLE_ERRORS - NOT_LEADER_ERRORS
        )

    def abort(self, position: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Write an abort marker for a producer's transaction into one partition, bypassing its coordinator.

        Raises TopicNotFound, KafkaError INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """

        def attempt() -> None:
            connection = self._router.retry(lambda: self._router.connection(self._router.leader(*position)))
            write_abort_marker(
                connection,
                position,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
            )

        self._router.retry(attempt, NOT_LEADER_ERRORS)

    def terminate(self, transactional_id: str, timeout_ms: int) -> tuple[int, int]:
        """Abort the open transaction of a transactional id and fence its producers; returns after its completion.

        An unknown id is created. `timeout_ms` is the new transaction timeout of the id. Returns the producer id and
        epoch, which now belong to the caller.
        """

        def attempt() -> tuple[int, int]:
            connection = self.connection(transactional_id)
            return fence(connection, transactional_id, timeout_ms)

        return self._router.retry(attempt, FENCE_ERRORS)

    def connection(self, transactional_id: str) -> Connection:
        """A connection to the coordinator of a transactional id, valid until closed or NOT_COORDINATOR."""
        return self._router.retry(
            lambda: self._router.connection(
                coordinator_of(self._router, CoordinatorType.TRANSACTION, transactional_id).node_id
            )
        )
