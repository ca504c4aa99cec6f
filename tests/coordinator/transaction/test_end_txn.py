"""EndTxn: every state, either result, both versions, retried and late requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.transaction.metadata import NO_PARTITIONS, TransactionMetadata
from ottla.coordinator.transaction.state import TransactionState

from .conversation import FIRST_PRODUCER_ID, LAST_EPOCH, TIMEOUT_MS, Conversation

MakeTalk = Callable[..., Conversation]

E = TransactionState
NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
STATE = ErrorCode.INVALID_TXN_STATE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
DECIDED = "decided"
"""The request ends the transaction, which is prepared."""

EPOCH = 5


def at(
    talk: Conversation,
    state: TransactionState,
    *,
    producer_id: int = 77,
    previous: int = 77,
    epoch: int = EPOCH,
    client_version: int = 0,
) -> None:
    """Bring the id to this state, with pending markers."""
    talk.markers.prompt = False
    partitions = frozenset({("t", 0)}) if state in (E.ONGOING, E.PREPARE_COMMIT, E.PREPARE_ABORT) else NO_PARTITIONS
    start_ms = -1 if state is E.EMPTY else talk.time.time_ms()
    talk.put(
        TransactionMetadata(
            producer_id, previous, -1, epoch, -1, TIMEOUT_MS, state, partitions, start_ms, 0, client_version
        )
    )


def ended(talk: Conversation, producer: tuple[int, int], *, committed: bool, version: int) -> ErrorCode | str:
    """Return the outcome of an EndTxn."""
    before = len(talk.records())
    answer = talk.end(producer, committed=committed, version=version)
    if answer.error is not NONE or len(talk.records()) == before:
        return answer.error
    [decision, *_] = talk.records()[before:]
    assert decision.metadata is not None
    assert decision.metadata.state is (E.PREPARE_COMMIT if committed else E.PREPARE_ABORT)
    return DECIDED


V1 = [
    # state, epoch of the request relative to the id's, outcome of a commit, outcome of an abort
    (E.EMPTY, 0, STATE, STATE),
    (E.ONGOING, 0, DECIDED, DECIDED),
    (E.PREPARE_COMMIT, 0, CONCURRENT, CONCURRENT),
    (E.PREPARE_ABORT, 0, CONCURRENT, CONCURRENT),
    (E.COMPLETE_COMMIT, 0, NONE, STATE),
    (E.COMPLETE_ABORT, 0, STATE, NONE),
    *((state, shift, FENCED, FENCED) for state in list(E)[:6] for shift in (-1, 1, -5)),
]


@pytest.mark.parametrize("version", [0, 2, 4])
@pytest.mark.parametrize(("state", "shift", "commit", "abort"), V1)
@pytest.mark.parametrize("committed", [True, False])
def test_ends_of_v1(
    talk_v1: Conversation,
    version: int,
    state: TransactionState,
    shift: int,
    commit: ErrorCode | str,
    abort: ErrorCode | str,
    committed: bool,
) -> None:
    at(talk_v1, state)
    expected = commit if committed else abort
    if expected is FENCED and version < 2:
        expected = ErrorCode.INVALID_PRODUCER_EPOCH
    assert ended(talk_v1, (77, EPOCH + shift), committed=committed, version=version) == expected


V2 = [
    (E.EMPTY, 0, STATE, DECIDED),
    (E.EMPTY, -1, FENCED, FENCED),
    (E.EMPTY, 1, FENCED, FENCED),
    (E.ONGOING, 0, DECIDED, DECIDED),
    (E.ONGOING, -1, FENCED, FENCED),
    (E.ONGOING, 1, FENCED, FENCED),
    *(
        (state, shift, CONCURRENT, CONCURRENT)
        for state in (E.PREPARE_COMMIT, E.PREPARE_ABORT)
        for shift in (-2, -1, 0, 1)
    ),
    (E.COMPLETE_COMMIT, 0, STATE, DECIDED),
    (E.COMPLETE_COMMIT, -1, NONE, STATE),
    (E.COMPLETE_COMMIT, -2, FENCED, FENCED),
    (E.COMPLETE_COMMIT, 1, FENCED, FENCED),
    (E.COMPLETE_ABORT, 0, STATE, DECIDED),
    (E.COMPLETE_ABORT, -1, FENCED, NONE),
    (E.COMPLETE_ABORT, -2, FENCED, FENCED),
    (E.COMPLETE_ABORT, 1, FENCED, FENCED),
]


@pytest.mark.parametrize(("state", "shift", "commit", "abort"), V2)
@pytest.mark.parametrize("committed", [True, False])
def test_ends_of_v2(
    talk: Conversation,
    state: TransactionState,
    shift: int,
    commit: ErrorCode | str,
    abort: ErrorCode | str,
    committed: bool,
) -> None:
    at(talk, state, client_version=2)
    assert ended(talk, (77, EPOCH + shift), committed=committed, version=5) == (commit if committed else abort)


@pytest.mark.parametrize("version", [4, 5])
def test_an_unknown_id_and_a_foreign_producer_id_have_no_mapping(talk: Conversation, version: int) -> None:
    assert talk.end((77, 0), version=version).error is MAPPING
    at(talk, E.ONGOING)
    assert talk.end((78, EPOCH), version=version).error is MAPPING
    assert talk.state() == "Ongoing"


@pytest.mark.parametrize("version", [4, 5])
def test_empty_transactional_id_is_rejected(talk: Conversation, version: int) -> None:
    assert talk.end((77, 0), version=version, transactional_id="").error is ErrorCode.INVALID_REQUEST


def test_retried_end_before_markers_is_concurrent(talk: Conversation) -> None:
    producer = talk.producer()
    talk.markers.prompt = False
    talk.add(producer, version=5)
    assert talk.end(producer).producer == (producer[0], 1)
    assert talk.end(producer).error is CONCURRENT
    talk.markers.written()
    talk.time.settle()
    assert talk.end(producer).producer == (producer[0], 1), "the same response"
    assert len(talk.markers.sent) == 1


@pytest.mark.promise("T9")
@pytest.mark.parametrize("committed", [True, False])
def test_retried_end_after_restart_has_the_same_response(talk: Conversation, committed: bool) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    answer = talk.end(producer, committed=committed).producer
    talk.restart()
    assert talk.end(producer, committed=committed).producer == answer


def test_abort_without_transaction_raises_epoch_only(talk: Conversation) -> None:
    producer_id, _ = talk.producer()
    assert talk.end((producer_id, 0), committed=False).producer == (producer_id, 1)
    assert talk.states() == ["Empty", "PrepareAbort", "CompleteAbort"]
    assert not talk.markers.sent
    assert talk.metadata().start_ms == talk.time.time_ms()


@pytest.mark.parametrize("committed", [True, False])
def test_exhausted_epochs_end_with_a_new_producer_id(talk: Conversation, committed: bool) -> None:
    at(talk, E.ONGOING, epoch=LAST_EPOCH, client_version=2)
    assert talk.end((77, LAST_EPOCH), committed=committed).producer == (FIRST_PRODUCER_ID, 0)
    [marker] = talk.markers.sent
    assert (marker.producer_id, marker.producer_epoch) == (77, LAST_EPOCH + 1)
    assert talk.end((77, LAST_EPOCH), committed=committed).error is CONCURRENT
    talk.restart()
    [_, marker] = talk.markers.sent
    assert (marker.producer_id, marker.producer_epoch) == (77, LAST_EPOCH + 1)
    talk.markers.written()
    talk.time.settle()
    assert talk.metadata().producer_id == FIRST_PRODUCER_ID
    assert talk.metadata().previous_producer_id == 77
    for _ in range(2):
        assert talk.end((77, LAST_EPOCH), committed=committed).producer == (FIRST_PRODUCER_ID, 0)
    assert talk.added((FIRST_PRODUCER_ID, 0), version=5) == [NONE]
    assert talk.end((77, LAST_EPOCH), committed=committed).error is MAPPING, "the next transaction has begun"


def test_previous_producer_id_with_older_epoch_has_no_mapping(talk: Conversation) -> None:
    at(talk, E.COMPLETE_ABORT, producer_id=88, previous=77, epoch=0, client_version=2)
    assert talk.end((77, LAST_EPOCH - 1), committed=False).error is MAPPING
    assert talk.end((77, LAST_EPOCH), committed=False).producer == (88, 0)
    at(talk, E.COMPLETE_ABORT, producer_id=88, previous=77, epoch=1, client_version=2)
    assert talk.end((77, LAST_EPOCH), committed=False).error is MAPPING


def test_abort_without_transaction_at_last_epoch_rotates(talk: Conversation) -> None:
    at(talk, E.COMPLETE_COMMIT, epoch=LAST_EPOCH, client_version=2)
    assert talk.end((77, LAST_EPOCH), committed=False).producer == (FIRST_PRODUCER_ID, 0)
    assert talk.state() == "CompleteAbort"


def test_v1_transaction_ends_at_the_last_epoch(talk_v1: Conversation) -> None:
    at(talk_v1, E.ONGOING, epoch=LAST_EPOCH)
    assert talk_v1.end((77, LAST_EPOCH), version=4).error is NONE
    talk_v1.markers.written()
    talk_v1.time.settle()
    assert talk_v1.producer() == (FIRST_PRODUCER_ID, 0)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("state", [E.ONGOING, E.COMPLETE_ABORT])
@pytest.mark.parametrize("epoch", [LAST_EPOCH, LAST_EPOCH + 1])
def test_fencing_epoch_is_never_accepted_or_assigned(
    talk: Conversation, version: int, state: TransactionState, epoch: int
) -> None:
    at(talk, state, epoch=LAST_EPOCH + 1)
    for committed in (True, False):
        assert talk.end((77, epoch), committed=committed, version=version).error is FENCED


def test_an_end_waits_for_its_producer_id(talk: Conversation) -> None:
    at(talk, E.ONGOING, epoch=LAST_EPOCH, client_version=2)
    talk.producer_ids.hold = True
    answer = talk.end((77, LAST_EPOCH))
    assert answer.pending
    assert talk.state() == "Ongoing"
    talk.producer_ids.come()
    talk.time.settle()
    assert answer.producer == (FIRST_PRODUCER_ID, 0)


def test_end_without_producer_id_keeps_transaction_open(talk: Conversation) -> None:
    at(talk, E.ONGOING, epoch=LAST_EPOCH, client_version=2)
    talk.producer_ids.error = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert talk.end((77, LAST_EPOCH)).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert talk.state() == "Ongoing"


def test_transaction_may_end_in_another_version(talk: Conversation) -> None:
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0), version=3)
    assert talk.metadata().client_version == 0
    assert talk.end((producer_id, 0), version=5).producer == (producer_id, 1)
    assert talk.markers.sent[0].transaction_version == 2
    talk.add((producer_id, 1), version=5)
    assert talk.end((producer_id, 1), version=4).error is NONE
    assert (talk.markers.sent[1].transaction_version, talk.markers.sent[1].producer_epoch) == (0, 1)
    assert talk.metadata().producer_epoch == 1


@pytest.mark.parametrize("state", [E.COMPLETE_COMMIT, E.COMPLETE_ABORT])
@pytest.mark.parametrize("committed", [True, False])
def test_a_zombie_of_v2_is_fenced_by_a_successor_of_v1(
    talk: Conversation, state: TransactionState, committed: bool
) -> None:
    """An end of v1 raises no epoch: the previous one is the zombie's, and the response would contain its
    successor's."""
    at(talk, state, client_version=0)
    assert talk.end((77, EPOCH - 1), committed=committed, version=5).error is FENCED
