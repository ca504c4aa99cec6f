"""The log of a coordinator on real replicas: epochs, damage to the disk, reads off the loop."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.runtime import LogOffsets
from ottla.record.batch import iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.server.coordination.log import ReplicaCoordinatorLog

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


def test_what_is_appended_is_read(server: Server, log: ReplicaCoordinatorLog) -> None:
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
    assert [one.base_offset for one in iter_batches(records)] == [0], "one batch whole, the one that holds the offset"


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


def test_rises_of_the_high_watermark_are_told(server: Server, log: ReplicaCoordinatorLog) -> None:
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
