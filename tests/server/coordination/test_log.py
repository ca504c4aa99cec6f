"""The log of a coordinator on real replicas: epochs, damage to the disk, reads off the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.runtime import LogOffsets, Transaction
from ottla.record.batch import iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.record.control import EndMarker
from ottla.server.coordination.log import ReplicaCoordinatorLog
from ottla.server.transactions.transaction_partitions import PartitionsDone

from ..harness import Connection, Server

TOPIC = "internal"
Read = tuple[bytes | bytearray | memoryview | None, KafkaError | None]


@pytest.fixture
def log(client: Connection) -> ReplicaCoordinatorLog:
    client.create_topic(TOPIC, 2, cleanup_policy="compact", max_message_bytes="5000")
    parts = client.server.broker.parts
    return ReplicaCoordinatorLog(TOPIC, parts.replicas, client.server.pool, parts.in_flight)


def batch(*values: bytes) -> bytearray:
    return build_batch([RecordData(1, b"key", value) for value in values])


def read(server: Server, log: ReplicaCoordinatorLog, offset: int, max_bytes: int = 1 << 20, partition: int = 0) -> Read:
    outcomes: list[Read] = []
    log.read(partition, offset, max_bytes, lambda records, error: outcomes.append((records, error)))
    assert not outcomes, "never before the call has returned"
    server.run_until(lambda: bool(outcomes))
    assert server.broker.parts.in_flight.count == 0
    return outcomes[0]


def test_appended_records_are_read(server: Server, log: ReplicaCoordinatorLog) -> None:
    assert log.offsets(0) == LogOffsets(0, 0, 0)
    assert read(server, log, 0) == (b"", None)
    assert log.append(0, 0, batch(b"a", b"b")) == 2
    assert log.append(0, 0, batch(b"c")) == 3
    assert log.offsets(0) == LogOffsets(0, 3, 3)
    assert log.max_batch_bytes(0) == 5000
    records, error = read(server, log, 0)
    assert error is None
    assert records is not None
    assert [bytes(record.value or b"") for one in iter_batches(records) for record in one.records()] == [
        b"a",
        b"b",
        b"c",
    ]
    assert [one.partition_leader_epoch for one in iter_batches(records)] == [0, 0]
    records, _ = read(server, log, 1, max_bytes=1)
    assert records is not None
    assert [one.base_offset for one in iter_batches(records)] == [0], "the whole batch that contains the offset"


def test_another_leader_epoch_is_refused(log: ReplicaCoordinatorLog) -> None:
    for leader_epoch, code in ((1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-2, ErrorCode.FENCED_LEADER_EPOCH)):
        with pytest.raises(KafkaError) as refused:
            log.append(0, leader_epoch, batch(b"a"))
        assert refused.value.code == code
    assert log.offsets(0).log_end_offset == 0


def test_a_partition_that_is_not_here(server: Server, log: ReplicaCoordinatorLog) -> None:
    for call in (lambda: log.append(7, 0, batch(b"a")), lambda: log.offsets(7), lambda: log.max_batch_bytes(7)):
        with pytest.raises(KafkaError):
            call()
    records, error = read(server, log, 0, partition=7)
    assert records is None
    assert error is not None
    assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_offset_out_of_range(server: Server, log: ReplicaCoordinatorLog) -> None:
    _, error = read(server, log, 5)
    assert error is not None
    assert error.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_too_few_in_sync_replicas(client: Connection) -> None:
    client.create_topic(TOPIC, min_insync_replicas="2")
    parts = client.server.broker.parts
    log = ReplicaCoordinatorLog(TOPIC, parts.replicas, client.server.pool, parts.in_flight)
    partition = parts.replicas.find(TOPIC, 0)
    partition.update_state(partition.state._replace(replicas=(partition.node_id, 2)))
    with pytest.raises(KafkaError) as refused:
        log.append(0, 0, batch(b"a"))
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_high_watermark_advances_are_reported(server: Server, log: ReplicaCoordinatorLog) -> None:
    heard: list[tuple[int, int]] = []
    server.broker.parts.replicas.listen(TOPIC, lambda partition, offset: heard.append((partition, offset)))
    log.append(1, 0, batch(b"a", b"b"))
    log.append(0, 0, batch(b"c"))
    assert heard == [(1, 2), (0, 1)]


def test_the_high_watermark_waits_for_a_flush_that_is_owed(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client = server.connect()
    parts = server.broker.parts
    heard: list[tuple[int, int]] = []
    parts.replicas.listen(TOPIC, lambda partition, offset: heard.append((partition, offset)))
    client.create_topic(TOPIC, flush_messages="1")
    log = ReplicaCoordinatorLog(TOPIC, parts.replicas, server.pool, parts.in_flight)
    assert log.append(0, 0, batch(b"a")) == 1
    assert heard == []
    server.run_until(lambda: heard == [(0, 1)])


class Transactions:
    """A fake verifier of transactions: answers as set up, when `answer` is called."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, list[tuple[str, int]], bool]] = []
        self.waiting: list[PartitionsDone] = []

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        verify_only: bool,
        done: PartitionsDone,
    ) -> None:
        self.asked.append((transactional_id, producer_id, producer_epoch, list(partitions), verify_only))
        self.waiting.append(done)

    def answer(self, **errors: ErrorCode) -> None:
        self.waiting.pop(0)({(TOPIC, int(name[1:])): code for name, code in errors.items()})


