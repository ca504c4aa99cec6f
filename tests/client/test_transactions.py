"""Requests about transactions against a scripted broker: retries, older versions, rejections."""

from __future__ import annotations

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.failure import TopicNotFound
from ottla.client.wire.model import TransactionFilters, TransactionListing
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_producers import (
    ActiveProducer,
    DescribeProducersPartition,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsResponse, TransactionState
from ottla.protocol.messages.find_coordinator import FindCoordinatorResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.list_transactions import ListedTransaction, ListTransactionsResponse
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from ottla.protocol.registry import ApiKey

LAST_OF_ONE_KEY = 3


@pytest.fixture
def cluster(scripted):
    """One broker that leads `t-0` and `t-1` and coordinates everything."""
    scripted.versions[ApiKey.FIND_COORDINATOR] = (0, LAST_OF_ONE_KEY)
    scripted.answers[ApiKey.METADATA] = lambda version, request: MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=scripted.port)],
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name="t",
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1])
                    for index in (0, 1)
                ],
            )
        ],
    )
    scripted.answers[ApiKey.FIND_COORDINATOR] = lambda version, request: FindCoordinatorResponse(
        node_id=1, host="127.0.0.1", port=scripted.port
    )
    with Cluster(scripted.address, timeout_s=5) as made:
        yield made


def in_turn(*answers):
    """Responses in order; the last one is repeated."""
    left = list(answers)
    return lambda version, request: left.pop(0) if len(left) > 1 else left[0]


def markers(code: int) -> WriteTxnMarkersResponse:
    result = WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
    topic = WritableTxnMarkerTopicResult(name="t", partitions=[result])
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7, topics=[topic])])


def sent(scripted, key: ApiKey) -> list:
    return [request for api_key, _, request in scripted.requests if api_key == key]


def test_filters_travel_and_transactions_come_in_order(cluster, scripted):
    scripted.answers[ApiKey.LIST_TRANSACTIONS] = lambda version, request: ListTransactionsResponse(
        transaction_states=[
            ListedTransaction(transactional_id="b", producer_id=2, transaction_state="Ongoing"),
            ListedTransaction(transactional_id="a", producer_id=1, transaction_state="Empty"),
        ]
    )
    filters = TransactionFilters(("Ongoing", "Empty"), (1, 2), 60_000, "[ab]")
    assert cluster.transactions.find(filters) == [
        TransactionListing("a", 1, "Empty", 1),
        TransactionListing("b", 2, "Ongoing", 1),
    ]
    [request] = sent(scripted, ApiKey.LIST_TRANSACTIONS)
    assert (request.state_filters, request.producer_id_filters) == (["Ongoing", "Empty"], [1, 2])
    assert (request.duration_filter, request.transactional_id_pattern) == (60_000, "[ab]")


def test_a_filter_that_an_older_broker_does_not_know_is_an_error(cluster, scripted):
    scripted.versions[ApiKey.LIST_TRANSACTIONS] = (0, 0)
    with pytest.raises(KafkaError) as failure:
        cluster.transactions.find(TransactionFilters(min_duration_ms=1))
    assert failure.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_coordinator_that_loads_is_asked_again(cluster, scripted):
    loading = TransactionState(transactional_id="x", error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    known = TransactionState(transactional_id="x", transaction_state="Empty", transaction_start_time_ms=-1)
    scripted.answers[ApiKey.DESCRIBE_TRANSACTIONS] = in_turn(
        DescribeTransactionsResponse(transaction_states=[loading]),
        DescribeTransactionsResponse(transaction_states=[known]),
    )
    found = cluster.transactions.describe("x")
    assert (found.state, found.start_ms, found.partitions) == ("Empty", None, ())
    assert {request.key_type for request in sent(scripted, ApiKey.FIND_COORDINATOR)} == {1}


def test_unknown_transactional_id_is_named(cluster, scripted):
    unknown = TransactionState(transactional_id="x", error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    scripted.answers[ApiKey.DESCRIBE_TRANSACTIONS] = in_turn(DescribeTransactionsResponse(transaction_states=[unknown]))
    with pytest.raises(KafkaError, match="transactional id 'x' does not exist"):
        cluster.transactions.describe("x")


def test_producers_of_one_replica_are_asked_once(cluster, scripted):
    """Another broker than the leader was named: its refusal is the answer."""
    refused = DescribeProducersPartition(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    answered = DescribeProducersPartition(
        partition_index=1,
        active_producers=[ActiveProducer(producer_id=9), ActiveProducer(producer_id=7, coordinator_epoch=-1)],
    )
    scripted.answers[ApiKey.DESCRIBE_PRODUCERS] = lambda version, request: DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResponse(
                name="t",
                partitions=[
                    each for each in (refused, answered) if each.partition_index in request.topics[0].partition_indexes
                ],
            )
        ]
    )
    found = cluster.transactions.producers([("t", 1)])["t", 1]
    assert [(each.producer_id, each.transaction_start_offset) for each in found] == [(7, None), (9, None)]
    assert found[0].coordinator_epoch is None
    before = len(sent(scripted, ApiKey.DESCRIBE_PRODUCERS))
    with pytest.raises(KafkaError, match="t-0: the broker has no online replica of it"):
        cluster.transactions.producers([("t", 0), ("t", 1)], 1)
    assert len(sent(scripted, ApiKey.DESCRIBE_PRODUCERS)) == before + 1
    with pytest.raises(KafkaError, match="broker '5' does not exist"):
        cluster.transactions.producers([("t", 0)], 5)


def test_abort_is_repeated_only_at_a_new_leader(cluster, scripted):
    ids = {"producer_id": 7, "producer_epoch": 3, "coordinator_epoch": 12}
    scripted.answers[ApiKey.WRITE_TXN_MARKERS] = in_turn(markers(ErrorCode.NOT_LEADER_OR_FOLLOWER), markers(0))
    cluster.transactions.abort(("t", 0), **ids)
    first, second = sent(scripted, ApiKey.WRITE_TXN_MARKERS)
    assert first == second
    [marker] = second.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 12)
    assert marker.transaction_result is False

    for code, words in (
        (ErrorCode.INVALID_PRODUCER_EPOCH, "another epoch of this producer"),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, "newer epoch of the coordinator"),
        (ErrorCode.REQUEST_TIMED_OUT, "request timed out"),
    ):
        scripted.answers[ApiKey.WRITE_TXN_MARKERS] = in_turn(markers(code))
        before = len(sent(scripted, ApiKey.WRITE_TXN_MARKERS))
        with pytest.raises(KafkaError, match=words):
            cluster.transactions.abort(("t", 0), **ids)
        assert len(sent(scripted, ApiKey.WRITE_TXN_MARKERS)) == before + 1
    with pytest.raises(TopicNotFound):
        cluster.transactions.abort(("t", 2), **ids)


def test_a_termination_waits_for_the_end_of_the_transaction(cluster, scripted):
    scripted.answers[ApiKey.INIT_PRODUCER_ID] = in_turn(
        InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS),
        InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR),
        InitProducerIdResponse(producer_id=7, producer_epoch=5),
    )
    cluster.transactions.terminate("x", 45_000)
    asked = sent(scripted, ApiKey.INIT_PRODUCER_ID)
    assert [(each.transactional_id, each.transaction_timeout_ms) for each in asked] == [("x", 45_000)] * 3
    scripted.answers[ApiKey.INIT_PRODUCER_ID] = in_turn(
        InitProducerIdResponse(error_code=ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    )
    with pytest.raises(KafkaError, match="transactional id 'x': invalid transaction timeout"):
        cluster.transactions.terminate("x", 1 << 30)
