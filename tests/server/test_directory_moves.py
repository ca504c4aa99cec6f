"""Moves of replicas between the data directories of one broker (KIP-113, KIP-858)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.harness import Connection, Server, fetch_request, fetched

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.record.batch import iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.replica.partition import Partition
from ottla.storage.files import names

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, log_dirs=f"{tmp_path}/a,{tmp_path}/b")
    yield server
    server.stop()


def ask_move(server: Server, target: str, name: str = "t", *partitions: int) -> list[int]:
    topics = [AlterReplicaLogDirTopic(name=name, partitions=list(partitions or (0,)))]
    dirs = [AlterReplicaLogDir(path=f"{server.directory}/{target}" if target else "/none", topics=topics)]
    results = server.connect().ask(AlterReplicaLogDirsRequest(dirs=dirs), 2).results
    return [partition.error_code for topic in results for partition in topic.partitions]


def partition_of(server: Server, name: str = "t", index: int = 0) -> Partition:
    return server.broker.parts.replicas.find(name, index)


def place(server: Server, name: str = "t", index: int = 0) -> str:
    return Path(partition_of(server, name, index).log.directory).parent.name


def wait_for(server: Server, target: str, name: str = "t") -> None:
    """Wait until the replica was moved and the move left no files."""

    def moved() -> bool:
        moves = server.broker.parts.replicas.moves
        notes = list(server.directory.glob(f"[ab]/*/{names.MOVED_FROM}"))
        return place(server, name) == target and not list(moves.copies()) and not notes

    server.run_until(moved)


def wait_for_a_part(server: Server, count: int) -> None:
    """Wait until some of `count` records were copied; a rate of 1 allows one piece."""
    server.run_until(lambda: 0 < server.broker.parts.replicas.moves.max_lag() < count)


def set_rate(server: Server, bytes_per_s: int) -> None:
    config = AlterableConfig(name=RATE, config_operation=0, value=str(bytes_per_s))
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    (result,) = server.connect().ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == 0, result.error_message
    server.run_until(lambda: server.broker.parts.replicas.throttles.moves.bytes_per_s == bytes_per_s)


def read(server: Server, start: int = 0, name: str = "t") -> list[tuple[int, bytes | None]]:
    """All records of a consumer, as (offset, value)."""
    client, found = server.connect(), []
    end = partition_of(server, name).high_watermark
    while start < end:
        row = fetched(client.ask(fetch_request((name, 0, start)), 12))[name, 0]
        assert row.error_code == 0
        for batch in iter_batches(row.records):
            found += [(record.offset, record.value) for record in batch.records() if record.offset >= start]
            start = batch.next_offset
    return found


def described(client: Connection) -> list[tuple[str, bool, int]]:
    """Directories of the partitions, pending moves, and lags."""
    results = client.ask(DescribeLogDirsRequest(topics=None), 4).results
    return [
        (Path(each.log_dir).name, partition.is_future_key, partition.offset_lag)
        for each in results
        for topic in each.topics
        for partition in topic.partitions
    ]


def fill(client: Connection, count: int, size: int = 100, first: int = 0) -> None:
    for number in range(first, first + count):
        assert client.produce("t", b"%d" % number + b"." * size).error_code == 0


def test_a_replica_is_moved_while_it_is_written_and_read(server: Server) -> None:
    client = server.connect()
    client.create_topic("t", internal_segment_bytes="2000")
    fill(client, 60)
    before = read(server)
    assert place(server) == "a"
    assert ask_move(server, "b") == [0]
    fill(client, 20, first=60)
    wait_for(server, "b")
    fill(client, 20, first=80)
    assert [offset for offset, _ in read(server)] == list(range(100))
    assert read(server)[:60] == before
    assert described(client) == [("b", False, 0)]
    assert len(partition_of(server).log.segments) > 3
    image = server.broker.parts.publisher.image
    of_b = server.broker.parts.logs.directories[1].directory_id
    assert image.topics["t"].partitions[0].directories == (of_b,)
    assert not list(server.directory.glob("a/t-0"))
    assert len(list(server.directory.glob("a/t-0.*-delete"))) == 1
    server.restart()
    assert place(server) == "b"
    assert len(read(server)) == 100
    assert ask_move(server, "a") == [0]
    wait_for(server, "a")
    assert len(read(server)) == 100


def test_impossible_moves_are_refused(server: Server) -> None:
    client = server.connect()
    client.create_topic("t", partitions=2)
    assert ask_move(server, "", "t", 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert ask_move(server, "a", "t", 0, 7) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert ask_move(server, "a", "x" * 230) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    cordoned = AlterableConfig(name="cordoned.log.dirs", config_operation=0, value=f"{server.directory}/b")
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[cordoned])
    (result,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == 0, result.error_message
    server.run_until(lambda: server.broker.parts.logs.directories[1].is_cordoned)
    assert ask_move(server, "b", "t", 0) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    server.broker.parts.replicas.find("t", 0).mark_offline()
    assert ask_move(server, "a", "t", 0) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_directory_is_remembered_for_a_later_partition(server: Server) -> None:
    assert ask_move(server, "b", "t", 0, 1) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    server.connect().create_topic("t", partitions=3)
    assert [place(server, "t", index) for index in range(3)] == ["b", "b", "a"]


def test_a_slow_move_is_described_resumed_and_cancelled(server: Server) -> None:
    client = server.connect()
    set_rate(server, 1)
    client.create_topic("t")
    fill(client, 30, size=100_000)
    assert ask_move(server, "b") == [0]
    wait_for_a_part(server, 30)
    here, there = described(client)
    assert (here, there[:2]) == (("a", False, 0), ("b", True))
    lag = there[2]
    assert 0 < lag < 30
    assert server.broker.parts.replicas.moves.max_lag() == lag
    server.restart()
    client = server.connect()
    wait_for_a_part(server, lag)  # the earlier copy is still there, and one more piece
    assert ask_move(server, "b") == [0], "it is in progress"
    assert len(list(server.directory.glob("b/t-0.*-future"))) == 1
    assert described(client)[1][:2] == ("b", True)
    assert ask_move(server, "a") == [0]
    assert described(client) == [here]
    assert not list(server.directory.glob("b/*-future"))
    assert ask_move(server, "b") == [0]
    set_rate(server, 2**60)
    wait_for(server, "b")
    assert len(read(server)) == 30


def test_records_that_are_deleted_meanwhile_stay_deleted(server: Server) -> None:
    client = server.connect()
    set_rate(server, 1)
    client.create_topic("t", internal_segment_bytes="250000")
    fill(client, 30, size=100_000)
    ask_move(server, "b")
    wait_for_a_part(server, 30)
    deletion = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=25)])
    client.ask(DeleteRecordsRequest(topics=[deletion], timeout_ms=1000), 2)
    set_rate(server, 2**60)
    wait_for(server, "b")
    assert partition_of(server).log.log_start_offset == 25
    assert [offset for offset, _ in read(server, 25)] == [25, 26, 27, 28, 29]
    server.restart()
    assert partition_of(server).log.log_start_offset == 25


def test_a_topic_is_deleted_with_its_copy(server: Server) -> None:
    client = server.connect()
    set_rate(server, 1)
    client.create_topic("t")
    fill(client, 30, size=100_000)
    ask_move(server, "b")
    wait_for_a_part(server, 30)
    client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    client.create_topic("t")
    assert not list(server.directory.glob("[ab]/*-future"))
    assert described(client) == [("a", False, 0)]
    fill(client, 1)
    assert len(read(server)) == 1


def test_an_idempotent_producer_does_not_notice(server: Server) -> None:
    client = server.connect()
    client.create_topic("t")
    for number in range(5):
        assert client.produce("t", b"v", producer_id=9, producer_epoch=0, base_sequence=number).error_code == 0
    ask_move(server, "b")
    wait_for(server, "b")
    again = client.produce("t", b"v", producer_id=9, producer_epoch=0, base_sequence=4)
    assert (again.error_code, again.base_offset) == (0, 4), "the duplicate is known"
    gap = client.produce("t", b"v", producer_id=9, producer_epoch=0, base_sequence=7)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce("t", b"v", producer_id=9, producer_epoch=0, base_sequence=5).base_offset == 5


def test_transaction_verified_before_move_begins_after_it(server: Server) -> None:
    server.connect().create_topic("t")
    partition = partition_of(server)
    guard = partition.begin_verification(7, 0, 0, supports_epoch_bump=True)
    assert ask_move(server, "b") == [0]
    wait_for(server, "b")
    batch = build_batch(
        [RecordData(0, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    partition.append_records(batch, 0, len(batch), True, guard=guard)
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)


def test_acknowledged_records_are_flushed_during_a_move(server: Server) -> None:
    client = server.connect()
    client.create_topic("t", flush_messages="1")
    fill(client, 10)
    ask_move(server, "b")
    count = 10
    while place(server) == "a":
        fill(client, 1, first=count)
        count += 1
    fill(client, 5, first=count)
    assert partition_of(server).log.flushed_offset == count + 5
    assert len(read(server)) == count + 5


def test_a_copy_alone_is_not_taken_for_the_log(server: Server) -> None:
    """As after a crash between the report to the controller and the swap, with the other directory gone."""
    client = server.connect()
    client.create_topic("t")
    fill(client, 3)
    ask_move(server, "b")
    wait_for(server, "b")
    server.stop()
    log = server.directory / "b" / "t-0"
    copy = log.rename(f"{log}.{'1' * 32}-future")
    server.start()
    client = server.connect()
    assert client.produce("t", b"v").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert copy.is_dir()
    assert not log.exists(), "no log is recreated"
    server.stop()
    copy.rename(log)
    server.start()
    assert len(read(server)) == 3
