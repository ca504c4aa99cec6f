"""A complete transaction by the rules of both versions."""

from __future__ import annotations

from ottla.common.errors import ErrorCode

from .conversation import FIRST_PRODUCER_ID, ID, Conversation

NONE = ErrorCode.NONE


def test_a_new_id_gets_a_producer_id_and_epoch_0(talk: Conversation) -> None:
    assert talk.producer() == (FIRST_PRODUCER_ID, 0)
    assert talk.producer("other") == (FIRST_PRODUCER_ID + 1, 0)
    assert talk.state() == "Empty"


def test_a_transaction_of_v1(talk_v1: Conversation) -> None:
    talk = talk_v1
    producer = talk.producer()
    assert talk.added(producer, ("t", 1), ("u", 2)) == [NONE, NONE]
    assert talk.state() == "Ongoing"
    answer = talk.end(producer, version=4)
    assert answer.response.producer_id == -1
    assert answer.error is NONE
    assert talk.states() == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]
    [marker] = talk.markers.sent
    assert marker == (ID, producer[0], 0, True, 1, 0, {("t", 1), ("u", 2)})
    assert talk.added(producer) == [NONE]


def test_a_transaction_of_v2_raises_the_epoch_at_its_end(talk: Conversation) -> None:
    producer_id, epoch = talk.producer()
    assert talk.added((producer_id, epoch), ("t", 1), version=5) == [NONE]
    assert talk.end((producer_id, epoch)).producer == (producer_id, 1)
    [marker] = talk.markers.sent
    assert marker == (ID, producer_id, 1, True, 1, 2, {("t", 1)})
    assert talk.states() == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]
    assert talk.added((producer_id, 0), version=5) == [ErrorCode.PRODUCER_FENCED]
    assert talk.added((producer_id, 1), version=5) == [NONE]
    assert talk.end((producer_id, 1), committed=False).producer == (producer_id, 2)
    assert talk.markers.sent[1] == (ID, producer_id, 2, False, 1, 2, {("t", 0)})


def test_offsets_of_a_group_are_a_partition_of_the_transaction(talk_v1: Conversation) -> None:
    producer = talk_v1.producer()
    assert talk_v1.add_offsets(producer, "gggg").error is NONE
    assert talk_v1.metadata().partitions == {("__consumer_offsets", 4)}


def test_an_open_transaction_is_aborted_for_a_new_instance(talk: Conversation) -> None:
    producer_id, epoch = talk.producer()
    talk.add((producer_id, epoch), version=5)
    assert talk.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert talk.state() == "CompleteAbort"
    assert talk.init().producer == (producer_id, 2)
    assert talk.end((producer_id, 0)).error is ErrorCode.PRODUCER_FENCED


def test_restart_resumes_decided_transactions(talk: Conversation) -> None:
    talk.markers.prompt = False
    producer = talk.producer()
    talk.add(producer, version=5)
    assert talk.end(producer).error is NONE
    assert talk.state() == "PrepareCommit"
    talk.restart()
    [(partition, marker, _)] = talk.markers.out
    assert (partition, marker.committed, marker.coordinator_epoch) == (0, True, 2)
    talk.markers.written()
    talk.time.settle()
    assert talk.state() == "CompleteCommit"


def test_an_abandoned_transaction_is_aborted(talk: Conversation) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.time.advance(59)
    assert talk.state() == "Ongoing"
    talk.time.advance(12)
    assert talk.state() == "CompleteAbort"
    assert talk.metadata().producer_epoch == 1
