"""Bugs that other brokers shipped in their transaction coordinators, one test each, named after the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.transaction.state import TransactionState

from ..answers import Answer
from .conversation import FIRST_PRODUCER_ID, ID, LAST_EPOCH, Conversation
from .test_end_txn import at

MakeTalk = Callable[..., Conversation]
E = TransactionState
NONE = ErrorCode.NONE


@pytest.mark.promise("T9")
@pytest.mark.parametrize("committed", [True, False])
def test_kafka_17754_delayed_end_does_not_end_next_transaction(talk: Conversation, committed: bool) -> None:
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0), version=5)
    talk.end((producer_id, 0), committed=committed)
    talk.add((producer_id, 1), ("u", 3), version=5)
    assert talk.end((producer_id, 0), committed=committed).error is ErrorCode.PRODUCER_FENCED
    assert talk.state() == "Ongoing"
    assert talk.metadata().partitions == {("u", 3)}
    assert len(talk.markers.sent) == 1


def test_kafka_18575_verification_racing_the_end_is_rejected(talk: Conversation) -> None:
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0), version=3)
    talk.markers.prompt = False
    talk.end((producer_id, 0), version=4)
    assert talk.added((producer_id, 0), version=5, verify_only=True) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    talk.markers.written()
    talk.time.settle()
    assert talk.added((producer_id, 0), version=5, verify_only=True) == [ErrorCode.TRANSACTION_ABORTABLE]


def test_kafka_20785_commit_racing_a_timeout_abort_is_fenced(talk: Conversation) -> None:
    """INVALID_TXN_STATE would stop the application, PRODUCER_FENCED only its producer."""
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.time.advance(75)
    assert talk.state() == "CompleteAbort"
    assert talk.end(producer).error is ErrorCode.PRODUCER_FENCED
    assert talk.end(producer, committed=False).producer == (producer[0], 1)


def test_kafka_20785_with_replaced_producer_id(talk: Conversation) -> None:
    at(talk, E.ONGOING, epoch=LAST_EPOCH, client_version=2)
    talk.markers.prompt = True
    talk.time.advance(75)
    assert talk.metadata().producer_id == FIRST_PRODUCER_ID
    assert talk.end((77, LAST_EPOCH)).error is ErrorCode.PRODUCER_FENCED


def test_kafka_18464_empty_abort_after_commit_is_not_fenced(talk: Conversation) -> None:
    """While the commit's markers are pending the epoch has already risen; the client has to retry."""
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0), version=5)
    talk.markers.prompt = False
    assert talk.end((producer_id, 0)).producer == (producer_id, 1)
    assert talk.end((producer_id, 1), committed=False).error is ErrorCode.CONCURRENT_TRANSACTIONS
    talk.markers.written()
    talk.time.settle()
    assert talk.end((producer_id, 1), committed=False).producer == (producer_id, 2)


def test_kafka_18401_repeated_and_empty_aborts(talk: Conversation) -> None:
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0), version=5)
    assert talk.end((producer_id, 0)).producer == (producer_id, 1)
    for epoch in (1, 2, 3):
        assert talk.end((producer_id, epoch), committed=False).producer == (producer_id, epoch + 1)
        assert talk.end((producer_id, epoch), committed=False).producer == (producer_id, epoch + 1)
    assert talk.end((producer_id, 4)).error is ErrorCode.INVALID_TXN_STATE, "there is nothing to commit"


@pytest.mark.parametrize("begun_with", [3, 5])
@pytest.mark.parametrize("ended_with", [4, 5])
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("levels", [(1, 2), (2, 1), (0, 2), (2, 0)])
def test_kafka_18227_version_switch_during_a_transaction(
    make_talk: MakeTalk, begun_with: int, ended_with: int, committed: bool, levels: tuple[int, int]
) -> None:
    """The client switches between transactions or within one. Either way all its partitions get a marker by the rules
    of the end, also after a restart, and the next transaction begins."""
    talk = make_talk(transaction_version=levels[0])
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0), ("t", 0), version=begun_with)
    talk.transaction_version = levels[1]
    assert talk.added((producer_id, 0), ("t", 1), version=begun_with) == [NONE]
    talk.markers.prompt = False
    assert talk.end((producer_id, 0), committed=committed, version=ended_with).error is NONE
    talk.restart()
    talk.markers.written()
    talk.time.settle()
    epoch = 1 if ended_with == 5 else 0
    marker = talk.markers.sent[-1]
    assert (marker.partitions, marker.producer_epoch, marker.committed) == ({("t", 0), ("t", 1)}, epoch, committed)
    assert marker.transaction_version == (2 if ended_with == 5 else 0)
    assert talk.added((producer_id, epoch), version=begun_with) == [NONE]


