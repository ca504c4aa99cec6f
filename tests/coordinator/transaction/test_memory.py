"""Memory limits for clients of the transaction coordinator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinator.transaction.memory import PARTITION_BYTES, id_bytes

from .conversation import Conversation

MakeTalk = Callable[..., Conversation]

LIMIT = 100_000
FULL = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def talk(make_talk: MakeTalk) -> Conversation:
    """A coordinator with room for few ids."""
    return make_talk(
        max_bytes=LIMIT,
        transactional_id_expiration_ms=600_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=60_000,
    )


def fill(talk: Conversation, length: int = 10) -> int:
    """Create new ids until one is rejected; return their number."""
    count = 0
    while talk.init(f"{count:0{length}d}").error is ErrorCode.NONE:
        count += 1
        assert count < 10_000
    return count


@pytest.mark.parametrize(("length", "about"), [(10, 125), (1000, 36), (32_000, 1)])
def test_new_ids_get_half_of_the_room(talk: Conversation, length: int, about: int) -> None:
    count = fill(talk, length)
    assert about * 0.8 <= count <= about * 1.2
    assert talk.shard.held.ids <= LIMIT / 2
    ids_taken = talk.producer_ids.next
    for index in range(50):
        assert talk.init(f"{10**6 + index:0{length}d}").error is FULL
    assert talk.producer_ids.next == ids_taken, "rejected requests use no producer ids"
    assert len(talk.shard.transactions) == count


def test_existing_ids_work_at_the_memory_limit(talk: Conversation) -> None:
    fill(talk)
    producer = talk.init("0" * 10).producer
    assert talk.added(producer, ("t", 0), transactional_id="0" * 10, version=5) == [ErrorCode.NONE]
    assert talk.end(producer, transactional_id="0" * 10).error is ErrorCode.NONE


def test_partitions_of_open_transactions_count(talk: Conversation) -> None:
    every = [(topic, index) for topic in ("t", "u") for index in range(8)]
    refused = 0
    for index in range(100):
        name = f"id-{index}"
        producer = talk.init(name).producer
        refused += talk.added(producer, *every, transactional_id=name, version=5)[0] is FULL
    assert refused > 50
    assert talk.shard.held.partitions <= LIMIT / 2
    talk.time.advance(75)
    assert talk.added(talk.init("id-99").producer, *every, transactional_id="id-99", version=5)[0] is ErrorCode.NONE


def test_expired_ids_free_memory(talk: Conversation) -> None:
    count = fill(talk)
    talk.time.advance(700)
    assert talk.shard.held == (0, 0)
    assert fill(talk) == count


def test_memory_usage_is_restored_after_restart(talk: Conversation) -> None:
    count = fill(talk)
    held = talk.shard.held
    talk.restart()
    assert talk.shard.held == held
    assert talk.init("one more").error is FULL
    assert len(talk.shard.transactions) == count


def test_memory_usage_matches_the_ids(talk: Conversation) -> None:
    for index in range(10):
        name = f"id-{index}"
        producer = talk.producer(name)
        talk.add(producer, ("t", 1), ("t", 2), transactional_id=name, version=5)
        if index % 2:
            talk.end(producer, transactional_id=name)
    transactions = talk.shard.transactions
    assert talk.shard.held.ids == sum(map(id_bytes, transactions))
    assert talk.shard.held.partitions == 5 * 2 * PARTITION_BYTES
