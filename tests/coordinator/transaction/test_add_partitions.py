"""AddPartitionsToTxn and AddOffsetsToTxn from clients and brokers, and `verify_only`."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinator.transaction.state import TransactionState
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

from ..answers import Answer
from .conversation import ID, LAST_EPOCH, Conversation, codes
from .test_end_txn import at

E = TransactionState
NONE = ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_partitions_add_up(talk: Conversation, version: int) -> None:
    producer = talk.producer()
    assert talk.added(producer, ("t", 0), ("t", 3), version=version) == [NONE, NONE]
    began_ms = talk.metadata().start_ms
    talk.time.advance(1)
    assert talk.added(producer, ("u", 1), version=version) == [NONE]
    metadata = talk.metadata()
    assert metadata.partitions == {("t", 0), ("t", 3), ("u", 1)}
    assert (metadata.start_ms, metadata.last_update_ms) == (began_ms, began_ms + 1000)
    assert metadata.client_version == (2 if version >= 4 else 0)


def test_existing_partitions_are_not_written_again(talk: Conversation) -> None:
    producer = talk.producer()
    talk.add(producer, ("t", 0), ("t", 1), version=5)
    before = len(talk.records())
    assert talk.added(producer, ("t", 1), version=5) == [NONE]
    assert len(talk.records()) == before


@pytest.mark.parametrize("state", [E.EMPTY, E.COMPLETE_COMMIT, E.COMPLETE_ABORT])
def test_add_after_an_end_opens_a_transaction(talk: Conversation, state: TransactionState) -> None:
    """A transaction that a late AddPartitions opened is ended by the timeout (KAFKA-12671)."""
    at(talk, state)
    talk.markers.prompt = True
    assert talk.added((77, 5), ("t", 1)) == [NONE]
    assert talk.metadata().start_ms == talk.time.time_ms()
    assert talk.metadata().partitions == {("t", 1)}
    talk.time.advance(75)
    assert talk.state() == "CompleteAbort"


@pytest.mark.parametrize("state", [E.PREPARE_COMMIT, E.PREPARE_ABORT])
@pytest.mark.parametrize("producer", [(77, 5), (77, 4), (78, 5)])
def test_add_while_a_transaction_ends_is_concurrent(
    talk: Conversation, state: TransactionState, producer: tuple[int, int]
) -> None:
    at(talk, state)
    before = talk.metadata()
    assert talk.added(producer) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert talk.add_offsets(producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert talk.metadata() is before


@pytest.mark.parametrize(
    ("producer", "error"),
    [
        ((78, 5), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ((77, 4), ErrorCode.PRODUCER_FENCED),
        ((77, 6), ErrorCode.PRODUCER_FENCED),
        ((77, LAST_EPOCH + 1), ErrorCode.PRODUCER_FENCED),
        ((-1, -1), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_wrong_producer_adds_nothing(talk: Conversation, producer: tuple[int, int], error: ErrorCode) -> None:
    at(talk, E.ONGOING)
    before = talk.metadata()
    assert talk.added(producer, ("t", 5), ("u", 5)) == [error, error]
    assert talk.add_offsets(producer).error is error
    assert talk.metadata() is before


def test_fencing_epoch_opens_no_transaction(talk: Conversation) -> None:
    at(talk, E.COMPLETE_ABORT, epoch=LAST_EPOCH + 1)
    assert talk.added((77, LAST_EPOCH + 1)) == [ErrorCode.PRODUCER_FENCED]


@pytest.mark.parametrize("version", [3, 5])
def test_unknown_id_has_no_mapping(talk: Conversation, version: int) -> None:
    assert talk.added((1, 0), version=version) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert talk.added((1, 0), version=version, transactional_id="") == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(("version", "error"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_clients_before_kip_588_get_the_old_error(talk: Conversation, version: int, error: ErrorCode) -> None:
    at(talk, E.ONGOING)
    assert talk.added((77, 4), version=version) == [error]
    assert talk.add_offsets((77, 4), version=version).error is error


@pytest.mark.parametrize("unknown", [("nowhere", 0), ("t", 8), ("t", -1)])
def test_one_missing_partition_rejects_all(talk: Conversation, unknown: tuple[str, int]) -> None:
    producer = talk.producer()
    assert talk.added(producer, ("u", 0), unknown) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ]
    assert talk.state() == "Empty"


@pytest.mark.parametrize("version", [4, 5])
def test_verify_only_adds_nothing(talk: Conversation, version: int) -> None:
    producer = talk.producer()
    talk.add(producer, ("t", 0), ("t", 1))
    before = talk.metadata()
    assert talk.added(producer, ("t", 0), ("u", 7), version=version, verify_only=True) == [
        NONE,
        ErrorCode.TRANSACTION_ABORTABLE,
    ]
    assert talk.metadata() is before


@pytest.mark.parametrize(
    ("state", "producer", "error"),
    [
        (E.ONGOING, (78, 5), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (E.ONGOING, (77, 6), ErrorCode.PRODUCER_FENCED),
        (E.PREPARE_COMMIT, (77, 5), ErrorCode.CONCURRENT_TRANSACTIONS),
        (E.PREPARE_ABORT, (77, 6), ErrorCode.PRODUCER_FENCED),
        (E.COMPLETE_COMMIT, (77, 5), ErrorCode.TRANSACTION_ABORTABLE),
        (E.EMPTY, (77, 5), ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_verify_only_errors(
    talk: Conversation, state: TransactionState, producer: tuple[int, int], error: ErrorCode
) -> None:
    at(talk, state)
    assert talk.added(producer, ("t", 0), version=5, verify_only=True) == [error]


def test_verify_only_sees_partitions_being_added(talk: Conversation) -> None:
    """Otherwise a client that got a success response would be rejected (KAFKA-18575)."""
    producer = talk.producer()
    talk.log.commits = False
    added = talk.add(producer, ("t", 0), settle=False)
    asked = talk.add(producer, ("t", 0), version=5, verify_only=True)
    assert added.pending
    assert asked.pending, "the partitions it saw are uncommitted"
    talk.log.commit(0, talk.log.end[0])
    assert codes(added) == codes(asked) == [NONE]


def test_broker_verifies_several_transactions(talk: Conversation) -> None:
    producers = [talk.producer(f"id-{index}") for index in range(200)]
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=f"id-{index}",
                producer_id=producer[0],
                producer_epoch=producer[1] + index % 2,
                topics=[AddPartitionsToTxnTopic(name="t", partitions=[index % 8])],
            )
            for index, producer in enumerate(producers)
        ]
    )
    answer: Answer[object] = Answer()
    talk.coordinator.add_partitions_to_txn(5, request, answer)
    talk.time.settle()
    assert codes(answer) == [NONE, ErrorCode.PRODUCER_FENCED] * 100
    results = answer.response.results_by_transaction  # type: ignore[attr-defined]
    assert [each.transactional_id for each in results] == [f"id-{index}" for index in range(200)]


def test_a_request_without_transactions_is_answered(talk: Conversation) -> None:
    answer: Answer[object] = Answer()
    talk.coordinator.add_partitions_to_txn(5, AddPartitionsToTxnRequest(), answer)
    assert answer.response.results_by_transaction == []  # type: ignore[attr-defined]


def test_local_call_equals_the_request(talk: Conversation) -> None:
    producer_id, epoch = talk.producer()
    found: list[object] = []
    for verify_only in (False, True):
        talk.coordinator.add_or_verify(
            ID,
            producer_id,
            epoch,
            [("t", 0), ("u", 1)],
            verify_only=verify_only,
            api_version=5,
            done=found.append,
        )
        talk.time.settle()
    assert found == [{("t", 0): NONE, ("u", 1): NONE}] * 2
    assert talk.metadata().client_version == 2


@pytest.mark.parametrize("version", [0, 4])
def test_offsets_are_added_by_the_partition_of_their_group(talk: Conversation, version: int) -> None:
    producer = talk.producer()
    assert talk.add_offsets(producer, "seven77", version=version).error is NONE
    assert talk.metadata().partitions == {("__consumer_offsets", 7)}
