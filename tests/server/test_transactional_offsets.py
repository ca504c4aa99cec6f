"""Transactional offsets in a whole broker: verified and added, pending in the log, committed by a marker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.runtime.key_hash import partition_for
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.record.batch import iter_batches
from ottla.record.control import ControlRecordType, EndMarker, control_record_type

from .harness import Connection, Server
from .test_groups import commit, join, stored
from .transactional import TransactionalProducer, completed, find_coordinator, until


def offset(client: Connection, topic: str = "t", group: str = "g", *, stable: bool = True) -> tuple[ErrorCode, int]:
    """(error, offset) of partition 0 for a read_committed consumer, or for any."""
    asked = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    answer = client.ask(OffsetFetchRequest(groups=[asked], require_stable=stable), 9).groups[0]
    assert answer.error_code == 0
    (partition,) = answer.topics[0].partitions
    return ErrorCode(partition.error_code), partition.committed_offset


UNSTABLE = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)


@pytest.fixture
def coordinated(client: Connection) -> Connection:
    """A topic, and a loaded group coordinator."""
    client.create_topic("t")
    client.coordinate("g")
    return client


def producer(client: Connection, version: int = 2, name: str = "p") -> TransactionalProducer:
    assert [found.error_code for found in find_coordinator(client, name)] == [ErrorCode.NONE]
    found = TransactionalProducer(client, name, version=version)
    assert found.init() == ErrorCode.NONE
    return found


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("committed", [True, False])
def test_pending_until_the_marker(coordinated: Connection, version: int, committed: bool) -> None:
    client = coordinated
    assert commit(client, "t", 1) == 0
    sender = producer(client, version)
    assert sender.commit_offset("g", "t", 5) == ErrorCode.NONE
    assert offset(client) == UNSTABLE
    assert offset(client, stable=False) == (ErrorCode.NONE, 1)
    assert sender.end(commit=committed) == ErrorCode.NONE
    completed(sender)
    assert offset(client) == (ErrorCode.NONE, 5 if committed else 1)


@pytest.mark.parametrize("committed", [True, False])
def test_the_group_may_be_added_before_its_topic_is_there(client: Connection, committed: bool) -> None:
    client.create_topic("t")
    sender = producer(client, 1)
    assert sender.add_offsets("g") == ErrorCode.NONE
    client.coordinate("g")
    assert sender.commit_offset("g", "t", 5) == ErrorCode.NONE
    assert sender.end(commit=committed) == ErrorCode.NONE
    completed(sender)
    assert offset(client) == (ErrorCode.NONE, 5 if committed else -1)


def test_added_but_unused_group_blocks_nothing(client: Connection) -> None:
    sender = producer(client, 1)
    assert sender.add_offsets("g") == ErrorCode.NONE
    assert sender.end(commit=True) == ErrorCode.NONE
    completed(sender)


def test_the_log_holds_them_and_their_marker(coordinated: Connection) -> None:
    client = coordinated
    sender = producer(client)
    producer_id, epoch = sender.producer_id, sender.producer_epoch
    sender.commit_offset("g", "t", 5)
    sender.end()
    completed(sender)
    offsets, marker = iter_batches(stored(client.server, partition_for("g", 50)))
    assert (offsets.is_transactional, offsets.producer_id, offsets.producer_epoch) == (True, producer_id, epoch)
    assert offsets.base_sequence == -1
    assert (marker.is_control, marker.producer_id, marker.producer_epoch) == (True, producer_id, epoch + 1)
    (record,) = marker.records()
    assert control_record_type(record) is ControlRecordType.COMMIT


def test_a_restart_finds_them_pending(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client = server.connect()
    client.create_topic("t")
    client.coordinate("g")
    sender = producer(client)
    assert sender.commit_offset("g", "t", 5) == ErrorCode.NONE
    server.restart()
    sender.client = client = server.connect()
    client.coordinate("g")
    assert offset(client) == UNSTABLE
    assert sender.end() == ErrorCode.NONE
    completed(sender)
    assert offset(client) == (ErrorCode.NONE, 5)
    server.restart()
    client = server.connect()
    client.coordinate("g")
    assert offset(client) == (ErrorCode.NONE, 5)


def test_transactions_follow_each_other(coordinated: Connection) -> None:
    client = coordinated
    sender = producer(client)
    for number in range(5):
        assert sender.commit_offset("g", "t", number) == ErrorCode.NONE
        assert sender.end(commit=number != 3) == ErrorCode.NONE
    completed(sender)
    assert offset(client) == (ErrorCode.NONE, 4)


def test_a_late_marker_ends_nothing_of_the_next_transaction(coordinated: Connection) -> None:
    """Retried after a lost response, it arrives when the next transaction has begun with the marker's epoch."""
    client = coordinated
    sender = producer(client)
    sender.commit_offset("g", "t", 5)
    sender.end()
    completed(sender)
    assert sender.commit_offset("g", "t", 6) == ErrorCode.NONE
    answers: list[KafkaError | None] = []
    client.server.broker.parts.groups.runtime.complete_transaction(
        partition_for("g", 50),
        EndMarker(sender.producer_id, sender.producer_epoch, 0, committed=True, transaction_version=2),
        answers.append,
    )
    (refused,) = answers
    assert refused is not None
    assert refused.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert offset(client) == UNSTABLE
    assert offset(client, stable=False) == (ErrorCode.NONE, 5)
    sender.end(commit=False)
    completed(sender)
    assert offset(client) == (ErrorCode.NONE, 5)


