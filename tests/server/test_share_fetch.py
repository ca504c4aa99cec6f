"""ShareFetch and ShareAcknowledge through the dispatcher, with share state in memory."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.kafka.share_state import SharePartitionKey
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from ottla.record.batch import iter_batches
from ottla.share.settings import EARLIEST, ShareSettings

from .harness import Connection, Server
from .share_groups import (
    ACCEPT,
    GROUP,
    REJECT,
    RELEASE,
    RENEW,
    MemoryPersister,
    acknowledged,
    acquired,
    enable_share_groups,
    only_partition,
    share_acknowledge,
    share_fetch,
)
from .test_apis import Allowing, guarded


@pytest.fixture
def persister() -> MemoryPersister:
    return MemoryPersister()


@pytest.fixture
def topic(server: Server, client: Connection, persister: MemoryPersister) -> bytes:
    """A topic with two partitions and a batch of three records in the first, read by a share group."""
    topic_id = client.create_topic("t", 2)
    client.produce("t", b"a", b"b", b"c")
    enable_share_groups(server, persister)
    return topic_id


def key_of(topic: bytes) -> SharePartitionKey:
    return SharePartitionKey(GROUP, topic, 0)


def test_records_are_delivered_until_they_are_accepted(
    client: Connection, topic: bytes, persister: MemoryPersister
) -> None:
    response = client.ask(share_fetch((topic, 0), epoch=0), 2)
    assert acquired(response) == {0: [(0, 2, 1)]}
    assert response.acquisition_lock_timeout_ms == 30_000
    records = [record.value for batch in iter_batches(only_partition(response).records) for record in batch.records()]
    assert records == [b"a", b"b", b"c"]
    assert acknowledged(client, topic, 0, [(0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT)], epoch=1) == 0
    assert (persister.starts[key_of(topic)], persister.complete[key_of(topic)]) == (1, 1)
    assert acquired(client.ask(share_fetch(epoch=2), 2)) == {0: [(1, 1, 2)]}
    response = client.ask(share_fetch((topic, 0, [(1, 1, ACCEPT)]), epoch=3, max_wait_ms=0), 1)
    assert only_partition(response).acknowledge_error_code == 0
    assert persister.starts[key_of(topic)] == 3


def test_waiting_fetch_gets_the_next_record(client: Connection, topic: bytes, server: Server) -> None:
    client.ask(share_fetch((topic, 0), epoch=0), 2)
    client.send(share_fetch(epoch=1), 2)
    assert not client.channel.answers
    server.connect().produce("t", b"d")
    assert acquired(client.answer()) == {0: [(3, 3, 1)]}


def test_record_limit_delivers_a_part_of_a_batch(client: Connection, topic: bytes) -> None:
    limits: dict[str, Any] = {"max_records": 2, "share_acquire_mode": 1}
    assert acquired(client.ask(share_fetch((topic, 0), epoch=0, **limits), 2)) == {0: [(0, 1, 1)]}
    assert acquired(client.ask(share_fetch(epoch=1, **limits), 2)) == {0: [(2, 2, 1)]}


def test_ended_lock_wakes_a_waiting_fetch(
    server: Server, client: Connection, topic: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ShareSettings(lock_duration_ms=20, auto_offset_reset=EARLIEST)
    monkeypatch.setattr("ottla.server.handlers.share.share_reading.settings_of", lambda context, group_id: settings)
    client.ask(share_fetch((topic, 0), epoch=0), 2)
    other = server.connect()
    assert acquired(other.ask(share_fetch((topic, 0), epoch=0, member="other"), 2)) == {0: [(0, 2, 2)]}
    assert acknowledged(client, topic, 0, [(0, 2, ACCEPT)], epoch=1) == ErrorCode.INVALID_RECORD_STATE


def test_ended_backoff_wakes_a_waiting_fetch(
    server: Server, client: Connection, topic: bytes, persister: MemoryPersister
) -> None:
    enable_share_groups(server, persister, ottla_share_retry_backoff_ms="30")
    client.ask(share_fetch((topic, 0), epoch=0), 2)
    begin_s = time.monotonic()
    assert acknowledged(client, topic, 0, [(0, 2, RELEASE)], epoch=1) == 0
    assert acquired(client.ask(share_fetch(epoch=2), 2)) == {0: [(0, 2, 2)]}
    assert time.monotonic() - begin_s >= 0.03


def test_opened_bucket_wakes_a_waiting_fetch(
    server: Server, client: Connection, topic: bytes, persister: MemoryPersister
) -> None:
    """The topic has two partitions, so that a record of one of them has 100 ms."""
    enable_share_groups(server, persister, ottla_share_max_records_per_second="20")
    begin_s = time.monotonic()
    for offset in range(3):
        response = client.ask(share_fetch((topic, 0), epoch=offset, max_records=1, share_acquire_mode=1), 2)
        assert acquired(response) == {0: [(offset, offset, 1)]}
    assert time.monotonic() - begin_s >= 0.3


def test_deleted_records_are_not_delivered(client: Connection, topic: bytes, server: Server) -> None:
    client.ask(share_fetch((topic, 0), epoch=0), 2)
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    (deleted,) = client.ask(
        DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])]), 2
    ).topics
    assert deleted.partitions[0].low_watermark == 2
    client.disconnect()
    other = server.connect()
    assert acquired(other.ask(share_fetch((topic, 0), epoch=0, member="other"), 2)) == {0: [(2, 2, 2)]}


def test_deleted_topic_ends_its_share_partitions(
    client: Connection, topic: bytes, server: Server, persister: MemoryPersister
) -> None:
    """Trap 13: a topic of the same name has another id, and begins without state."""
    client.ask(share_fetch((topic, 0), epoch=0), 2)
    client.send(share_fetch(epoch=1), 2)
    assert not client.channel.answers
    other = server.connect()
    other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6)
    assert only_partition(client.answer()).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    again = other.create_topic("t")
    other.produce("t", b"x")
    assert acquired(client.ask(share_fetch((again, 0), epoch=2, forgotten=[(topic, 0)]), 2)) == {0: [(0, 0, 1)]}


def test_closed_connection_releases_records(client: Connection, topic: bytes, server: Server) -> None:
    client.ask(share_fetch((topic, 0), epoch=0), 2)
    other = server.connect()
    other.send(share_fetch((topic, 0), epoch=0, member="other"), 2)
    assert not other.channel.answers
    client.disconnect()
    assert acquired(other.answer()) == {0: [(0, 2, 2)]}


def test_final_epoch_releases_records(client: Connection, topic: bytes, server: Server) -> None:
    client.ask(share_fetch((topic, 0), epoch=0), 2)
    assert acknowledged(client, topic, 0, [(0, 0, ACCEPT)], epoch=-1) == 0
    other = server.connect()
    assert acquired(other.ask(share_fetch((topic, 0), epoch=0, member="other"), 2)) == {0: [(1, 2, 2)]}
    response = client.ask(share_fetch(epoch=1), 2)
    assert response.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_acknowledgement_fails_and_records_stay_acquired(
    client: Connection, topic: bytes, persister: MemoryPersister
) -> None:
    client.ask(share_fetch((topic, 0), epoch=0), 2)
    persister.failure = ErrorCode.NOT_COORDINATOR
    assert acknowledged(client, topic, 0, [(0, 2, ACCEPT)], epoch=1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    persister.failure = None
    assert acknowledged(client, topic, 0, [(0, 2, ACCEPT)], epoch=2) == 0
    assert persister.starts[key_of(topic)] == 3


def test_acknowledgement_is_answered_once_stored(
    client: Connection, topic: bytes, server: Server, persister: MemoryPersister
) -> None:
    client.ask(share_fetch((topic, 0), epoch=0), 2)
    server.run_until(lambda: key_of(topic) in persister.starts)
    persister.blocked = asyncio.Event()
    assert not client.send(share_acknowledge(topic, 0, [(0, 2, RELEASE)], epoch=1), 2)
    other = server.connect()
    assert acquired(other.ask(share_fetch((topic, 0), epoch=0, member="other", max_wait_ms=0), 2)) == {}
    persister.blocked.set()
    assert only_partition(client.answer()).error_code == 0
    assert acquired(other.ask(share_fetch(epoch=1, member="other"), 2)) == {0: [(0, 2, 2)]}


def test_requests_are_counted_once_for_each_topic(server: Server, client: Connection, topic: bytes) -> None:
    def counts(name: str) -> list[float]:
        found = ("totalsharefetchrequests", "totalshareacknowledgementrequests", "failedshareacknowledgementrequests")
        return [server.counter(f"kafka_server_brokertopicmetrics_{each}_total", topic=name) for each in found]

    client.ask(share_fetch((topic, 0), (topic, 1), epoch=0), 2)
    assert acknowledged(client, topic, 0, [(0, 2, RELEASE)], epoch=1) == 0
    assert acknowledged(client, topic, 0, [(0, 2, ACCEPT)], epoch=2) == ErrorCode.INVALID_RECORD_STATE
    assert counts("t") == counts("") == [1, 2, 1]
    client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6)
    client.send(share_fetch(epoch=3, max_wait_ms=0), 2)
    (answered,) = client.answer().responses
    assert [each.error_code for each in answered.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID] * 2
    failed = "kafka_server_brokertopicmetrics_failedsharefetchrequests_total"
    assert server.counter(failed, topic="") == 1
    families = {family.name: family for family in server.registry.families()}
    assert [dict(labels) for labels in families[failed].series] == [{"topic": ""}]


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),  # the state was deleted
    ],
)
def test_leader_without_state_reads_it_again(
    client: Connection, topic: bytes, persister: MemoryPersister, failure: ErrorCode, code: ErrorCode
) -> None:
    client.ask(share_fetch((topic, 0), epoch=0), 2)
    persister.failure = failure
    assert acknowledged(client, topic, 0, [(0, 2, ACCEPT)], epoch=1) == code
    persister.failure = None
    assert acquired(client.ask(share_fetch(epoch=2), 2)) == {0: [(0, 2, 1)]}
    assert len(persister.reads) == 2


def test_failed_load_is_reported_at_the_end_of_the_wait(
    client: Connection, topic: bytes, persister: MemoryPersister
) -> None:
    persister.failure = ErrorCode.GROUP_ID_NOT_FOUND
    client.send(share_fetch((topic, 0), epoch=0, max_wait_ms=50), 2)
    assert not client.channel.answers
    assert only_partition(client.answer()).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# --- traps ------------------------------------------------------------------------------------------------------------


def test_refused_fetch_is_held_for_its_wait(server: Server, client: Connection, topic: bytes) -> None:
    """Trap 3 (KAFKA-21517): a client repeats a refused fetch at once."""
    guarded(server, client, Allowing((AclOperation.READ, ResourceType.GROUP, GROUP)))
    client.send(share_fetch((topic, 0), epoch=0, max_wait_ms=50), 2)
    assert not client.channel.answers
    assert only_partition(client.answer()).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    guarded(server, client, Allowing())
    client.send(share_fetch((topic, 0), epoch=0, max_wait_ms=50), 2)
    assert not client.channel.answers
    assert client.answer().error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_acknowledgement_needs_permission_to_read_the_topic(server: Server, client: Connection, topic: bytes) -> None:
    client.ask(share_fetch((topic, 0), epoch=0), 2)
    guarded(server, client, Allowing((AclOperation.READ, ResourceType.GROUP, GROUP)))
    assert acknowledged(client, topic, 0, [(0, 2, ACCEPT)], epoch=1) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_partition_named_to_acknowledge_is_not_fetched(client: Connection, topic: bytes, server: Server) -> None:
    """Trap 4: a request that forgets a partition may still acknowledge records of it."""
    client.ask(share_fetch((topic, 0), epoch=0), 2)
    request = share_fetch((topic, 0, [(0, 2, RELEASE)]), epoch=1, forgotten=[(topic, 0)], max_wait_ms=0)
    assert only_partition(client.ask(request, 2)).acknowledge_error_code == 0
    assert acquired(client.ask(share_fetch((topic, 1), epoch=2, max_wait_ms=20), 2)) == {}


def test_first_epoch_acknowledges_nothing(client: Connection, topic: bytes) -> None:
    """Trap 5 (KAFKA-19485)."""
    fetch = share_fetch((topic, 0, [(0, 0, ACCEPT)]), epoch=0)
    assert client.ask(fetch, 2).error_code == ErrorCode.INVALID_REQUEST
    request = share_acknowledge(topic, 0, [(0, 0, ACCEPT)], epoch=0)
    assert client.ask(request, 2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_new_leader_epoch_drops_locks_and_sessions(
    client: Connection, topic: bytes, server: Server, persister: MemoryPersister
) -> None:
    """Trap 8: after a restart the broker leads in the next epoch, and knows neither locks nor sessions."""
    client.ask(share_fetch((topic, 0), epoch=0), 2)
    assert acknowledged(client, topic, 0, [(0, 0, ACCEPT)], epoch=1) == 0
    server.restart()
    enable_share_groups(server, persister)
    client = server.connect()
    assert client.ask(share_fetch(epoch=2), 2).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert acquired(client.ask(share_fetch((topic, 1), epoch=0, max_wait_ms=0), 2)) == {}
    assert acknowledged(client, topic, 0, [(1, 2, ACCEPT)], epoch=1) == ErrorCode.INVALID_RECORD_STATE
    assert acquired(client.ask(share_fetch((topic, 0), epoch=2), 2)) == {0: [(1, 2, 1)]}


def test_renewal_fetches_nothing(client: Connection, topic: bytes) -> None:
    """Trap 12: a request that renews locks has no limits of a fetch."""
    client.ask(share_fetch((topic, 0), epoch=0), 2)
    acks = (topic, 0, [(0, 2, RENEW)])
    assert client.ask(share_fetch(acks, epoch=1, is_renew_ack=True), 2).error_code == ErrorCode.INVALID_REQUEST
    none: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
    for epoch in (1, 2):
        assert only_partition(client.ask(share_fetch(acks, epoch=epoch, **none), 2)).acknowledge_error_code == 0
    assert acknowledged(client, topic, 0, [(0, 2, RENEW)], epoch=3) == ErrorCode.INVALID_REQUEST
    assert acknowledged(client, topic, 0, [(0, 2, RENEW)], epoch=4, is_renew_ack=True) == 0


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_requests_need_the_feature(client: Connection) -> None:
    topic = client.create_topic("t")
    assert client.ask(share_fetch((topic, 0), epoch=0), 2).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert client.ask(share_acknowledge(topic, 0, [], epoch=1), 2).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_members_without_a_name_are_refused(client: Connection, topic: bytes) -> None:
    for fields in ({"group_id": None, "member_id": "m"}, {"group_id": "g", "member_id": "m" * 37}):
        assert client.ask(ShareFetchRequest(**fields), 2).error_code == ErrorCode.INVALID_REQUEST


def test_full_session_cache_refuses_at_the_end_of_the_wait(
    server: Server, client: Connection, topic: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.server.handlers.share.share_fetch.max_share_sessions", lambda config: 1)
    other = server.connect()
    client.ask(share_fetch((topic, 0), epoch=0, max_wait_ms=0), 2)
    other.send(share_fetch((topic, 0), epoch=0, member="other", max_wait_ms=20), 2)
    assert not other.channel.answers
    assert other.answer().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_unknown_topics_and_partitions_are_reported(client: Connection, topic: bytes) -> None:
    response = client.ask(share_fetch((b"x" * 16, 0), (topic, 9), epoch=0, max_wait_ms=20), 2)
    codes = [partition.error_code for each in response.responses for partition in each.partitions]
    assert sorted(codes) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]
