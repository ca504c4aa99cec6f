"""Fetch requests: limits, long poll, sessions, epochs, isolation, errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.record.batch import iter_batches
from ottla.replica.manager import ReplicaManager

from .harness import Connection, Server, fetch_request, fetched


def only(response: Any) -> Any:
    (partition,) = fetched(response).values()
    return partition


def values(records: bytes) -> list[bytes | None]:
    return [record.value for batch in iter_batches(records) for record in batch.records()]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads(client: Connection, version: int) -> None:
    topic_id = client.create_topic("t")
    client.produce("t", b"a", b"b")
    topic = topic_id if version >= 13 else "t"
    partition = only(client.ask(fetch_request((topic, 0, 0)), version))
    assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (0, 2, 2)
    assert values(partition.records) == [b"a", b"b"]
    assert partition.aborted_transactions is None


def test_read_committed_names_aborted_transactions(client: Connection) -> None:
    client.create_topic("t")
    client.produce("t", b"a")
    partition = only(client.ask(fetch_request(("t", 0, 0), isolation_level=1), 12))
    assert partition.aborted_transactions == []
    assert values(partition.records) == [b"a"]


def test_unknown_and_out_of_range(client: Connection) -> None:
    topic_id = client.create_topic("t")
    client.produce("t", b"a")
    for wanted, version, code in (
        (("nope", 0, 0), 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 9, 0), 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((b"\x09" * 16, 0, 0), 13, ErrorCode.UNKNOWN_TOPIC_ID),
        ((topic_id, 0, 2), 13, ErrorCode.OFFSET_OUT_OF_RANGE),
        ((topic_id, 0, -1), 13, ErrorCode.OFFSET_OUT_OF_RANGE),
    ):
        partition = only(client.ask(fetch_request(wanted, max_wait_ms=60_000), version))
        assert partition.error_code == code
        assert not partition.records


def test_leader_epochs_are_fenced(client: Connection) -> None:
    client.create_topic("t")
    client.produce("t", b"a")
    for epoch, code in ((0, 0), (5, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, 0)):
        partition = only(client.ask(fetch_request(("t", 0, 0), current_leader_epoch=epoch), 12))
        assert partition.error_code == code


def test_old_leader_epoch_gets_the_current_one(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client = server.connect()
    topic_id = client.create_topic("t")
    client.produce("t", b"a")
    server.restart()
    client = server.connect()
    response = client.ask(fetch_request((topic_id, 0, 0), current_leader_epoch=0), 16)
    partition = only(response)
    assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 1)
    assert [(node.node_id, node.port) for node in response.node_endpoints] == [(1, 9092)]


def test_divergence_is_reported(client: Connection) -> None:
    client.create_topic("t")
    client.produce("t", b"a")
    partition = only(client.ask(fetch_request(("t", 0, 1), last_fetched_epoch=0), 12))
    assert (partition.error_code, partition.diverging_epoch.end_offset) == (0, -1)
    partition = only(client.ask(fetch_request(("t", 0, 5), last_fetched_epoch=0, max_wait_ms=60_000), 12))
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (0, 1)


def test_false_follower_is_refused(client: Connection) -> None:
    client.create_topic("t")
    client.produce("t", b"a")
    partition = only(client.ask(fetch_request(("t", 0, 0), replica_id=1), 12))
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- limits -----------------------------------------------------------------------------------------------------------


def test_first_batch_is_returned_above_all_limits(client: Connection) -> None:
    client.create_topic("t", 2)
    for index in (0, 1):
        client.produce("t", b"x" * 1000, partition=index)
    response = client.ask(fetch_request(("t", 0, 0), ("t", 1, 0), max_bytes=10, partition_max_bytes=5), 12)
    assert values(fetched(response)[("t", 0)].records) == [b"x" * 1000]
    assert not fetched(response)[("t", 1)].records


def test_max_bytes_is_shared_and_partition_max_bytes_is_not(client: Connection) -> None:
    client.create_topic("t", 3)
    for index in range(3):
        for _ in range(10):
            client.produce("t", b"x" * 1000, partition=index)
    wanted = [("t", index, 0) for index in range(3)]
    sizes = [len(p.records) for p in fetched(client.ask(fetch_request(*wanted, partition_max_bytes=3000), 12)).values()]
    assert sizes == [3000, 3000, 3000]
    sizes = [len(p.records) for p in fetched(client.ask(fetch_request(*wanted, max_bytes=15_000), 12)).values()]
    assert sum(sizes) <= 15_000
    assert sizes[0] > 10_000
    assert sizes[2] == 0


def test_the_brokers_own_limit_counts(make_server: Callable[..., Server]) -> None:
    server = make_server(fetch_max_bytes="2048")
    client = server.connect()
    client.create_topic("t")
    for _ in range(5):
        client.produce("t", b"x" * 1000)
    assert len(only(client.ask(fetch_request(("t", 0, 0)), 12)).records) == 2048


# --- long poll --------------------------------------------------------------------------------------------------------


def test_an_empty_fetch_waits_for_the_next_record(server: Server, client: Connection) -> None:
    client.create_topic("t")
    readers = [server.connect() for _ in range(5)]
    for reader in readers:
        assert not reader.send(fetch_request(("t", 0, 0), max_wait_ms=60_000), 12)
    assert client.produce("t", b"a").error_code == 0
    server.turn()
    for reader in readers:
        assert values(only(reader.answer()).records) == [b"a"]
    assert len(server.broker.parts.purgatory) == 0


def test_fetch_is_answered_at_max_wait(client: Connection) -> None:
    client.create_topic("t")
    started = time.monotonic()
    partition = only(client.ask(fetch_request(("t", 0, 0), max_wait_ms=50), 12))
    assert time.monotonic() - started >= 0.045
    assert (partition.error_code, bytes(partition.records)) == (0, b"")


def test_min_bytes_collects_appends(server: Server, client: Connection) -> None:
    client.create_topic("t", 2)
    reader = server.connect()
    client.produce("t", b"x" * 100)
    wanted = (("t", 0, 0), ("t", 1, 0))
    assert not reader.send(fetch_request(*wanted, max_wait_ms=60_000, min_bytes=600), 12)
    for _ in range(2):
        client.produce("t", b"y" * 100, partition=1)
        server.turn()
        assert not reader.channel.answers
    client.produce("t", b"z" * 100, partition=0)
    server.turn()
    answer = fetched(reader.answer())
    assert values(answer[("t", 0)].records) == [b"x" * 100, b"z" * 100]
    assert values(answer[("t", 1)].records) == [b"y" * 100] * 2


def test_a_large_batch_that_is_left_out_counts_for_min_bytes(client: Connection) -> None:
    client.create_topic("t", index_interval_bytes="100")
    for _ in range(5):
        client.produce("t", b"x" * 40_000)
    limits: dict[str, Any] = {"max_bytes": 100_000, "min_bytes": 100_000, "max_wait_ms": 60_000}
    partition = only(client.ask(fetch_request(("t", 0, 0), **limits), 12))
    assert values(partition.records) == [b"x" * 40_000] * 2
    assert len(partition.records) < 81_000


def test_min_bytes_0_and_no_partitions_never_wait(client: Connection) -> None:
    client.create_topic("t")
    assert client.send(fetch_request(("t", 0, 0), max_wait_ms=60_000, min_bytes=0), 12)
    assert client.send(fetch_request(max_wait_ms=60_000), 12)


def test_parked_fetch_is_answered_when_its_topic_is_deleted(server: Server, client: Connection) -> None:
    client.create_topic("t")
    reader = server.connect()
    assert not reader.send(fetch_request(("t", 0, 0), max_wait_ms=60_000), 12)
    client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6)
    assert only(reader.answer()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_session_returns_only_changed_partitions(server: Server, client: Connection) -> None:
    client.create_topic("t", 3)
    first = client.ask(fetch_request(*[("t", index, 0) for index in range(3)], session=(0, 0)), 12)
    assert first.session_id != 0
    assert len(fetched(first)) == 3
    idle = client.ask(fetch_request(session=(first.session_id, 1)), 12)
    assert idle.session_id == first.session_id
    assert fetched(idle) == {}
    client.produce("t", b"a", partition=1)
    news = fetched(client.ask(fetch_request(session=(first.session_id, 2)), 12))
    assert news.keys() == {("t", 1)}
    # The consumer continues after the returned records and stops reading partition 2.
    request = fetch_request(("t", 1, 1), session=(first.session_id, 3), forgotten=[("t", 2)])
    assert fetched(client.ask(request, 12)) == {}
    client.produce("t", b"b", partition=2)
    assert fetched(client.ask(fetch_request(session=(first.session_id, 4)), 12)) == {}


def test_a_session_waits_and_wakes(server: Server, client: Connection) -> None:
    topic_id = client.create_topic("t", 2)
    reader = server.connect()
    first = reader.ask(fetch_request((topic_id, 0, 0), (topic_id, 1, 0), session=(0, 0)), 13)
    assert not reader.send(fetch_request(session=(first.session_id, 1), max_wait_ms=60_000), 13)
    client.produce("t", b"a", partition=1)
    server.turn()
    assert fetched(reader.answer()).keys() == {(topic_id, 1)}


def test_session_continues_on_another_connection_with_errors(server: Server, client: Connection) -> None:
    client.create_topic("t")
    first = client.ask(fetch_request(("t", 0, 7), session=(0, 0)), 12)
    assert only(first).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    other = server.connect()
    again = other.ask(fetch_request(session=(first.session_id, 1)), 12)
    assert only(again).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    repaired = other.ask(fetch_request(("t", 0, 0), session=(first.session_id, 2)), 12)
    assert only(repaired).error_code == 0


def test_invalid_sessions_are_refused(client: Connection) -> None:
    client.create_topic("t")
    assert client.ask(fetch_request(session=(12345, 1)), 12).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session_id = client.ask(fetch_request(("t", 0, 0), session=(0, 0)), 12).session_id
    wrong = client.ask(fetch_request(session=(session_id, 9)), 12)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    mixed = client.ask(fetch_request(session=(session_id, 1)), 13)
    assert mixed.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    closed = client.ask(fetch_request(("t", 0, 0), session=(session_id, -1)), 12)
    assert (closed.error_code, closed.session_id) == (0, 0)
    gone = client.ask(fetch_request(session=(session_id, 1)), 12)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_no_partition_starves_in_a_session(client: Connection) -> None:
    client.create_topic("t", 3)
    for index in range(3):
        for _ in range(3):
            client.produce("t", b"x" * 500, partition=index)
    session_id = client.ask(fetch_request(*[("t", i, 0) for i in range(3)], session=(0, 0), max_bytes=1), 12).session_id
    served = []
    for epoch in (1, 2, 3):
        answer = fetched(client.ask(fetch_request(session=(session_id, epoch), max_bytes=1), 12))
        served += [key[1] for key, partition in answer.items() if partition.records]
    assert sorted(served) == [0, 1, 2]


def idle_session(client: Connection, partitions: int) -> int:
    """A session of partitions without new records; its next epoch is 2."""
    session_id: int = client.ask(
        fetch_request(*[("t", i, 0) for i in range(partitions)], session=(0, 0)), 12
    ).session_id
    assert fetched(client.ask(fetch_request(session=(session_id, 1)), 12)) == {}
    return session_id


def test_a_session_reads_only_partitions_that_were_touched(
    server: Server, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic("t", 20)
    session_id = idle_session(client, 20)
    looked_at: list[int] = []
    find = ReplicaManager.find

    def counted(self, topic, index):
        looked_at.append(index)
        return find(self, topic, index)

    monkeypatch.setattr(ReplicaManager, "find", counted)
    reader = server.connect()
    assert not reader.send(fetch_request(session=(session_id, 2), max_wait_ms=60_000), 12)
    assert looked_at == []
    client.produce("t", b"a", partition=7)
    server.turn()
    assert fetched(reader.answer()).keys() == {("t", 7)}
    assert looked_at == [7, 7], "once by the producer, once by the consumer"
    assert fetched(reader.ask(fetch_request(("t", 7, 1), session=(session_id, 3)), 12)) == {}
    assert looked_at == [7, 7, 7]


def test_idle_session_partition_reports_a_new_log_start(server: Server, client: Connection) -> None:
    client.create_topic("t", 2)
    client.produce("t", b"a")
    session_id = client.ask(fetch_request(("t", 0, 1), ("t", 1, 0), session=(0, 0)), 12).session_id
    assert fetched(client.ask(fetch_request(session=(session_id, 1)), 12)) == {}
    delete = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)]),
        ]
    )
    client.ask(delete, 2)
    news = fetched(client.ask(fetch_request(session=(session_id, 2)), 12))
    assert {key: partition.log_start_offset for key, partition in news.items()} == {("t", 0): 1}


def test_waiting_session_is_answered_when_its_topic_is_deleted(server: Server, client: Connection) -> None:
    client.create_topic("t", 3)
    session_id = idle_session(client, 3)
    reader = server.connect()
    assert not reader.send(fetch_request(session=(session_id, 2), max_wait_ms=60_000), 12)
    client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6)
    answer = fetched(reader.answer())
    assert {partition.error_code for partition in answer.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(answer) == 3


def test_min_bytes_collects_appends_in_a_session(server: Server, client: Connection) -> None:
    client.create_topic("t", 3)
    session_id = idle_session(client, 3)
    reader = server.connect()
    assert not reader.send(fetch_request(session=(session_id, 2), max_wait_ms=60_000, min_bytes=450), 12)
    for index in (0, 2):
        client.produce("t", b"x" * 100, partition=index)
        server.turn()
        assert not reader.channel.answers
    client.produce("t", b"x" * 100, partition=0)
    server.turn()
    assert {key: len(values(row.records)) for key, row in fetched(reader.answer()).items()} == {
        ("t", 0): 2,
        ("t", 2): 1,
    }


def test_min_bytes_counts_records_visible_later(make_server: Callable[..., Server]) -> None:
    """Appended first, visible only after its fsync: the second event must wake the consumer."""
    server = make_server(log_flush_interval_messages="1")
    client = server.connect()
    client.create_topic("t", 2)
    session_id = idle_session(client, 2)
    reader = server.connect()
    assert not reader.send(fetch_request(session=(session_id, 2), max_wait_ms=60_000, min_bytes=100), 12)
    client.produce("t", b"x" * 100)
    assert fetched(reader.answer()).keys() == {("t", 0)}
