"""Transaction requests (KIP-664): one exchange each, on a given connection.

ListTransactions is sent to every broker, DescribeProducers and WriteTxnMarkers to a replica of the partition, the
others to the coordinator of the transactional id. They do not retry, and raise KafkaError.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import TopicNotFound, raise_for, response_error
from ottla.client.wire.model import (
    NO_OFFSET,
    Position,
    ProducerState,
    TransactionDescription,
    TransactionFilters,
    TransactionListing,
)
from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.topic_partition import by_topic
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
    connection: Connection, positions: Iterable[Position]
) -> tuple[dict[Position, tuple[ProducerState, ...]], KafkaError | None]:
    """The producers of the partitions that succeeded, and the first failure of the others."""
    topics = [
        DescribeProducersTopic(name=topic, partition_indexes=indexes) for topic, indexes in by_topic(positions).items()
    ]
    request = DescribeProducersRequest(topics=topics)
    response: DescribeProducersResponse = connection.request(ApiKey.DESCRIBE_PRODUCERS, request)
    producers: dict[Position, tuple[ProducerState, ...]] = {}
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
    connection: Connection, position: Position, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
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


def in_batches(positions: Sequence[Position], size: int) -> Iterable[Sequence[Position]]:
    """Batches of at most `size`, so that the size of a request does not depend on the cluster."""
    return (positions[start : start + size] for start in range(0, len(positions), size))