def asked(
    client: Connection, sender: TransactionalProducer, version: int = 5, *, member: str = "", generation: int = -1
) -> ErrorCode:
    """The response to one TxnOffsetCommit."""
    request = TxnOffsetCommitRequest(
        transactional_id=sender.transactional_id,
        group_id="g",
        producer_id=sender.producer_id,
        producer_epoch=sender.producer_epoch,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=9)]
            )
        ],
    )
    return ErrorCode(client.ask(request, version).topics[0].partitions[0].error_code)


@pytest.mark.parametrize(
    ("version", "error"), [(0, "INVALID_TXN_STATE"), (3, "INVALID_TXN_STATE"), (4, "TRANSACTION_ABORTABLE")]
)
def test_an_older_client_has_to_add_the_group_before(coordinated: Connection, version: int, error: str) -> None:
    sender = producer(coordinated, 1)
    assert asked(coordinated, sender, version) == ErrorCode[error]
    assert offset(coordinated) == (ErrorCode.NONE, -1)


def test_foreign_producer_cannot_commit_offsets(coordinated: Connection) -> None:
    sender = producer(coordinated)
    assert sender.commit_offset("g", "t", 5) == ErrorCode.NONE
    sender.end()
    completed(sender)
    sender.producer_epoch -= 1
    assert asked(coordinated, sender) == ErrorCode.INVALID_PRODUCER_EPOCH
    sender.producer_id += 1
    assert asked(coordinated, sender) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    sender.transactional_id = "nobody's"  # of another partition, which may still be loading
    until(coordinated, lambda: asked(coordinated, sender) != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert asked(coordinated, sender) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert offset(coordinated) == (ErrorCode.NONE, 5)


def test_the_generation_fences(make_server: Callable[..., Server]) -> None:
    client = make_server(group_initial_rebalance_delay_ms="0").connect()
    client.create_topic("t")
    client.coordinate("g")
    joined = join(client)
    assert joined.generation_id == 1
    sender = producer(client)
    for generation, error in ((0, "ILLEGAL_GENERATION"), (2, "ILLEGAL_GENERATION"), (-1, "ILLEGAL_GENERATION")):
        assert asked(client, sender, member=joined.member_id, generation=generation) == ErrorCode[error]
    assert asked(client, sender, member="nobody", generation=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert asked(client, sender, member=joined.member_id, generation=1) == ErrorCode.NONE
    assert sender.end() == ErrorCode.NONE
    completed(sender)
    assert offset(client) == (ErrorCode.NONE, 9)


def test_disabled_verification_verifies_nothing(make_server: Callable[..., Server]) -> None:
    client = make_server(transaction_partition_verification_enable="false").connect()
    client.create_topic("t")
    client.coordinate("g")
    assert asked(client, producer(client, 1), 3) == ErrorCode.NONE
    assert offset(client) == UNSTABLE
