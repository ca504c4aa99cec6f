"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from .harness import Connection, Server, fetch_request, fetched

T0 = 1_700_000_000_000


def list_offset(
    client: Connection, timestamp: int, version: int = 11, topic: str = "t", partition: int = 0, epoch: int = -1
) -> tuple[int, int, int, int]:
    """(error, offset, timestamp, leader epoch)."""
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    found = client.ask(request, version).topics[0].partitions[0]
    return found.error_code, found.offset, found.timestamp, found.leader_epoch


@pytest.fixture
def filled(client: Connection) -> Connection:
    """Offsets 0 to 4, timestamps T0 to T0 + 4, the third later than the others."""
    client.create_topic("t")
    client.produce("t", b"a", b"b", timestamp=T0)
    client.produce("t", b"c", timestamp=T0 + 1000)
    client.produce("t", b"d", b"e", timestamp=T0 + 3)
    return client


def test_special_timestamps(filled: Connection) -> None:
    assert list_offset(filled, -1) == (0, 5, -1, 0)
    assert list_offset(filled, -2) == (0, 0, -1, 0)
    assert list_offset(filled, -3) == (0, 2, T0 + 1000, 0)
    assert list_offset(filled, -4) == (0, 0, -1, 0)
    assert list_offset(filled, -5) == (0, -1, -1, -1)
    assert list_offset(filled, -6) == (0, -1, -1, -1)
    assert list_offset(filled, -7)[0] == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", range(1, 12))
def test_supported_fields_of_every_version(filled: Connection, version: int) -> None:
    epoch = 0 if version >= 4 else -1
    assert list_offset(filled, -1, version) == (0, 5, -1, epoch)
    for timestamp, first in ((-3, 7), (-4, 8), (-5, 9), (-6, 11)):
        code = list_offset(filled, timestamp, version)[0]
        assert code == (0 if version >= first else ErrorCode.UNSUPPORTED_VERSION)


def test_by_time(filled: Connection) -> None:
    assert list_offset(filled, T0) == (0, 0, T0, 0)
    assert list_offset(filled, T0 + 1) == (0, 1, T0 + 1, 0)
    assert list_offset(filled, T0 + 2) == (0, 2, T0 + 1000, 0)
    assert list_offset(filled, T0 + 1001) == (0, -1, -1, -1)


def test_refusals(filled: Connection) -> None:
    assert list_offset(filled, -1, topic="nope")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(filled, -1, partition=3)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(filled, -1, epoch=9)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    row = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[row, row])])
    codes = [part.error_code for part in filled.ask(request, 5).topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST]


def test_an_empty_partition(client: Connection) -> None:
    client.create_topic("t")
    assert list_offset(client, -1)[:2] == (0, 0)
    assert list_offset(client, -2)[:2] == (0, 0)
    assert list_offset(client, -3) == (0, -1, -1, -1)
    assert list_offset(client, T0) == (0, -1, -1, -1)


def delete_records(client: Connection, offset: int, topic: str = "t", version: int = 2) -> tuple[int, int]:
    asked = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    found = client.ask(DeleteRecordsRequest(topics=[asked]), version).topics[0].partitions[0]
    return found.error_code, found.low_watermark


def test_records_are_deleted_from_the_start(filled: Connection) -> None:
    assert delete_records(filled, 2) == (0, 2)
    assert list_offset(filled, -2)[1] == 2
    partition = fetched(filled.ask(fetch_request(("t", 0, 1)), 12))[("t", 0)]
    assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetched(filled.ask(fetch_request(("t", 0, 2)), 12))[("t", 0)].log_start_offset == 2
    assert delete_records(filled, 1) == (0, 2), "never decreases"
    assert delete_records(filled, 6) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(filled, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(filled, -1, version=0) == (0, 5)
    assert delete_records(filled, 0, topic="nope") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_a_compacted_topic_keeps_its_records(client: Connection) -> None:
    client.create_topic("t", cleanup_policy="compact")
    client.produce("t", b"a", key=b"k")
    assert delete_records(client, -1)[0] == ErrorCode.POLICY_VIOLATION
    assert client.produce("t", b"a").error_code == ErrorCode.INVALID_RECORD


def test_end_offset_of_an_epoch(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client = server.connect()
    client.create_topic("t")
    client.produce("t", b"a", b"b")
    server.restart()
    client = server.connect()
    client.produce("t", b"c")

    def end_of(epoch: int, current: int = -1, version: int = 4) -> tuple[int, int, int]:
        asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])])
        found = client.ask(request, version).topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    for version in (2, 3, 4):
        assert end_of(0, version=version) == (0, 0, 2)
        assert end_of(1, version=version) == (0, 1, 3)
        assert end_of(5, version=version) == (0, -1, -1)
    assert end_of(1, current=0)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert end_of(1, current=2)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