class TestTransactions:
    """KIP-890: a partition is verified, or added, before the first batch of a transaction."""

    @pytest.fixture
    def transactions(self) -> Transactions:
        return Transactions()

    @pytest.fixture
    def log(self, client: Connection, transactions: Transactions) -> ReplicaCoordinatorLog:
        client.create_topic(TOPIC, 2)
        parts = client.server.broker.parts
        asked: Any = transactions
        return ReplicaCoordinatorLog(TOPIC, parts.replicas, client.server.pool, parts.in_flight, asked)

    def verify(
        self, log: ReplicaCoordinatorLog, *, partition: int = 0, epoch: int = 0, add: bool = True
    ) -> list[tuple[Any, KafkaError | None]]:
        outcomes: list[tuple[Any, KafkaError | None]] = []
        transaction = Transaction("id", 7, epoch, add)
        log.verify_transaction(partition, transaction, lambda guard, error: outcomes.append((guard, error)))
        return outcomes

    def batch(self, epoch: int = 0) -> bytearray:
        return build_batch([RecordData(1, b"k", b"v")], producer_id=7, producer_epoch=epoch, is_transactional=True)

    def test_transaction_from_verification_to_marker(
        self, log: ReplicaCoordinatorLog, transactions: Transactions
    ) -> None:
        with pytest.raises(KafkaError) as refused:
            log.append(0, 0, self.batch())
        assert refused.value.code == ErrorCode.INVALID_TXN_STATE
        outcomes = self.verify(log)
        assert transactions.asked == [("id", 7, 0, [(TOPIC, 0)], False)]
        assert outcomes == []
        transactions.answer()
        ((guard, error),) = outcomes
        assert error is None
        assert log.append(0, 0, self.batch(), guard) == 1
        assert self.verify(log) == [(None, None)], "it is open: no verification is sent"
        assert log.append(0, 0, self.batch()) == 2
        assert log.append_end_marker(0, 0, EndMarker(7, 1, 5, committed=True, transaction_version=2)) == 3
        assert log.offsets(0) == LogOffsets(0, 3, 3)
        assert self.verify(log, epoch=1) == []
        assert len(transactions.asked) == 2

    def test_older_clients_have_added_it(self, log: ReplicaCoordinatorLog, transactions: Transactions) -> None:
        outcomes = self.verify(log, partition=1, add=False)
        assert transactions.asked == [("id", 7, 0, [(TOPIC, 1)], True)]
        transactions.answer(p0=ErrorCode.NONE, p1=ErrorCode.INVALID_TXN_STATE)
        ((_, error),) = outcomes
        assert error is not None
        assert error.code == ErrorCode.INVALID_TXN_STATE

    def test_disabled_verification_only_adds_partitions(
        self, log: ReplicaCoordinatorLog, transactions: Transactions, client: Connection
    ) -> None:
        client.server.broker.parts.replicas.find(TOPIC, 0).log.producers.verification_enabled = False
        assert self.verify(log, add=False) == [(None, None)]
        assert log.append(0, 0, self.batch()) == 1
        assert self.verify(log, add=True, epoch=1) == []
        assert len(transactions.asked) == 1

    def test_old_epochs(self, log: ReplicaCoordinatorLog, transactions: Transactions) -> None:
        assert log.append_end_marker(0, 0, EndMarker(7, 3, 5, committed=False, transaction_version=2)) == 1
        ((_, error),) = self.verify(log, epoch=2)
        assert error is not None
        assert error.code == ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(KafkaError) as refused:
            log.append_end_marker(0, 0, EndMarker(7, 2, 5, committed=False, transaction_version=2))
        assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(KafkaError) as fenced:
            log.append_end_marker(0, 0, EndMarker(7, 4, 4, committed=False, transaction_version=2))
        assert fenced.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert log.offsets(0).log_end_offset == 1

    def test_another_leader_epoch(self, log: ReplicaCoordinatorLog) -> None:
        with pytest.raises(KafkaError) as refused:
            log.append_end_marker(0, 1, EndMarker(7, 0, 5, committed=True, transaction_version=0))
        assert refused.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH
        ((_, error),) = self.verify(log, partition=7)
        assert error is not None
        assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_verification_without_a_coordinator_client(self, client: Connection) -> None:
        client.create_topic(TOPIC, 1)
        parts = client.server.broker.parts
        log = ReplicaCoordinatorLog(TOPIC, parts.replicas, client.server.pool, parts.in_flight)
        ((_, error),) = self.verify(log)
        assert error is not None
        assert error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
