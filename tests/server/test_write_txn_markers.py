"""WriteTxnMarkers: markers of coordinators elsewhere, and of clients that pose as one."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.record.control import EndMarker

from .harness import Connection, Server
from .test_apis import Allowing, guarded
from .transactional import TransactionalProducer, find_coordinator, latest, read, until


def marker(producer_id: int, *topics: tuple[str, list[int]], epoch: int = 0, **fields: Any) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics],
        **{"transaction_result": True, "coordinator_epoch": 0, "transaction_version": 2} | fields,
    )


def codes(client: Connection, *markers: WritableTxnMarker, version: int = 2) -> dict[int, dict[tuple[str, int], int]]:
    """The results, by producer id."""
    response = client.ask(WriteTxnMarkersRequest(markers=list(markers)), version)
    assert len({each.producer_id for each in response.markers}) == len(response.markers)
    return {
        each.producer_id: {
            (topic.name, partition.partition_index): partition.error_code
            for topic in each.topics
            for partition in topic.partitions
        }
        for each in response.markers
    }


@pytest.mark.parametrize("version", [1, 2])
def test_each_partition_is_answered_for_itself(client: Connection, version: int) -> None:
    client.create_topic("a", 2)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = codes(client, marker(5, ("a", [0, 1, 2]), ("nope", [0])), marker(6, ("a", [1])), version=version)
    assert answer == {5: {("a", 0): 0, ("a", 1): 0, ("a", 2): unknown, ("nope", 0): unknown}, 6: {("a", 1): 0}}
    assert [latest(client, "a", index) for index in (0, 1)] == [1, 2]


def test_markers_for_one_partition_are_answered_separately(client: Connection) -> None:
    client.create_topic("a")
    codes(client, marker(5, ("a", [0]), epoch=7, coordinator_epoch=3))
    heard: list[tuple[int, ErrorCode]] = []
    ends = [
        (EndMarker(producer_id, epoch, coordinator_epoch, True, 2), partial(lambda *codes: heard.append(codes), number))
        for number, (producer_id, epoch, coordinator_epoch) in enumerate(
            [(6, 0, 0), (5, 6, 3), (8, 0, 0), (-1, 0, 0), (9, -1, 0)]
        )
    ]
    client.server.broker.parts.marker_writer.write("a", 0, ends)
    old, unknown = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert sorted(heard) == [(0, 0), (1, old), (2, 0), (3, unknown), (4, old)]
    assert latest(client, "a") == 3
    heard.clear()
    client.server.broker.parts.marker_writer.write("nope", 0, ends)
    assert {code for _, code in heard} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(heard) == len(ends)


def test_a_partition_that_is_named_twice_gets_one_marker(client: Connection) -> None:
    client.create_topic("a")
    assert codes(client, marker(5, ("a", [0, 0]), ("a", [0]))) == {5: {("a", 0): 0}}
    assert latest(client, "a") == 1


def test_markers_without_partitions_get_empty_results(client: Connection) -> None:
    assert codes(client) == {}
    assert codes(client, marker(5)) == {}
    assert codes(client, marker(5, ("a", []))) == {}


def test_several_markers_of_one_producer_are_one_result(client: Connection) -> None:
    client.create_topic("a")
    client.create_topic("b")
    answer = codes(client, marker(5, ("a", [0])), marker(5, ("b", [0])), marker(5, ("nope", [0])))
    assert answer == {5: {("a", 0): 0, ("b", 0): 0, ("nope", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}


def test_far_more_partitions_than_there_are_close_the_connection(client: Connection) -> None:
    client.create_topic("a")
    client.send(WriteTxnMarkersRequest(markers=[marker(5, ("a", list(range(2000))))]), 2)
    assert client.channel.closed
    assert latest(client.server.connect(), "a") == 0


def test_an_older_coordinator_is_fenced(client: Connection) -> None:
    client.create_topic("a")
    assert codes(client, marker(5, ("a", [0]), coordinator_epoch=7)) == {5: {("a", 0): 0}}
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert codes(client, marker(5, ("a", [0]), coordinator_epoch=6)) == {5: {("a", 0): fenced}}
    assert latest(client, "a") == 1


def test_markers_of_no_producer_are_refused(client: Connection) -> None:
    client.create_topic("a")
    assert codes(client, marker(-1, ("a", [0]))) == {-1: {("a", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}}
    assert codes(client, marker(5, ("a", [0]), epoch=-1)) == {5: {("a", 0): ErrorCode.INVALID_PRODUCER_EPOCH}}
    assert latest(client, "a") == 0


def test_marker_without_the_group_coordinator_is_leaderless(client: Connection) -> None:
    place = ("__consumer_offsets", 0)
    assert codes(client, marker(5, ("__consumer_offsets", [0]))) == {5: {place: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}
    client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    assert codes(client, marker(5, ("__consumer_offsets", [0]))) == {5: {place: 0}}
    client.server.broker.parts.groups.runtime.resign(0)
    answer = codes(client, marker(5, ("__consumer_offsets", [0])))
    assert answer == {5: {place: ErrorCode.NOT_LEADER_OR_FOLLOWER}}


def test_marker_in_the_transaction_log_is_harmless(client: Connection) -> None:
    find_coordinator(client, "t")
    everywhere = marker(5, ("__transaction_state", list(range(50))))
    until(client, lambda: set(codes(client, everywhere)[5].values()) == {0})  # once every partition is loaded
    producer = TransactionalProducer(client)
    assert producer.init() is ErrorCode.NONE
    assert set(codes(client, everywhere)[5].values()) == {0}
    assert producer.init() is ErrorCode.NONE
    assert producer.producer_epoch == 1
    client.server.restart()
    after = TransactionalProducer(client.server.connect())
    find_coordinator(after.client, "t")
    assert after.init() is ErrorCode.NONE
    assert (after.producer_id, after.producer_epoch) == (producer.producer_id, producer.producer_epoch + 1)


@pytest.mark.parametrize(
    ("operation", "allowed"),
    [(AclOperation.ALTER, True), (AclOperation.CLUSTER_ACTION, True), (AclOperation.DESCRIBE, False)],
)
def test_markers_need_a_broker_or_an_administrator(
    server: Server, client: Connection, operation: AclOperation, allowed: bool
) -> None:
    client.create_topic("a")
    guarded(server, client, Allowing((operation, ResourceType.CLUSTER, CLUSTER_NAME)))
    code = codes(client, marker(5, ("a", [0])))[5]["a", 0]
    assert code == (ErrorCode.NONE if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert server.broker.parts.replicas.find("a", 0).log.log_end_offset == int(allowed)


def test_marker_is_not_counted_as_a_record(client: Connection) -> None:
    client.create_topic("a")
    codes(client, marker(5, ("a", [0])))
    assert client.produce("a", b"v").base_offset == 1
    assert read(client, "a") == read(client, "a", committed=False) == [b"v"]
