"""Failed and late appends, rejected markers, leader changes: every decided transaction ends."""

from __future__ import annotations

from functools import partial

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.runtime.runtime import DEFAULT_WRITE_TIMEOUT_MS
from ottla.coordinator.transaction.completion import RESUME_BACKOFF_MS, SLICE
from ottla.coordinator.transaction.records import encode_key, encode_value
from ottla.record.builder import RecordData, build_batch

from .conversation import ID, Conversation, codes

NONE = ErrorCode.NONE
WRITE_TIMEOUT_S = DEFAULT_WRITE_TIMEOUT_MS / 1000
BACKOFF_S = RESUME_BACKOFF_MS / 1000


def fail_next_append(talk: Conversation, code: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
    talk.log.append_failures.append(KafkaError(code))


def commit_all(talk: Conversation) -> None:
    talk.log.commits = True
    talk.log.commit(0, talk.log.end[0])
    talk.time.settle()


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.INVALID_REQUIRED_ACKS),
    ],
)
def test_failed_append_changes_nothing_and_fails_request(
    talk: Conversation, failure: ErrorCode, expected: ErrorCode
) -> None:
    producer = talk.producer()
    before = talk.metadata()
    for request in (
        lambda: talk.init(producer=producer).error,
        lambda: talk.added(producer)[0],
        lambda: talk.add_offsets(producer).error,
        lambda: talk.end(producer, committed=False).error,
    ):
        fail_next_append(talk, failure)
        assert request() is expected
        assert talk.metadata() is before
    talk.time.advance(60)
    assert not talk.markers.sent
    assert talk.added(producer, version=5) == [NONE]


def test_a_failed_append_of_a_new_id_leaves_no_id(talk: Conversation) -> None:
    fail_next_append(talk)
    assert talk.init().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ID not in talk.shard.transactions


@pytest.mark.promise("T7")
def test_failed_fencing_append_returns_retriable_error(talk: Conversation) -> None:
    """PRODUCER_FENCED with an epoch that was never stored would stop a producer without successor."""
    producer = talk.producer()
    fail_next_append(talk)
    new_instance = talk.init(settle=False)
    old_instance = talk.add(producer, settle=False, version=5)
    talk.time.settle()
    assert new_instance.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes(old_instance) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert talk.added(producer, version=5) == [NONE]


def test_responses_wait_for_commit(talk: Conversation) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.log.commits = False
    end = talk.end(producer)
    again = talk.end(producer)
    assert end.pending
    assert again.pending
    assert not talk.markers.sent
    commit_all(talk)
    assert end.producer == (producer[0], 1)
    assert again.error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(talk.markers.sent) == 1
    assert talk.state() == "CompleteCommit"


@pytest.mark.promise("T6")
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("late_s", [0.1, 3.0, 17.0, 300.0])
def test_decision_committed_after_timeout_is_completed(talk: Conversation, committed: bool, late_s: float) -> None:
    """The client got a retriable error, but the record stays and is committed: the transaction must end."""
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.log.commits = False
    answer = talk.end(producer, committed=committed)
    talk.time.advance(WRITE_TIMEOUT_S + late_s)
    assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not talk.markers.sent
    commit_all(talk)
    talk.time.advance(BACKOFF_S + 0.1)
    assert len(talk.markers.sent) == 1
    assert talk.state() == ("CompleteCommit" if committed else "CompleteAbort")
    assert talk.end(producer, committed=committed).producer == (producer[0], 1)


def test_late_decision_of_the_coordinator_is_completed(talk: Conversation) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.log.commits = False
    talk.time.advance(75 + WRITE_TIMEOUT_S)
    assert talk.state() == "PrepareAbort"
    assert not talk.markers.sent
    commit_all(talk)
    talk.time.advance(BACKOFF_S + 0.1)
    assert talk.state() == "CompleteAbort"


def test_reverted_decision_is_not_completed(talk: Conversation) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    fail_next_append(talk)
    assert talk.end(producer).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.time.advance(30)
    assert not talk.markers.sent
    assert talk.state() == "Ongoing"
    assert talk.end(producer, committed=False).error is NONE
    assert [marker.committed for marker in talk.markers.sent] == [False]


