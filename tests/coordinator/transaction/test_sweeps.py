"""Abandoned transactions and unused ids."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.scale import size

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.transaction.metadata import NO_TIMEOUT_MS
from ottla.coordinator.transaction.state import TransactionState
from ottla.coordinator.transaction.sweeps import EXAMINED_PER_STEP, WRITTEN_PER_STEP

from .conversation import FIRST_PRODUCER_ID, ID, LAST_EPOCH, Conversation
from .test_end_txn import at

MakeTalk = Callable[..., Conversation]
E = TransactionState
DAY_S = 24 * 3600


@pytest.mark.promise("T8")
def test_abort_follows_timeout_within_an_interval(talk: Conversation) -> None:
    producer = talk.producer()
    talk.add(producer, version=5)
    talk.time.advance(60)
    assert talk.state() == "Ongoing"
    talk.time.advance(10)
    assert talk.state() == "CompleteAbort"
    assert [marker.committed for marker in talk.markers.sent] == [False]


def test_the_interval_is_a_setting(make_talk: MakeTalk) -> None:
    talk = make_talk(transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000)
    talk.add(talk.producer(), version=5)
    talk.time.advance(62)
    assert talk.state() == "CompleteAbort"


def test_the_timeout_runs_from_the_first_partition(talk: Conversation) -> None:
    producer = talk.producer()
    talk.add(producer, ("t", 0), version=5)
    talk.time.advance(40)
    talk.add(producer, ("t", 1), version=5)
    talk.time.advance(31)
    assert talk.state() == "CompleteAbort"


@pytest.mark.parametrize(
    ("level", "version", "marker_version"), [(0, 3, 0), (1, 3, 0), (1, 5, 0), (2, 3, 2), (2, 5, 2)]
)
def test_an_abort_raises_the_epoch_by_the_rules_of_the_level(
    make_talk: MakeTalk, level: int, version: int, marker_version: int
) -> None:
    talk = make_talk(transaction_version=level)
    producer_id, _ = talk.producer()
    talk.add((producer_id, 0), version=version)
    talk.time.advance(75)
    [marker] = talk.markers.sent
    assert (marker.producer_epoch, marker.transaction_version) == (1, marker_version)
    assert talk.metadata().producer_epoch == 1
    assert talk.added((producer_id, 0), version=version) == [ErrorCode.PRODUCER_FENCED]


def test_idle_ids_and_decided_transactions_do_not_time_out(talk: Conversation) -> None:
    talk.markers.prompt = False
    producer = talk.producer("decided")
    talk.add(producer, transactional_id="decided", version=5)
    talk.end(producer, transactional_id="decided")
    talk.producer("idle")
    records = len(talk.records())
    talk.time.advance(1000)
    assert len(talk.records()) == records


def test_a_transaction_without_timeout_does_not_time_out(make_talk: MakeTalk) -> None:
    talk = make_talk(transaction_max_timeout_ms=NO_TIMEOUT_MS)
    producer = talk.init(timeout_ms=NO_TIMEOUT_MS).producer
    talk.add(producer, version=5)
    talk.time.advance(size(3, 30) * DAY_S)
    assert talk.state() == "Ongoing"


def test_abort_at_the_last_epoch_rotates_the_producer_id(talk: Conversation) -> None:
    """KAFKA-20090: no new producer id was allocated, and the producer was stuck."""
    at(talk, E.ONGOING, epoch=LAST_EPOCH, client_version=2)
    talk.markers.prompt = True
    talk.producer_ids.error = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    talk.time.advance(75)
    assert talk.state() == "Ongoing", "no producer id was available"
    talk.producer_ids.error = None
    talk.producer_ids.hold = True
    talk.time.advance(10)
    assert talk.state() == "Ongoing"
    talk.producer_ids.come()
    talk.time.settle()
    [marker] = talk.markers.sent
    assert (marker.producer_id, marker.producer_epoch) == (77, LAST_EPOCH + 1)
    assert talk.state() == "CompleteAbort"
    assert talk.end((77, LAST_EPOCH), committed=False).producer == (FIRST_PRODUCER_ID, 0)


def test_late_producer_id_is_not_used(talk: Conversation) -> None:
    at(talk, E.ONGOING, epoch=LAST_EPOCH - 1, client_version=2)
    talk.put(talk.metadata()._replace(producer_epoch=LAST_EPOCH))
    talk.markers.prompt = True
    talk.producer_ids.hold = True
    talk.time.advance(75)
    ended = talk.end((77, LAST_EPOCH))
    talk.producer_ids.come()
    talk.time.settle()
    states = talk.states()
    assert states.count("PrepareAbort") + states.count("PrepareCommit") == 1
    assert ended.error in (ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS)


def test_v1_abort_at_the_last_epoch_uses_fencing_epoch(make_talk: MakeTalk) -> None:
    talk = make_talk(transaction_version=1)
    at(talk, E.ONGOING, epoch=LAST_EPOCH)
    talk.markers.prompt = True
    talk.time.advance(75)
    [marker] = talk.markers.sent
    assert marker.producer_epoch == LAST_EPOCH + 1
    assert talk.end((77, LAST_EPOCH), version=4).error is ErrorCode.PRODUCER_FENCED
    assert talk.producer() == (FIRST_PRODUCER_ID, 0)


def test_many_aborts_are_done_in_steps(talk: Conversation) -> None:
    count = WRITTEN_PER_STEP * 3 + 5
    for index in range(count):
        name = f"id-{index}"
        talk.add(talk.producer(name), transactional_id=name, version=5)
    before = talk.runtime.statistics.batches_appended
    talk.time.advance(75)
    assert talk.shard.open_count == 0
    assert {metadata.state for metadata in talk.shard.transactions.values()} == {E.COMPLETE_ABORT}
    assert talk.runtime.statistics.batches_appended - before >= 4


def test_failed_sweep_is_repeated(talk: Conversation) -> None:
    talk.add(talk.producer(), version=5)
    for _ in range(3):
        talk.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
    talk.time.advance(75)
    talk.time.advance(30)
    assert talk.state() == "CompleteAbort"


# --- unused ids -------------------------------------------------------------------------------------------------------


def test_idle_id_expires_after_a_week(talk: Conversation) -> None:
    talk.producer()
    talk.time.advance(7 * DAY_S - 3600)
    assert talk.state() == "Empty"
    talk.time.advance(2 * 3600)
    assert ID not in talk.shard.transactions
    assert talk.states() == ["Empty", "-"]
    talk.restart()
    assert ID not in talk.shard.transactions
    assert talk.producer() == (FIRST_PRODUCER_ID + 1, 0)


@pytest.mark.parametrize(
    ("state", "goes"),
    [
        (E.EMPTY, True),
        (E.COMPLETE_COMMIT, True),
        (E.COMPLETE_ABORT, True),
        (E.PREPARE_COMMIT, False),
        (E.PREPARE_ABORT, False),
    ],
)
def test_only_idle_ids_expire(make_talk: MakeTalk, state: TransactionState, goes: bool) -> None:
    talk = make_talk(
        transactional_id_expiration_ms=60_000, transaction_remove_expired_transaction_cleanup_interval_ms=10_000
    )
    at(talk, state)
    talk.time.advance(80)
    assert (ID not in talk.shard.transactions) is goes


def test_an_id_in_use_stays(make_talk: MakeTalk) -> None:
    talk = make_talk(
        transactional_id_expiration_ms=60_000, transaction_remove_expired_transaction_cleanup_interval_ms=10_000
    )
    producer = talk.producer()
    for _ in range(10):
        talk.time.advance(50)
        talk.add(producer, version=5)
        producer = talk.end(producer).producer
    assert producer == (FIRST_PRODUCER_ID, 10)


def test_many_ids_expire_in_steps(make_talk: MakeTalk) -> None:
    talk = make_talk(
        transactional_id_expiration_ms=60_000, transaction_remove_expired_transaction_cleanup_interval_ms=10_000
    )
    count = EXAMINED_PER_STEP * 2 + 3
    for index in range(count):
        talk.init(f"id-{index}")
    talk.log.batch_bytes = 4096
    talk.time.advance(80)
    assert not talk.shard.transactions
    talk.restart()
    assert not talk.shard.transactions


def test_failed_tombstones_retain_the_ids(make_talk: MakeTalk) -> None:
    talk = make_talk(
        transactional_id_expiration_ms=60_000, transaction_remove_expired_transaction_cleanup_interval_ms=10_000
    )
    talk.producer()
    talk.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
    talk.time.advance(69)
    assert ID in talk.shard.transactions
    talk.time.advance(20)
    assert ID not in talk.shard.transactions


def test_sweep_uses_one_timer(talk: Conversation) -> None:
    for index in range(300):
        name = f"id-{index}"
        talk.add(talk.producer(name), transactional_id=name, version=5)
    assert talk.time.armed == 2


def test_no_step_of_a_walk_writes_very_much(make_talk: MakeTalk) -> None:
    talk = make_talk(
        transactional_id_expiration_ms=60_000, transaction_remove_expired_transaction_cleanup_interval_ms=10_000
    )
    for index in range(WRITTEN_PER_STEP * 3):
        talk.init(f"id-{index}")
    before = talk.runtime.statistics.batches_appended
    talk.time.advance(80)
    assert not talk.shard.transactions
    assert talk.runtime.statistics.batches_appended - before == 3
