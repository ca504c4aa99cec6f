"""Listing and describing transactional ids."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.patterns import MAX_PATTERN_BYTES
from ottla.coordinator.transaction.listing import EXAMINED_PER_STEP
from ottla.coordinator.transaction.state import TransactionState
from ottla.protocol.messages.list_transactions import ListTransactionsRequest

from ..answers import Answer
from .conversation import ID, TIMEOUT_MS, Conversation


@pytest.fixture
def listed(talk: Conversation) -> Conversation:
    """One id in each of four states."""
    talk.markers.prompt = False
    talk.producer("empty")
    for name in ("ongoing", "preparing", "complete"):
        producer = talk.producer(name)
        talk.add(producer, ("u", 1), ("t", 4), ("t", 2), transactional_id=name, version=5)
        if name != "ongoing":
            talk.end(producer, transactional_id=name)
        if name == "preparing":
            kept, talk.markers.out = talk.markers.out, []
    talk.markers.written()
    talk.markers.out = kept
    talk.time.settle()
    return talk


def ids(talk: Conversation, **filters: Any) -> list[str]:
    response = talk.list(**filters)
    assert response.error_code == 0
    return [each.transactional_id for each in response.transaction_states]


def test_states_have_the_numbers_and_names_of_apache_kafka() -> None:
    assert [(state.value, state.label) for state in TransactionState] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
    ]


def test_all_are_listed_with_producer_and_state(listed: Conversation) -> None:
    response = listed.list()
    assert [
        (each.transactional_id, each.producer_id, each.transaction_state) for each in response.transaction_states
    ] == [
        ("empty", 4000, "Empty"),
        ("ongoing", 4001, "Ongoing"),
        ("preparing", 4002, "PrepareCommit"),
        ("complete", 4003, "CompleteCommit"),
    ]


def test_unknown_state_filters_are_returned(listed: Conversation) -> None:
    response = listed.list(state_filters=["Ongoing", "PrepareCommit", "ongoing", "Asleep"])
    assert [each.transactional_id for each in response.transaction_states] == ["ongoing", "preparing"]
    assert response.unknown_state_filters == ["ongoing", "Asleep"]
    assert ids(listed, state_filters=["Asleep"]) == []


def test_filters_by_producer_id(listed: Conversation) -> None:
    assert ids(listed, producer_id_filters=[4001, 4003, 1]) == ["ongoing", "complete"]
    assert ids(listed, producer_id_filters=[4001], state_filters=["Empty"]) == []


def test_filters_by_duration(listed: Conversation) -> None:
    listed.time.advance(5)
    late = listed.producer("late")
    listed.add(late, transactional_id="late", version=5)
    assert ids(listed, duration_filter=5000) == ["empty"], "of one without a transaction the start is unknown: longer"
    assert ids(listed, duration_filter=4999) == ["empty", "ongoing", "preparing", "complete"]
    assert "late" not in ids(listed, duration_filter=0)
    assert "late" in ids(listed, duration_filter=-1)


def test_filters_by_pattern_match_the_whole_id(listed: Conversation) -> None:
    assert ids(listed, transactional_id_pattern=".*ing") == ["ongoing", "preparing"]
    assert ids(listed, transactional_id_pattern="ing") == []
    assert ids(listed, transactional_id_pattern="") == ["empty", "ongoing", "preparing", "complete"]
    listed.producer("größe")
    assert ids(listed, transactional_id_pattern="gr..e") == ["größe"]


@pytest.mark.parametrize(
    "pattern", ["(", "*a", "[z-a]", r"(a)\1", "x" * (MAX_PATTERN_BYTES + 1), "((a{100}){100}){100}"]
)
def test_invalid_pattern_is_rejected(listed: Conversation, pattern: str) -> None:
    response = listed.list(transactional_id_pattern=pattern)
    assert ErrorCode(response.error_code) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert response.transaction_states == []


def test_uncommitted_ids_are_not_listed(talk: Conversation) -> None:
    producer = talk.producer()
    talk.log.commits = False
    talk.add(producer, settle=False)
    talk.init("new", settle=False)
    assert [(each.transactional_id, each.transaction_state) for each in talk.list().transaction_states] == [
        (ID, "Empty")
    ]
    assert talk.describe(ID)[0].transaction_state == "Empty"
    assert ErrorCode(talk.describe("new")[0].error_code) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_many_ids_are_listed_in_steps(talk: Conversation) -> None:
    count = EXAMINED_PER_STEP * 3 + 1
    for index in range(count):
        talk.init(f"id-{index}")
    before = talk.runtime.statistics.operations["list-transactions"]
    assert len(ids(talk, transactional_id_pattern="id-.*")) == count
    assert talk.runtime.statistics.operations["list-transactions"] - before == 4


def test_id_deleted_during_a_listing_is_left_out(talk: Conversation) -> None:
    talk.producer()
    answer: Answer[object] = Answer()
    talk.coordinator.list_transactions(2, ListTransactionsRequest(), answer)
    talk.runtime.resign(0)
    talk.time.settle()
    assert answer.response.transaction_states == []  # type: ignore[attr-defined]


def test_listing_fails_while_loading(talk: Conversation) -> None:
    talk.producer()
    talk.runtime.resign(0)
    assert talk.list().transaction_states == []
    talk.log.leader_epoch[0] = 9
    talk.runtime.become_leader(0, 9)
    answer: Answer[object] = Answer()
    talk.coordinator.list_transactions(2, ListTransactionsRequest(), answer)
    assert answer.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert answer.response.transaction_states == []  # type: ignore[attr-defined]


def test_descriptions_are_per_id(listed: Conversation) -> None:
    ongoing, unknown, nothing, empty = listed.describe("ongoing", "unknown", "", "empty")
    assert ongoing.error_code == 0
    assert (ongoing.transactional_id, ongoing.transaction_state) == ("ongoing", "Ongoing")
    assert (ongoing.producer_id, ongoing.producer_epoch, ongoing.transaction_timeout_ms) == (4001, 0, TIMEOUT_MS)
    assert ongoing.transaction_start_time_ms == listed.time.time_ms()
    assert [(topic.topic, topic.partitions) for topic in ongoing.topics] == [("t", [2, 4]), ("u", [1])]
    assert (unknown.transactional_id, unknown.error_code) == ("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert nothing.error_code == ErrorCode.INVALID_REQUEST
    assert (empty.transaction_state, empty.transaction_start_time_ms, empty.topics) == ("Empty", -1, [])


def test_ids_of_other_coordinators_are_not_described(talk: Conversation) -> None:
    talk.producer()
    talk.runtime.resign(0)
    assert talk.describe(ID)[0].error_code == ErrorCode.NOT_COORDINATOR


def test_listing_fails_after_a_failed_load(talk: Conversation) -> None:
    talk.producer()
    talk.runtime.resign(0)
    talk.log.read_failures.append(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    talk.lead()
    assert ErrorCode(talk.list().error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.time.advance(5)
    assert [each.transactional_id for each in talk.list().transaction_states] == [ID]