@pytest.mark.parametrize("failures", [1, 5])
@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
def test_failed_completion_is_written_again(talk: Conversation, failures: int, code: ErrorCode) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.markers.prompt = False
    talk.end(producer)
    for _ in range(failures):
        fail_next_append(talk, code)
    talk.markers.written()
    talk.time.settle()
    assert talk.state() == "PrepareCommit"
    assert talk.shard.endings.unwritten_count == 1
    talk.time.advance(BACKOFF_S * (failures + 1))
    assert talk.state() == "CompleteCommit"
    assert talk.shard.endings.unwritten_count == 0
    assert talk.shard.endings.pending_count == 0
    assert len(talk.markers.sent) == 1


def test_timed_out_completion_is_not_written_twice(talk: Conversation) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.markers.prompt = False
    talk.end(producer)
    talk.log.commits = False
    talk.markers.written()
    talk.time.advance(WRITE_TIMEOUT_S + 20)
    commit_all(talk)
    assert talk.states() == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]
    assert talk.shard.endings.pending_count == 0
    assert talk.added((producer[0], 1), version=5) == [NONE]


def ending(talk: Conversation) -> list[str]:
    """A transaction with pending markers; two waiters append their names to the list when it ends."""
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.markers.prompt = False
    talk.end(producer)
    called: list[str] = []
    for name in ("first", "second"):
        assert talk.coordinator.after_ending(ID, partial(called.append, name))
    return called


def test_waiter_is_called_once_on_completion(talk: Conversation) -> None:
    called = ending(talk)
    talk.log.commits = False
    talk.markers.written()
    talk.time.settle()
    assert talk.state() == "CompleteCommit"
    assert called == []
    commit_all(talk)
    assert called == ["first", "second"]
    talk.markers.prompt = True
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.end(producer)
    assert called == ["first", "second"]


def test_waiter_waits_until_completion_is_written(talk: Conversation) -> None:
    called = ending(talk)
    fail_next_append(talk)
    talk.markers.written()
    talk.time.settle()
    assert called == []
    talk.time.advance(2 * BACKOFF_S)
    assert called == ["first", "second"]


def test_waiter_is_called_when_the_shard_closes(talk: Conversation) -> None:
    called = ending(talk)
    talk.runtime.resign(0)
    assert called == ["first", "second"]
    assert not talk.coordinator.after_ending(ID, lambda: called.append("too late"))
    talk.lead()
    talk.markers.written()
    talk.time.settle()
    assert called == ["first", "second"]


def test_stopped_waiter_is_not_called(talk: Conversation) -> None:
    called: list[str] = ending(talk)

    def third() -> None:
        called.append("third")

    assert talk.coordinator.after_ending(ID, third)
    talk.coordinator.stop_waiting(ID, third)
    talk.coordinator.stop_waiting("another-id", third)
    talk.markers.written()
    talk.time.settle()
    assert called == ["first", "second"]


