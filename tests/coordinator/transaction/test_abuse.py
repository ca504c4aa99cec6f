"""Hostile clients: Apache Kafka's error, no change of state, limited work and memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest

from ..answers import Answer
from .conversation import ID, LAST_EPOCH, Conversation, codes, image_of

INT16 = st.integers(-(2**15), 2**15 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

FOREIGN = [
    (4001, 0),
    (-1, 0),
    (0, 0),
    (2**63 - 1, 0),
    (-(2**63), 0),
    (4000, 1),
    (4000, -1),
    (4000, LAST_EPOCH),
    (4000, LAST_EPOCH + 1),
    (4000, -(2**15)),
]


@pytest.mark.parametrize("producer", FOREIGN)
@pytest.mark.parametrize("state", ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"])
def test_a_foreign_producer_id_or_epoch_changes_nothing(
    talk: Conversation, producer: tuple[int, int], state: str
) -> None:
    owner = talk.producer()
    if state != "Empty":
        talk.add(owner, ("t", 0), version=3)
    if state.startswith(("Prepare", "Complete")):
        talk.markers.prompt = state.startswith("Complete")
        talk.end(owner, version=4)
    assert talk.state() == state
    before = talk.metadata()
    for version in (0, 3, 5):
        assert talk.added(producer, ("u", 7), version=version) != [ErrorCode.NONE]
    assert talk.added(producer, ("u", 7), version=5, verify_only=True) != [ErrorCode.NONE]
    assert talk.add_offsets(producer).error is not ErrorCode.NONE
    for version in (0, 4, 5):
        for committed in (True, False):
            assert talk.end(producer, committed=committed, version=version).error is not ErrorCode.NONE
    if producer[0] != owner[0]:
        assert talk.init(producer=producer).error is not ErrorCode.NONE
    assert talk.metadata() is before


@settings(max_examples=300, deadline=None)
@given(
    producer=st.tuples(INT64, INT16),
    timeout_ms=st.integers(-(2**31), 2**31 - 1),
    version=st.integers(0, 5),
    committed=st.booleans(),
    level=st.integers(0, 2),
    known=st.booleans(),
    epoch=st.sampled_from([0, LAST_EPOCH - 1, LAST_EPOCH, LAST_EPOCH + 1]),
)
def test_any_numbers_in_a_request_are_handled(
    producer: tuple[int, int],
    timeout_ms: int,
    version: int,
    committed: bool,
    level: int,
    known: bool,
    epoch: int,
) -> None:
    talk = Conversation(transaction_version=level)
    if known:
        talk.producer()
        metadata = talk.metadata()
        talk.put(metadata._replace(producer_id=max(0, producer[0]), producer_epoch=epoch))
    for _ in range(2):
        talk.init(producer=producer, timeout_ms=timeout_ms, version=version)
        talk.add(producer, ("t", 0), version=version)
        talk.add_offsets(producer, version=min(version, 4))
        talk.end(producer, committed=committed, version=version)
        talk.time.advance(80)
    for name, each in talk.shard.transactions.items():
        assert name == ID
        assert each.producer_id >= 0
        assert 0 <= each.producer_epoch <= LAST_EPOCH + 1
    before = dict(talk.shard.transactions)
    talk.restart()
    assert dict(talk.shard.transactions).keys() == before.keys()


@pytest.mark.parametrize("text", ["\0", "x" * 32_767, "ü" * 16_383, "\ud7ff", "日本" * 5000, "a\nb"])
def test_any_text_that_fits_is_an_id(talk: Conversation, text: str) -> None:
    producer = talk.producer(text)
    assert talk.added(producer, transactional_id=text, version=5) == [ErrorCode.NONE]
    talk.restart()
    assert text in talk.shard.transactions


def test_request_with_many_transactions_runs_in_slices(talk: Conversation) -> None:
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=f"id-{index}",
                producer_id=1,
                topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
            for index in range(20_000)
        ]
    )
    answer: Answer[object] = Answer()
    talk.coordinator.add_partitions_to_txn(5, request, answer)
    assert answer.pending, "it runs in slices, not at once"
    talk.time.settle()
    assert set(codes(answer)) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert not talk.shard.transactions


def test_describe_and_list_of_many_ids_run_in_slices(talk: Conversation) -> None:
    described: Answer[object] = Answer()
    talk.coordinator.describe_transactions(0, DescribeTransactionsRequest(transactional_ids=["x"] * 20_000), described)
    listed: Answer[object] = Answer()
    talk.coordinator.list_transactions(2, ListTransactionsRequest(), listed)
    assert described.pending
    assert listed.pending
    talk.time.settle()
    assert len(described.response.transaction_states) == 20_000  # type: ignore[attr-defined]
    assert not listed.pending


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+$", "(.*a){25}", "(x+x+)+y"])
def test_hostile_pattern_takes_linear_time(talk: Conversation, pattern: str) -> None:
    """Each of these takes exponential time in a backtracking engine."""
    talk.producer("a" * 3000)
    talk.producer("x" * 3000)
    response = talk.list(transactional_id_pattern=pattern)
    assert ErrorCode(response.error_code) in (ErrorCode.NONE, ErrorCode.INVALID_REGULAR_EXPRESSION)


def test_repeated_requests_write_nothing(talk: Conversation) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.end(producer)
    records = len(talk.records())
    for _ in range(50):
        talk.end(producer)
        talk.end(producer, committed=False)
        talk.add(producer, version=5)
        talk.init(producer=(producer[0] + 5, 0))
        talk.init(timeout_ms=0)
    assert len(talk.records()) == records


def test_unused_id_costs_one_record_and_expires(talk: Conversation) -> None:
    for index in range(1000):
        talk.init(f"id-{index}", settle=False)
    talk.time.settle()
    assert len(talk.records()) == 1000
    assert talk.time.armed == 2, "no timer for each"
    talk.time.advance(8 * 24 * 3600)
    assert not talk.shard.transactions


def test_partitions_added_after_the_end_expire_by_timeout(talk: Conversation) -> None:
    producer = talk.producer()
    talk.markers.prompt = False
    talk.add(producer, ("t", 0), version=3)
    talk.end(producer, version=4)
    assert talk.added(producer, ("u", 0), version=3) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert talk.metadata().partitions == {("t", 0)}
    talk.markers.written()
    talk.time.settle()
    talk.markers.prompt = True
    assert talk.added(producer, ("u", 0), version=3) == [ErrorCode.NONE]
    talk.time.advance(75)
    assert talk.state() == "CompleteAbort"
    assert talk.markers.sent[-1].partitions == {("u", 0)}


@pytest.mark.parametrize("limit", [*range(2510, 2560, 4), 4000])
def test_a_transaction_of_any_accepted_size_can_be_ended(talk: Conversation, limit: int) -> None:
    """Its last records are larger than its first: one at the limit could neither end nor expire."""
    talk.image = image_of(t=600)
    producer, honest = talk.producer(), talk.producer("honest")
    talk.log.batch_bytes = limit
    found = set(talk.added(producer, *[("t", number) for number in range(600)], version=3))
    assert found <= {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR}
    if found != {ErrorCode.NONE}:
        assert talk.state() == "Empty"
        assert talk.added(producer, ("t", 0), version=3) == [ErrorCode.NONE]
    assert talk.end(producer).error is ErrorCode.NONE
    assert talk.added(honest, transactional_id="honest", version=3) == [ErrorCode.NONE]
