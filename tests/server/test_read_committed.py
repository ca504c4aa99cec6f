"""Responses to a read_committed consumer: last stable offset, aborted transactions, and wake-ups."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.record.batch import iter_batches
from ottla.record.control import EndMarker
from ottla.record.transactions import TransactionFilter
from ottla.replica.partition import Partition

from .harness import Connection, Server, batch_of, fetch_request, fetched

COMMITTED, UNCOMMITTED = 1, 0


@pytest.fixture
def partition(server: Server, client: Connection) -> Partition:
    client.create_topic("t", message_timestamp_type="LogAppendTime")
    return server.broker.parts.replicas.find("t", 0)


def write(
    partition: Partition, *values: bytes, producer_id: int = 5, producer_epoch: int = 0, sequence: int = 0
) -> int:
    """Append within a transaction; the base offset."""
    guard = partition.begin_verification(producer_id, producer_epoch, sequence, supports_epoch_bump=True)
    batch = bytearray(
        batch_of(
            *values,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
    )
    return partition.append_records(batch, 0, len(batch), True, guard=guard).base_offset


def end(partition: Partition, *, committed: bool, producer_id: int = 5, producer_epoch: int = 1) -> int:
    return partition.append_end_marker(EndMarker(producer_id, producer_epoch, 1, committed, 2)).last_offset


def only(response: Any) -> Any:
    (found,) = fetched(response).values()
    return found


def fetch(client: Connection, offset: int = 0, isolation_level: int = COMMITTED, version: int = 12) -> Any:
    return only(client.ask(fetch_request(("t", 0, offset), isolation_level=isolation_level), version))


def values(found: Any) -> list[bytes | None]:
    """The records that a client accepts from a response."""
    passes = TransactionFilter(found.aborted_transactions or ()).passes
    return [record.value for batch in iter_batches(found.records) if passes(batch) for record in batch.records()]


@pytest.mark.promise("T1")
@pytest.mark.parametrize("version", [4, 11, 12])
def test_an_open_transaction_holds_its_readers(client: Connection, partition: Partition, version: int) -> None:
    client.produce("t", b"before")
    write(partition, b"a", b"b")
    client.produce("t", b"behind")
    found = fetch(client, version=version)
    assert (found.high_watermark, found.last_stable_offset, found.aborted_transactions) == (4, 1, [])
    assert values(found) == [b"before"]
    assert values(fetch(client, isolation_level=UNCOMMITTED, version=version)) == [b"before", b"a", b"b", b"behind"]
    assert fetch(client, isolation_level=UNCOMMITTED, version=version).last_stable_offset == 1
    end(partition, committed=True)
    found = fetch(client, version=version)
    assert (found.high_watermark, found.last_stable_offset) == (5, 5)
    assert values(found) == [b"before", b"a", b"b", b"behind"]


@pytest.mark.promise("T1")
@pytest.mark.parametrize("version", [4, 11, 12])
def test_an_aborted_transaction_is_named_and_left_out(client: Connection, partition: Partition, version: int) -> None:
    write(partition, b"never")
    client.produce("t", b"plain")
    end(partition, committed=False)
    write(partition, b"kept", producer_epoch=1)
    end(partition, committed=True, producer_epoch=2)
    found = fetch(client, version=version)
    assert [(one.producer_id, one.first_offset) for one in found.aborted_transactions] == [(5, 0)]
    assert values(found) == [b"plain", b"kept"]
    assert fetch(client, 3, version=version).aborted_transactions == []
    assert fetch(client, isolation_level=UNCOMMITTED, version=version).aborted_transactions is None


def test_nothing_read_is_an_empty_list(client: Connection, partition: Partition) -> None:
    write(partition, b"never")
    end(partition, committed=False)
    assert fetch(client, 2).aborted_transactions == []


def latest(client: Connection, isolation_level: int) -> int:
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    response = client.ask(ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[topic]), 7)
    (found,) = response.topics[0].partitions
    assert found.error_code == 0
    offset: int = found.offset
    return offset


def test_offsets_end_at_the_last_stable_one(client: Connection, partition: Partition) -> None:
    client.produce("t", b"before")
    write(partition, b"a")
    assert (latest(client, COMMITTED), latest(client, UNCOMMITTED)) == (1, 2)
    end(partition, committed=False)
    assert (latest(client, COMMITTED), latest(client, UNCOMMITTED)) == (3, 3)


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("min_bytes", [1, 200])
def test_waiting_fetch_is_answered_at_the_end_of_a_transaction(
    client: Connection, partition: Partition, min_bytes: int, in_session: bool
) -> None:
    """All of it was appended before the marker, which is smaller than the fetch's min_bytes."""
    session = (0, -1)
    if in_session:
        session_id = client.ask(fetch_request(("t", 0, 0), isolation_level=COMMITTED, session=(0, 0)), 12).session_id
        session = (session_id, 1)
    asked = [] if in_session else [("t", 0, 0)]
    assert not client.send(
        fetch_request(*asked, isolation_level=COMMITTED, max_wait_ms=60_000, min_bytes=min_bytes, session=session), 12
    )
    write(partition, b"a" * 500)
    for number in range(3):
        client.server.turn()
        client.server.connect().produce("t", b"b%d" % number)
    client.server.turn()
    assert not client.channel.answers
    end(partition, committed=True)
    client.server.turn()
    assert client.channel.answers
    assert values(only(client.answer())) == [b"a" * 500, b"b0", b"b1", b"b2"]


def test_open_and_aborted_transactions_survive_a_restart(make_server: Any) -> None:
    server = make_server()
    client = server.connect()
    client.create_topic("t", message_timestamp_type="LogAppendTime")
    partition = server.broker.parts.replicas.find("t", 0)
    write(partition, b"never")
    end(partition, committed=False)
    write(partition, b"open", producer_epoch=1)
    server.restart()
    client = server.connect()
    partition = server.broker.parts.replicas.find("t", 0)
    found = fetch(client)
    assert (found.high_watermark, found.last_stable_offset) == (3, 2)
    assert [(one.producer_id, one.first_offset) for one in found.aborted_transactions] == [(5, 0)]
    assert values(found) == []
    end(partition, committed=True, producer_epoch=2)
    assert values(fetch(client)) == [b"open"]


def test_producers_are_described_with_their_transactions(client: Connection, partition: Partition) -> None:
    def described() -> tuple[int, ...]:
        request = DescribeProducersRequest(topics=[DescribeProducersTopic(name="t", partition_indexes=[0])])
        (one,) = client.ask(request, 0).topics[0].partitions
        (producer,) = one.active_producers
        return (
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence,
            producer.coordinator_epoch,
            producer.current_txn_start_offset,
        )

    client.produce("t", b"before")
    write(partition, b"a", b"b")
    assert described() == (5, 0, 1, -1, 1)
    end(partition, committed=True)
    assert described() == (5, 1, -1, 1, -1)