@pytest.mark.promise("T10")
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("path", ["commit", "abort", "abort of nothing", "timeout", "new instance", "continues"])
def test_kafka_18660_epoch_exhaustion_by_every_path(make_talk: MakeTalk, level: int, path: str) -> None:
    """Also KAFKA-19367 (a bump too many) and KAFKA-20090 (no new id). From 32760 on, one after the other, the producer
    always has a next epoch, none is ever 32767, and none is assigned twice."""
    talk = make_talk(transaction_version=level)
    add, end = (5, 5) if level == 2 else (3, 4)
    at(talk, E.EMPTY, epoch=LAST_EPOCH - 6)
    talk.markers.prompt = True
    producer = (77, LAST_EPOCH - 6)
    given = [producer]
    for _ in range(12):
        if path != "abort of nothing":
            assert talk.added(producer, version=add) == [NONE]
        answer: Answer[Any]
        if path == "commit":
            answer = talk.end(producer, version=end)
        elif path in ("abort", "abort of nothing"):
            answer = talk.end(producer, committed=False, version=end)
        elif path == "timeout":
            talk.time.advance(75)
            answer = talk.init()
        else:
            asked = (-1, -1) if path == "new instance" else producer
            assert talk.init(producer=asked).error is ErrorCode.CONCURRENT_TRANSACTIONS
            answer = talk.init(producer=asked)
        if level == 1:
            # EndTxn assigns no epoch, and an abort by the coordinator fences: the next instance continues.
            answer = talk.init()
        assert answer.error is NONE
        producer = answer.producer
        given.append(producer)
    assert len(set(given)) == len(given)
    assert all(epoch <= LAST_EPOCH for _, epoch in given)
    assert {producer_id for producer_id, _ in given} == {77, FIRST_PRODUCER_ID}


def test_kafka_19367_abort_for_new_instance_raises_epoch_once(talk: Conversation) -> None:
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0), version=5)
    talk.init()
    assert [marker.producer_epoch for marker in talk.markers.sent] == [1]
    assert talk.metadata().producer_epoch == 1


def test_kafka_20090_late_abort_gets_the_new_producer_id(talk: Conversation) -> None:
    at(talk, E.ONGOING, epoch=LAST_EPOCH, client_version=2)
    talk.markers.prompt = False
    talk.time.advance(75)
    assert talk.end((77, LAST_EPOCH), committed=False).error is ErrorCode.CONCURRENT_TRANSACTIONS
    talk.markers.written()
    talk.time.settle()
    assert talk.end((77, LAST_EPOCH), committed=False).producer == (FIRST_PRODUCER_ID, 0)


@pytest.mark.promise("T7")
@pytest.mark.parametrize("level", [1, 2])
def test_kafka_9666_a_failed_append_leaves_the_epoch_as_on_disk(make_talk: MakeTalk, level: int) -> None:
    """Also for fencing, which would raise the epoch with each attempt until none is left."""
    talk = make_talk(transaction_version=level)
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0))
    for _ in range(5):
        talk.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
        assert talk.init().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert talk.metadata().producer_epoch == 0
    assert talk.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert talk.metadata().producer_epoch == 1
    assert talk.producer() == (producer_id, 2)


@pytest.mark.parametrize("version", [4, 5])
def test_kafka_9600_end_with_too_high_epoch_is_fenced(talk: Conversation, version: int) -> None:
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0), version=5)
    for epoch in (1, 2, 100):
        assert talk.end((producer_id, epoch), version=version).error is ErrorCode.PRODUCER_FENCED
    assert talk.state() == "Ongoing"
    assert talk.metadata().producer_epoch == 0


@pytest.mark.parametrize("version", [3, 5])
def test_kafka_12671_late_add_is_rejected_or_times_out(talk: Conversation, version: int) -> None:
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0), version=version)
    talk.end((producer_id, 0), version=version + (1 if version == 3 else 0))
    late = talk.added((producer_id, 0), ("u", 1), version=version)
    if version == 5:
        assert late == [ErrorCode.PRODUCER_FENCED]
        assert talk.state() == "CompleteCommit"
    else:
        assert late == [NONE]
        talk.time.advance(75)
        assert talk.state() == "CompleteAbort"
        assert talk.markers.sent[-1].partitions == {("u", 1)}


@pytest.mark.promise("T8")
@pytest.mark.parametrize("after", ["decision", "markers", "end"])
def test_redpanda_kill_during_expiry_still_ends_transaction(talk: Conversation, after: str) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.markers.prompt = after == "end"
    talk.time.advance(75)
    if after == "markers":
        talk.log.append_failures.append(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        talk.markers.written()
        talk.time.settle()
    talk.restart()
    talk.markers.written()
    talk.time.advance(1)
    assert talk.state() == "CompleteAbort"
    assert talk.metadata().producer_epoch == 1
    assert {marker.producer_epoch for marker in talk.markers.sent} == {1}


def test_redpanda_kill_before_expiry_aborts_later(talk: Conversation) -> None:
    talk.add(talk.producer(), version=5)
    talk.time.advance(59)
    talk.restart()
    assert talk.state() == "Ongoing"
    talk.time.advance(12)
    assert talk.state() == "CompleteAbort"


def test_redpanda_new_epoch_waits_for_previous_markers(talk: Conversation) -> None:
    """Clients filter aborted records by producer id alone: the abort has to precede the records that follow it."""
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0), version=5)
    talk.markers.prompt = False
    assert talk.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    for _ in range(3):
        talk.time.advance(30)
        assert talk.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert talk.added((producer_id, 1), version=5) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    talk.markers.written()
    talk.time.settle()
    assert talk.producer() == (producer_id, 2)


def test_redpanda_new_epoch_waits_across_leader_change(talk: Conversation) -> None:
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0), version=5)
    talk.markers.prompt = False
    talk.init()
    talk.restart()
    assert talk.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert ID in talk.shard.transactions
    talk.markers.written()
    talk.time.settle()
    assert talk.producer() == (producer_id, 2)
