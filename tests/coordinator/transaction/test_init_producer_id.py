"""InitProducerId: assigned ids and epochs, fencing, retries."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.transaction.metadata import NO_PARTITIONS, TransactionMetadata
from ottla.coordinator.transaction.state import TransactionState

from .conversation import FIRST_PRODUCER_ID, ID, LAST_EPOCH, TIMEOUT_MS, Conversation

MakeTalk = Callable[..., Conversation]


def known(
    state: TransactionState = TransactionState.EMPTY,
    *,
    producer_id: int = 77,
    epoch: int = 5,
    last_epoch: int = -1,
    previous: int | None = None,
    start_ms: int = -1,
) -> TransactionMetadata:
    """Return an idle id; `put` it into the log."""
    before = producer_id if previous is None else previous
    return TransactionMetadata(
        producer_id, before, -1, epoch, last_epoch, TIMEOUT_MS, state, NO_PARTITIONS, start_ms, 0, 0
    )


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "x" * 32_768}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "ü" * 16_384}, ErrorCode.INVALID_REQUEST),
        ({"producer": (5, -1)}, ErrorCode.INVALID_REQUEST),
        ({"producer": (-1, 5)}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_invalid_request_is_rejected(talk: Conversation, request_: dict[str, object], error: ErrorCode) -> None:
    answer = talk.init(**request_)  # type: ignore[arg-type]
    assert answer.error is error
    assert (answer.response.producer_id, answer.response.producer_epoch) == (-1, -1)
    assert not talk.shard.transactions
    assert not talk.log.batches[0]
    assert talk.producer_ids.next == FIRST_PRODUCER_ID


def test_longest_id_is_accepted(talk: Conversation) -> None:
    assert talk.init("x" * 32_767).error is ErrorCode.NONE
    assert talk.init("y", timeout_ms=900_000).error is ErrorCode.NONE


def test_each_new_instance_gets_a_higher_epoch(talk: Conversation) -> None:
    assert [talk.producer()[1] for _ in range(4)] == [0, 1, 2, 3]
    assert talk.producer_ids.next == FIRST_PRODUCER_ID + 1


def test_new_instance_may_change_the_timeout(talk: Conversation) -> None:
    talk.producer()
    talk.init(timeout_ms=5_000)
    assert talk.metadata().timeout_ms == 5_000


@pytest.mark.parametrize("version", [3, 4, 5])
def test_continuing_producer_raises_its_epoch(talk: Conversation, version: int) -> None:
    producer_id, epoch = talk.producer()
    assert talk.init(producer=(producer_id, epoch), version=version).producer == (producer_id, 1)


def test_retry_gets_the_same_response(talk: Conversation) -> None:
    producer = talk.producer()
    answers = [talk.init(producer=producer).producer for _ in range(3)]
    assert answers == [(producer[0], 1)] * 3
    assert talk.init(producer=answers[0]).producer == (producer[0], 2)
    assert talk.init(producer=producer).error is ErrorCode.PRODUCER_FENCED


def test_retry_after_a_new_instance_is_fenced(talk: Conversation) -> None:
    """Otherwise the old instance would get the new one's epoch by a retry."""
    producer = talk.producer()
    talk.producer()
    assert talk.init(producer=producer).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(("version", "error"), [(3, "INVALID_PRODUCER_EPOCH"), (4, "PRODUCER_FENCED")])
def test_clients_before_kip_588_get_the_old_error(talk: Conversation, version: int, error: str) -> None:
    producer_id, _ = talk.producer()
    assert talk.init(producer=(producer_id, 9), version=version).error is ErrorCode[error]


def test_a_foreign_producer_id_is_fenced(talk: Conversation) -> None:
    producer_id, epoch = talk.producer()
    assert talk.init(producer=(producer_id + 1, epoch)).error is ErrorCode.PRODUCER_FENCED
    assert talk.metadata().producer_epoch == epoch


def test_unknown_transactional_id_with_producer_id_works(talk: Conversation) -> None:
    """The id may have expired while the producer had it (as in Apache Kafka)."""
    assert talk.init(producer=(99, 3)).producer == (FIRST_PRODUCER_ID, 0)


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
@pytest.mark.parametrize("producer", [(-1, -1), (77, 5), (1, 1)])
def test_init_while_a_transaction_ends_is_concurrent(
    talk: Conversation, state: TransactionState, producer: tuple[int, int]
) -> None:
    talk.markers.prompt = False
    talk.put(known(TransactionState.ONGOING, start_ms=talk.time.time_ms()))
    talk.put(known(state, start_ms=talk.time.time_ms()))
    assert talk.init(producer=producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert talk.metadata().state is state


@pytest.mark.parametrize("level", [0, 1])
def test_open_v1_transaction_is_aborted_and_fenced(make_talk: MakeTalk, level: int) -> None:
    talk = make_talk(transaction_version=level)
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0))
    assert talk.init(producer=(producer_id, 0)).error is ErrorCode.CONCURRENT_TRANSACTIONS
    [marker] = talk.markers.sent
    assert (marker.producer_epoch, marker.committed, marker.transaction_version) == (1, False, 0)
    assert talk.init(producer=(producer_id, 0)).error is ErrorCode.PRODUCER_FENCED
    assert talk.producer() == (producer_id, 2)


