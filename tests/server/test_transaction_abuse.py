"""Broken and hostile clients in transactions: Kafka's error, no change of state, no growth."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.app.pool import MAX_THREADS
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.record.control import end_transaction_marker

from .harness import Connection, Server, produce_request
from .test_transactions import producer
from .test_write_txn_markers import codes, marker
from .transactional import TRANSACTION, TransactionalProducer, completed, find_coordinator, latest, read, until

BOTH = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def client(make_server: Callable[..., Server]) -> Connection:
    client = make_server(
        transaction_state_log_num_partitions="3",
        transaction_abort_timed_out_transaction_cleanup_interval_ms="20",
        add_partitions_to_txn_retry_backoff_max_ms="0",
    ).connect()
    client.create_topic("a")
    find_coordinator(client, "t")
    return client


def asked(client: Connection, other: TransactionalProducer, **changed: Any) -> dict[str, int]:
    """The codes of AddPartitionsToTxn, EndTxn and Produce with the identity of `other`, except for the changes."""
    of: dict[str, Any] = {
        "transactional_id": other.transactional_id,
        "producer_id": other.producer_id,
        "producer_epoch": other.producer_epoch,
    } | changed
    add = AddPartitionsToTxnRequest(
        **{f"v3_and_below_{name}": value for name, value in of.items()},
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="a", partitions=[0])],
    )
    end = EndTxnRequest(**of, committed=True)
    forged = TransactionalProducer(client, of["transactional_id"], version=other.version)
    forged.producer_id, forged.producer_epoch = of["producer_id"], of["producer_epoch"]
    return {
        "add": client.ask(add, 3).results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        "end": client.ask(end, 4).error_code,
        "end v2": client.ask(end, 5).error_code,
        "produce": forged.produce("a", b"forged").error_code,
    }


@BOTH
def test_a_foreign_producer_id_changes_nothing(client: Connection, version: int) -> None:
    mine, theirs = producer(client, "mine", version=version), producer(client, "theirs", version=version)
    wrong = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert asked(client, mine, producer_id=theirs.producer_id) == dict.fromkeys(("add", "end", "end v2"), wrong) | {
        "produce": wrong
    }
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # maybe, of another partition
    until(client, lambda: loading not in asked(client, mine, transactional_id="nobody's").values())
    assert asked(client, mine, transactional_id="nobody's") == dict.fromkeys(("add", "end", "end v2"), wrong) | {
        "produce": wrong
    }
    assert [each.state().transaction_state for each in (mine, theirs)] == ["Empty", "Empty"]
    assert latest(client, "a", committed=False) == 0


@BOTH
def test_a_wrong_epoch_changes_nothing(client: Connection, version: int) -> None:
    zombie = producer(client, version=version)
    current = producer(client, version=version)
    assert current.producer_epoch == zombie.producer_epoch + 1
    if version == 1:
        current.begin(("a", 0))
    assert current.produce("a", b"mine").error_code == 0
    for epoch in (zombie.producer_epoch, current.producer_epoch + 1, 32767, -1):
        answers = asked(client, current, producer_epoch=epoch)
        assert {answers["add"], answers["end"]} == {ErrorCode.PRODUCER_FENCED}, epoch
        assert answers["end v2"] in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE), epoch
        assert answers["produce"] != 0, epoch
    assert current.state().transaction_state == "Ongoing"
    assert current.end() is ErrorCode.NONE
    completed(current)
    assert read(client, "a") == [b"mine"]


@contextmanager
def disk_that_stands_still(server: Server) -> Iterator[None]:
    """The pool completes nothing, so no fsync ends."""
    release = threading.Event()
    for _ in range(MAX_THREADS):
        server.pool.submit(release.wait, lambda result, error: None)
    try:
        yield
    finally:
        release.set()


@BOTH
def test_nothing_is_added_while_a_transaction_ends(client: Connection, version: int) -> None:
    client.create_topic("slow", flush_messages="1")
    ending = producer(client, version=version)
    if version == 1:
        ending.begin(("slow", 0))
    assert ending.produce("slow", b"one").error_code == 0
    before = ending.producer_epoch
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    with disk_that_stands_still(client.server):
        assert ending.end() is ErrorCode.NONE
        assert ending.state().transaction_state == "PrepareCommit"
        assert latest(client, "slow") == 0, "a decided transaction blocks consumers until its marker is written"
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=ending.producer_id,
            v3_and_below_producer_epoch=ending.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="a", partitions=[0])],
        )
        (topic,) = client.ask(add, 3).results_by_topic_v3_and_below
        assert topic.results_by_partition[0].partition_error_code == concurrent
        init = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        assert client.ask(init, 5).error_code == concurrent
        contrary = EndTxnRequest(
            transactional_id="t", producer_id=ending.producer_id, producer_epoch=before, committed=False
        )
        assert client.ask(contrary, 4).error_code == (concurrent if version == 1 else ErrorCode.PRODUCER_FENCED)
        assert ending.state().transaction_state == "PrepareCommit"
    completed(ending)
    assert read(client, "slow") == [b"one"]
    assert latest(client, "a", committed=False) == 0


def test_late_added_transaction_is_aborted_by_the_timeout(client: Connection) -> None:
    late = TransactionalProducer(client, version=1)
    assert late.init(timeout_ms=60) is ErrorCode.NONE
    late.begin(("a", 0))
    assert late.produce("a", b"in time").error_code == 0
    assert late.end() is ErrorCode.NONE
    completed(late)
    assert late.begin(("a", 0)) == [ErrorCode.NONE]
    until(client, lambda: late.state().transaction_state == "CompleteAbort")
    assert read(client, "a") == [b"in time"]
    assert latest(client, "a") == latest(client, "a", committed=False)


@BOTH
def test_a_control_batch_of_a_client_is_refused(client: Connection, version: int) -> None:
    honest = producer(client, version=version)
    if version == 1:
        honest.begin(("a", 0))
    assert honest.produce("a", b"mine").error_code == 0
    end = latest(client, "a", committed=False)
    forged = end_transaction_marker(
        commit=True,
        timestamp_ms=0,
        producer_id=honest.producer_id,
        producer_epoch=honest.producer_epoch,
        coordinator_epoch=0,
    )
    unauthorized = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for transactional_id, code in (("t", ErrorCode.INVALID_RECORD), (None, unauthorized)):
        request = produce_request("a", records=bytes(forged))
        request.transactional_id = transactional_id
        (topic,) = client.ask(request, 12).responses
        assert topic.partition_responses[0].error_code == code
    assert latest(client, "a", committed=False) == end
    assert latest(client, "a") == 0
    assert honest.end(commit=False) is ErrorCode.NONE
    completed(honest)
    assert read(client, "a") == []


@BOTH
def test_markers_of_a_fenced_coordinator_end_nothing(client: Connection, version: int) -> None:
    open_one = producer(client, version=version)
    for coordinator_epoch in (7, 6):
        codes(client, marker(999, ("a", [0]), coordinator_epoch=coordinator_epoch))
    if version == 1:
        open_one.begin(("a", 0))
    assert open_one.produce("a", b"mine").error_code == 0
    start = latest(client, "a")
    older = open_one.producer_epoch - 1
    answer = codes(client, marker(open_one.producer_id, ("a", [0]), epoch=older, transaction_result=False))
    assert answer[open_one.producer_id]["a", 0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert latest(client, "a") == start, "still open"
    assert open_one.end() is ErrorCode.NONE
    completed(open_one)
    assert read(client, "a") == [b"mine"]


def test_many_transactional_ids_are_bounded_by_expiry(make_server: Callable[..., Server]) -> None:
    client = make_server(
        transaction_state_log_num_partitions="1",
        transactional_id_expiration_ms="1",
        transaction_remove_expired_transaction_cleanup_interval_ms="20",
    ).connect()
    client.coordinate("t", key_type=TRANSACTION)
    for number in range(3000):
        init = InitProducerIdRequest(transactional_id=f"id-{number}", transaction_timeout_ms=1000)
        assert client.ask(init, 5).error_code == 0
    until(client, lambda: not client.ask(ListTransactionsRequest(), 2).transaction_states)
    for _, shard in client.server.broker.parts.transactions.runtime.active_shards():
        assert (len(shard.transactions), shard.open_count) == (0, 0)
    assert client.server.broker.parts.transaction_markers.pending_count == 0
