"""Transactions on one broker, from the first request to what consumers see: coordinator, partitions and markers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinator.transaction.state import TransactionState
from ottla.metadata.image import transaction_version
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from .harness import Connection, Server
from .transactional import TRANSACTION, TransactionalProducer, completed, find_coordinator, latest, read, until


@pytest.fixture
def client(make_server: Callable[..., Server]) -> Connection:
    server = make_server(transaction_state_log_num_partitions="3")
    client = server.connect()
    (coordinator,) = find_coordinator(client, "t")
    assert (coordinator.error_code, coordinator.node_id) == (0, 1)
    return client


def producer(client: Connection, transactional_id: str = "t", *, version: int = 2) -> TransactionalProducer:
    made = TransactionalProducer(client, transactional_id, version=version)
    assert made.init() is ErrorCode.NONE
    return made


def test_coordinator_topic_is_created_with_the_settings(client: Connection) -> None:
    image = client.server.broker.contexts.groups.metadata.image
    topic = image.topic("__transaction_state")
    assert topic is not None
    assert len(topic.partitions) == 3
    assert image.topic_configs("__transaction_state") == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": str(100 * 1024**2),
        "unclean.leader.election.enable": "false",
    }


@pytest.mark.parametrize("factor", ["1", "2"])
def test_a_replication_factor_that_is_set_is_enforced(make_server: Callable[..., Server], factor: str) -> None:
    client = make_server(transaction_state_log_replication_factor=factor, transaction_state_log_min_isr="1").connect()
    (coordinator,) = find_coordinator(client, "t")
    assert coordinator.error_code == (ErrorCode.NONE if factor == "1" else ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if factor == "1":
        image = client.server.broker.contexts.groups.metadata.image
        assert image.topic_configs("__transaction_state")["min.insync.replicas"] == "1"


def test_a_timeout_above_the_longest_is_refused(make_server: Callable[..., Server]) -> None:
    client = make_server(transaction_max_timeout_ms="5000").connect()
    find_coordinator(client, "t")
    made = TransactionalProducer(client)
    assert [made.init(timeout_ms) for timeout_ms in (5001, 0, -1)] == [ErrorCode.INVALID_TRANSACTION_TIMEOUT] * 3
    assert made.init(5000) is ErrorCode.NONE


def test_transaction_ends_before_the_producers_next_request(client: Connection) -> None:
    client.create_topic("a")
    made = producer(client)
    assert made.produce("a", b"1").error_code == 0
    runtime = client.server.broker.parts.transactions.runtime
    states: list[TransactionState] = []

    def look() -> None:
        shard = runtime.active_shard(runtime.partition_for("t"))
        assert shard is not None
        states.append(shard.transactions["t"].state)

    request = EndTxnRequest(transactional_id="t", producer_id=made.producer_id, producer_epoch=made.producer_epoch)
    client.send(request, 5)
    client.server.loop.call_soon(look)
    assert client.answer().error_code == 0
    assert states == [TransactionState.COMPLETE_ABORT], "before the next request that the loop reads"


@pytest.mark.promise("T8")
@pytest.mark.parametrize("version", [1, 2])
def test_abandoned_transaction_is_aborted(make_server: Callable[..., Server], version: int) -> None:
    client = make_server(transaction_abort_timed_out_transaction_cleanup_interval_ms="20").connect()
    client.create_topic("a")
    find_coordinator(client, "t")
    abandoned = TransactionalProducer(client, version=version)
    assert abandoned.init(timeout_ms=50) is ErrorCode.NONE
    assert abandoned.begin(("a", 0)) == [ErrorCode.NONE]
    until(client, lambda: abandoned.state().transaction_state == "CompleteAbort")
    assert latest(client, "a") == 1, "the marker"
    assert abandoned.end() in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


def test_unused_transactional_id_expires(make_server: Callable[..., Server]) -> None:
    client = make_server(
        transactional_id_expiration_ms="30", transaction_remove_expired_transaction_cleanup_interval_ms="20"
    ).connect()
    client.create_topic("a")
    find_coordinator(client, "t")
    idle, busy = producer(client, "idle", version=1), producer(client, "busy", version=1)
    assert busy.begin(("a", 0)) == [ErrorCode.NONE]
    until(client, lambda: idle.state().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert busy.state().transaction_state == "Ongoing"


def test_coordinator_gauges_are_rendered(client: Connection) -> None:
    client.create_topic("a")
    one, _ = producer(client, "one", version=1), producer(client, "two")
    one.begin(("a", 0))

    def gauge(name: str, **labels: str) -> float:
        return client.server.registry.gauge(name, "", labels).current()

    assert gauge("kafka_server_transaction_coordinator_metrics_num_partitions", state="active") == 3
    assert gauge("ottla_transaction_coordinator_operations", operation="end-txn") == 0
    assert (gauge("ottla_transactional_ids"), gauge("ottla_transactions_open")) == (2, 1)
    for name in ("unknowndestinationqueuesize", "logappendretryqueuesize"):
        assert gauge(f"kafka_coordinator_transaction_transactionmarkerchannelmanager_{name}") == 0
    one.end()
    completed(one)
    assert gauge("ottla_transactions_open") == 0


def test_ended_transaction_has_a_marker_in_each_partition(client: Connection) -> None:
    client.create_topic("a", 2)
    client.create_topic("b")
    one = producer(client, version=1)
    assert one.begin(("a", 0), ("a", 1), ("b", 0)) == [ErrorCode.NONE] * 3
    assert one.state().transaction_state == "Ongoing"
    assert one.end() is ErrorCode.NONE
    completed(one)
    assert [latest(client, "a"), latest(client, "a", 1), latest(client, "b")] == [1, 1, 1]


def test_a_transactional_id_is_listed_and_survives_a_restart(client: Connection) -> None:
    first = producer(client, "one")
    producer(client, "two")
    client.server.restart()
    client = client.server.connect()
    client.coordinate("one", key_type=TRANSACTION)
    listed = client.ask(ListTransactionsRequest(), 2).transaction_states
    assert {(each.transactional_id, each.transaction_state) for each in listed} == {("one", "Empty"), ("two", "Empty")}
    again = producer(client, "one")
    assert (again.producer_id, again.producer_epoch) == (first.producer_id, first.producer_epoch + 1)


def test_adding_missing_or_unauthorized_partitions_adds_nothing(client: Connection) -> None:
    client.create_topic("t")
    one = producer(client, version=1)
    unknown, skipped = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert one.begin(("t", 0), ("nope", 0)) == [skipped, unknown]
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for internal in ("__consumer_offsets", "__transaction_state"):
        assert one.begin((internal, 0), ("t", 0)) == [refused, skipped]
    assert one.state().transaction_state == "Empty"


def test_a_broker_s_request_answers_each_transaction_for_itself(client: Connection) -> None:
    client.create_topic("t")
    one, two = producer(client, "one"), producer(client, "two")
    transactions = [
        AddPartitionsToTxnTransaction(
            transactional_id=each.transactional_id,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch + wrong,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        for each, topic, wrong in ((one, "t", 0), (two, "nope", 0), (two, "t", 1))
    ]
    answer = client.ask(AddPartitionsToTxnRequest(transactions=transactions), 5)
    codes = [
        result.topic_results[0].results_by_partition[0].partition_error_code for result in answer.results_by_transaction
    ]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.PRODUCER_FENCED]
    assert [each.state().transaction_state for each in (one, two)] == ["Ongoing", "Empty"]


def use_level(client: Connection, level: int) -> None:
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=1)
    if level < transaction_version(client.server.broker.contexts.groups.metadata.image):
        update.upgrade_type = 2
    assert client.ask(UpdateFeaturesRequest(feature_updates=[update]), 2).error_code == 0


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("version", [1, 2])
def test_the_level_changes_while_a_transaction_runs(client: Connection, before: int, after: int, version: int) -> None:
    """With any level assumed by the client: it learns of a change only with its next connection."""
    client.create_topic("a")
    use_level(client, before)
    one = producer(client, version=version)
    expected = []
    for number, level in enumerate((after, before, after)):
        if version == 1:
            assert one.begin(("a", 0)) == [ErrorCode.NONE]
        value = b"%d" % number
        assert one.produce("a", value).error_code == 0
        use_level(client, level)
        assert one.end(commit=number != 1) is ErrorCode.NONE
        completed(one)
        expected += [value] if number != 1 else []
    assert read(client, "a") == expected
    assert latest(client, "a") == latest(client, "a", committed=False)
    client.server.restart()
    client = client.server.connect()
    find_coordinator(client, "t")
    again = producer(client, version=version)
    assert (again.producer_id, again.producer_epoch > one.producer_epoch) == (one.producer_id, True)
    assert read(client, "a") == expected