@pytest.mark.parametrize("transactional_id", [ID, "unknown"])
def test_waiter_without_transaction_is_called_at_once(talk: Conversation, transactional_id: str) -> None:
    talk.add(talk.producer(), version=5)
    called: list[str] = []
    assert talk.coordinator.after_ending(transactional_id, partial(called.append, "at once"))
    assert called == ["at once"]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_rejected_markers_wait_for_the_next_coordinator(talk: Conversation, code: ErrorCode) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.markers.prompt = False
    talk.end(producer)
    talk.markers.written(code)
    talk.time.advance(100)
    assert talk.state() == "PrepareCommit"
    assert talk.end(producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(talk.markers.sent) == 1
    talk.runtime.resign(0)
    talk.lead()
    talk.markers.written()
    talk.time.settle()
    assert talk.state() == "CompleteCommit"


@pytest.mark.parametrize("committed", [True, False])
def test_decision_survives_a_leader_change(talk: Conversation, committed: bool) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.markers.prompt = False
    talk.end(producer, committed=committed)
    [(_, _, late)] = talk.markers.out
    talk.runtime.resign(0)
    assert talk.markers.cancelled == [0]
    assert not talk.markers.out
    late(NONE)  # the channel dropped it; a late call has no effect
    talk.time.settle()
    talk.lead()
    assert talk.states()[-1].startswith("Prepare")
    [(_, marker, _)] = talk.markers.out
    assert (marker.committed, marker.coordinator_epoch) == (committed, 2)
    talk.markers.written()
    talk.time.settle()
    assert talk.state() == ("CompleteCommit" if committed else "CompleteAbort")


@pytest.mark.promise("T6")
def test_a_decision_that_was_loaded_waits_until_it_is_committed(talk: Conversation) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.log.commits = False
    talk.end(producer)
    talk.runtime.resign(0)
    talk.lead()
    assert talk.state() == "PrepareCommit"
    talk.time.advance(30)
    assert not talk.markers.sent, "another coordinator might truncate it"
    commit_all(talk)
    talk.time.advance(BACKOFF_S + 0.1)
    assert talk.state() == "CompleteCommit"


def test_truncated_decision_has_no_effect(talk: Conversation) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.log.commits = False
    committed_end = talk.log.end[0]
    talk.end(producer)
    talk.runtime.resign(0)
    talk.log.truncate(0, committed_end)
    talk.log.commits = True
    talk.lead()
    assert talk.state() == "Ongoing"
    assert talk.end(producer, committed=False).producer == (producer[0], 1)
    assert [marker.committed for marker in talk.markers.sent] == [False]


def test_many_decisions_are_resumed_in_slices(talk: Conversation) -> None:
    talk.markers.prompt = False
    count = SLICE * 2 + 7
    for index in range(count):
        name = f"id-{index}"
        producer = talk.producer(name)
        talk.add(producer, transactional_id=name, version=5)
        talk.end(producer, transactional_id=name)
    talk.markers.sent.clear()
    talk.markers.prompt = True
    talk.restart()
    assert len(talk.markers.sent) == count
    assert {metadata.state.label for metadata in talk.shard.transactions.values()} == {"CompleteCommit"}
    assert talk.shard.open_count == 0


def test_requests_fail_while_loading(talk: Conversation) -> None:
    producer = talk.producer()
    talk.runtime.resign(0)
    assert talk.end(producer).error is ErrorCode.NOT_COORDINATOR
    assert talk.added(producer) == [ErrorCode.NOT_COORDINATOR]
    talk.leader_epoch += 1
    talk.log.leader_epoch[0] = talk.leader_epoch
    talk.runtime.become_leader(0, talk.leader_epoch)
    assert talk.init(settle=False).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert talk.end(producer, settle=False).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_coordinator_is_not_available_without_topic(talk: Conversation) -> None:
    talk.runtime.stop()
    assert talk.init().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.add_offsets((1, 0)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.promise("G5")
@pytest.mark.parametrize("value", [b"", b"\0", b"\0\x09", b"\0\x01nonsense", None], ids=repr)
def test_id_with_unreadable_record_has_to_initialize(talk: Conversation, value: bytes | None) -> None:
    """The previous state may be outdated: its zombie must not continue, and a successor gets a new producer id."""
    producer, other = talk.producer(), talk.producer("other")
    talk.add(producer, version=5)
    if value is None:
        value = encode_value(talk.metadata(), 2) + b"trailing"
    talk.log.put(0, build_batch([RecordData(0, encode_key(ID), value)]))
    talk.log.high_watermark[0] = talk.log.end[0]
    talk.restart()
    assert talk.added(producer, version=5) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert talk.end(producer, committed=True).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert talk.producer()[0] not in (producer[0], other[0])
    assert talk.init("other", producer=other).producer == (other[0], other[1] + 1)


def test_decision_before_unreadable_record_is_completed(talk: Conversation) -> None:
    """The client knows that its transaction is committed; only the completion can follow."""
    talk.markers.prompt = False
    producer = talk.producer()
    talk.add(producer, version=5)
    assert talk.end(producer, committed=True).error is ErrorCode.NONE
    talk.log.put(0, build_batch([RecordData(0, encode_key(ID), b"\0\x01nonsense")]))
    talk.log.high_watermark[0] = talk.log.end[0]
    talk.markers.prompt = True
    talk.restart()
    talk.time.advance(1)
    assert talk.markers.sent[-1].committed
    assert talk.state() == "CompleteCommit"


def test_unreadable_record_names_topic_partition_offset(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    talk.log.put(0, build_batch([RecordData(0, encode_key("a\nb"), b"\0\x01nonsense")]))
    talk.log.high_watermark[0] = talk.log.end[0]
    talk.restart()
    (message,) = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert message.startswith("__transaction_state-0: skipping the unreadable record at offset 0: ")
    assert "\n" not in message