def test_open_v2_transaction_is_aborted_for_its_producer(talk: Conversation) -> None:
    """The epoch rises once, not twice (KAFKA-19367)."""
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0), version=5)
    assert talk.init(producer=(producer_id, 0)).error is ErrorCode.CONCURRENT_TRANSACTIONS
    [marker] = talk.markers.sent
    assert (marker.producer_epoch, marker.committed, marker.transaction_version) == (1, False, 2)
    assert talk.init(producer=(producer_id, 0)).producer == (producer_id, 1)


def test_foreign_producer_id_aborts_nothing(talk: Conversation) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    assert talk.init(producer=(producer[0] + 1, 0)).error is ErrorCode.PRODUCER_FENCED
    assert talk.state() == "Ongoing"


def test_exhausted_epochs_rotate_the_producer_id(talk: Conversation) -> None:
    talk.put(known(epoch=LAST_EPOCH - 1))
    assert talk.producer() == (77, LAST_EPOCH)
    assert talk.producer() == (FIRST_PRODUCER_ID, 0)
    assert talk.metadata().previous_producer_id == 77


def test_exhausted_epochs_rotate_for_a_continuing_producer(talk: Conversation) -> None:
    talk.put(known(epoch=LAST_EPOCH))
    answers = [talk.init(producer=(77, LAST_EPOCH)).producer for _ in range(3)]
    assert answers == [(FIRST_PRODUCER_ID, 0)] * 3, "a retry gets the same response"
    assert talk.init(producer=(77, LAST_EPOCH - 1)).error is ErrorCode.PRODUCER_FENCED
    assert talk.init(producer=answers[0]).producer == (FIRST_PRODUCER_ID, 1)
    assert talk.init(producer=(77, LAST_EPOCH)).error is ErrorCode.PRODUCER_FENCED


def test_zombie_with_previous_producer_id_aborts_nothing(talk: Conversation) -> None:
    """The previous id is accepted only with its last epoch: that of the producer with exhausted epochs."""
    talk.put(known(TransactionState.ONGOING, producer_id=88, previous=77, epoch=0, start_ms=talk.time.time_ms()))
    assert talk.init(producer=(77, LAST_EPOCH - 1)).error is ErrorCode.PRODUCER_FENCED
    assert talk.state() == "Ongoing"


def test_retry_at_the_last_epoch_gets_the_same_response(talk: Conversation) -> None:
    talk.put(known(epoch=LAST_EPOCH - 1))
    assert talk.init(producer=(77, LAST_EPOCH - 1)).producer == (77, LAST_EPOCH)
    assert talk.init(producer=(77, LAST_EPOCH - 1)).producer == (77, LAST_EPOCH)


def test_outdated_producer_of_exhausted_epochs_is_fenced(talk: Conversation) -> None:
    talk.put(known(epoch=LAST_EPOCH + 1))
    assert talk.init(producer=(77, LAST_EPOCH)).error is ErrorCode.PRODUCER_FENCED
    assert talk.producer() == (FIRST_PRODUCER_ID, 0)


def test_requests_wait_for_a_producer_id(talk: Conversation) -> None:
    talk.producer_ids.hold = True
    first, second = talk.init(settle=False), talk.init(settle=False)
    talk.time.settle()
    assert first.pending
    assert second.pending
    talk.producer_ids.come()
    talk.time.settle()
    assert first.producer == (FIRST_PRODUCER_ID, 0)
    assert second.producer == (FIRST_PRODUCER_ID, 1), "the second instance is later and fences the first"


def test_missing_producer_id_returns_the_error(talk: Conversation) -> None:
    talk.producer_ids.error = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert talk.init().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    talk.producer_ids.error = ValueError("out of luck")
    assert talk.init().error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ID not in talk.shard.transactions


def test_leader_change_during_allocation_returns_error(talk: Conversation) -> None:
    talk.producer_ids.hold = True
    answer = talk.init(settle=False)
    talk.time.settle()
    talk.runtime.resign(0)
    talk.producer_ids.come()
    talk.time.settle()
    assert answer.error is ErrorCode.NOT_COORDINATOR
