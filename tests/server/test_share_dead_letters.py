"""Dead letters of share groups through the dispatcher, with share state in memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.share_state import RecordState, SharePartitionKey, StateBatch
from ottla.record.batch import Record, iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.server.coordination import dead_letter_writer
from ottla.server.coordination.dead_letter_settings import topic_problem
from ottla.share.dead_letters import producer_of

from .harness import Connection, Server, fetch_request, fetched
from .share_groups import (
    ACCEPT,
    GROUP,
    REJECT,
    RELEASE,
    MemoryPersister,
    acknowledged,
    acquired,
    enable_share_groups,
    share_fetch,
)

DEAD = "dlq.t"
SOURCE_MS = 1_700_000_000_000
ENABLED: dict[str, Any] = {"errors_deadletterqueue_group_enable": "true"}
GROUP_SETTINGS = {"errors_deadletterqueue_topic_name": DEAD, "share_delivery_count_limit": "2"}
LOGGER = dead_letter_writer.logger.name


class FailingPersister(MemoryPersister):
    """Fails to store ARCHIVED while `fails`, as if the leader was killed before."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False

    async def write(self, key: SharePartitionKey, *, batches: Sequence[StateBatch], **fields: Any) -> None:
        if self.fails and any(batch.state == RecordState.ARCHIVED for batch in batches):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        await super().write(key, batches=batches, **fields)


@pytest.fixture
def persister() -> FailingPersister:
    return FailingPersister()


@pytest.fixture
def topic(client: Connection) -> bytes:
    """A topic with three records in partition 1."""
    topic_id = client.create_topic("t", 2)
    records = [RecordData(SOURCE_MS + number, b"k", b"v%d" % number, [("h", b"x")]) for number in range(3)]
    client.produce("t", partition=1, records=bytes(build_batch(records, compression="gzip")))
    return topic_id


def letters(client: Connection, partition: int = 1) -> list[Record]:
    response = client.ask(fetch_request((DEAD, partition, 0)), 12)
    records = fetched(response)[DEAD, partition].records
    return [record for batch in iter_batches(records or b"") for record in batch.records()]


def start_of(persister: MemoryPersister, topic: bytes) -> int:
    return persister.starts[SharePartitionKey(GROUP, topic, 1)]


def reject_all(client: Connection, topic: bytes, *, epoch: int = 1) -> None:
    assert acquired(client.ask(share_fetch((topic, 1), epoch=0), 2)) == {1: [(0, 2, 1)]}
    assert acknowledged(client, topic, 1, [(0, 2, REJECT)], epoch=epoch) == 0


def test_failed_records_become_dead_letters(
    server: Server, client: Connection, topic: bytes, persister: FailingPersister
) -> None:
    client.create_topic(DEAD, 2, **ENABLED)
    copies = {"errors_deadletterqueue_copy_record_enable": "true"}
    enable_share_groups(server, persister, level=2, **GROUP_SETTINGS, **copies)
    client.ask(share_fetch((topic, 1), epoch=0), 2)
    assert acknowledged(client, topic, 1, [(0, 0, REJECT), (1, 1, RELEASE), (2, 2, ACCEPT)], epoch=1) == 0
    assert acquired(client.ask(share_fetch(epoch=2), 2)) == {1: [(1, 1, 2)]}
    assert acknowledged(client, topic, 1, [(1, 1, RELEASE)], epoch=3) == 0
    server.run_until(lambda: start_of(persister, topic) == 3)
    rejected, limited = letters(client)
    assert (rejected.key, rejected.value) == (b"k", b"v0")
    assert dict(rejected.headers) == {
        "h": b"x",
        "__dlq.errors.topic": b"t",
        "__dlq.errors.partition": b"1",
        "__dlq.errors.offset": b"0",
        "__dlq.errors.group": GROUP.encode(),
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": b"Offset rejected by client.",
        "__dlq.errors.timestamp": str(SOURCE_MS).encode(),
    }
    described = dict(limited.headers)
    assert described["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."
    assert (described["__dlq.errors.offset"], described["__dlq.errors.delivery.count"]) == (b"1", b"2")
    names = ("recordcount_total", "totalproducerequests_total", "failedproducerequests_total")
    prefix = "kafka_server_sharegroupmetrics_deadletterqueue"
    assert [server.counter(prefix + name, group=GROUP) for name in names] == [2, 2, 0]


def test_dead_letter_names_the_offset_only_if_nothing_is_copied(
    server: Server, client: Connection, topic: bytes, persister: FailingPersister
) -> None:
    client.create_topic(DEAD, **ENABLED)
    enable_share_groups(server, persister, level=2, **GROUP_SETTINGS, ottla_dlq_copy_headers="false")
    reject_all(client, topic)
    server.run_until(lambda: start_of(persister, topic) == 3)
    for letter in letters(client, 0):
        assert (letter.key, letter.value, len(letter.headers)) == (None, None, 6)


def test_dead_letters_are_written_after_the_last_member_has_left(
    server: Server, client: Connection, topic: bytes, persister: FailingPersister
) -> None:
    client.create_topic(DEAD, **ENABLED)
    enable_share_groups(server, persister, level=2, **GROUP_SETTINGS)
    reject_all(client, topic, epoch=-1)
    server.run_until(lambda: start_of(persister, topic) == 3)
    assert len(letters(client, 0)) == 3


def test_records_are_retained_until_the_topic_permits(
    server: Server,
    client: Connection,
    topic: bytes,
    persister: FailingPersister,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letter_writer, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(dead_letter_writer, "MAX_RETRY_S", 0.01)
    enable_share_groups(server, persister, level=2, **GROUP_SETTINGS)
    attempts = []

    def counted(*arguments: Any) -> str | None:
        attempts.append(arguments)
        return topic_problem(*arguments)

    monkeypatch.setattr(dead_letter_writer, "topic_problem", counted)
    with caplog.at_level(logging.WARNING, LOGGER):
        reject_all(client, topic)
        server.run_until(lambda: len(attempts) > 3)
        assert [record.getMessage() for record in caplog.records if record.name == LOGGER] == [
            f"failed records of t-1 in share group {GROUP} are retained, their dead letters can't be written: "
            f"the dead-letter topic {DEAD} does not exist; create it with errors.deadletterqueue.group.enable=true"
        ]
    assert start_of(persister, topic) == 0
    retained = server.registry.gauge("ottla_share_group_retained_dead_letters", "", {"group": GROUP})
    assert retained.current() == 3
    client.create_topic(DEAD, 2, **ENABLED)
    server.run_until(lambda: start_of(persister, topic) == 3)
    assert [dict(letter.headers)["__dlq.errors.offset"] for letter in letters(client)] == [b"0", b"1", b"2"]
    assert retained.current() == 0


def test_records_are_archived_where_the_group_gives_them_up(
    server: Server, client: Connection, topic: bytes, persister: FailingPersister
) -> None:
    enable_share_groups(server, persister, level=2, **GROUP_SETTINGS, ottla_dlq_on_failure="archive")
    reject_all(client, topic)
    server.run_until(lambda: start_of(persister, topic) == 3)


def test_level_one_archives_without_dead_letters(
    server: Server, client: Connection, topic: bytes, persister: FailingPersister
) -> None:
    enable_share_groups(server, persister, level=1, **GROUP_SETTINGS)
    reject_all(client, topic)
    assert start_of(persister, topic) == 3


def test_missing_topic_is_created_where_brokers_permit(
    make_server: Callable[..., Server], persister: FailingPersister
) -> None:
    server = make_server(errors_deadletterqueue_auto_create_topics_enable="true", num_partitions="3")
    client = server.connect()
    topic = client.create_topic("t", 2)
    client.produce("t", b"a", b"b", b"c", partition=1)
    enable_share_groups(server, persister, level=2, **GROUP_SETTINGS)
    reject_all(client, topic)
    server.run_until(lambda: start_of(persister, topic) == 3)
    assert len(letters(client)) == 3


def test_new_leader_writes_no_second_dead_letter(
    server: Server, client: Connection, topic: bytes, persister: FailingPersister
) -> None:
    """The dead letters are durable and ARCHIVED is not stored when the leader ends."""
    client.create_topic(DEAD, 2, **ENABLED)
    enable_share_groups(server, persister, level=2, **GROUP_SETTINGS)
    persister.fails = True
    reject_all(client, topic)
    written = "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total"
    server.run_until(lambda: server.counter(written, group=GROUP) == 3)
    assert start_of(persister, topic) == 0
    server.restart()
    persister.fails = False
    enable_share_groups(server, persister, level=2, **GROUP_SETTINGS)
    client = server.connect()
    client.send(share_fetch((topic, 1), epoch=0, max_wait_ms=60_000), 2)
    server.run_until(lambda: start_of(persister, topic) == 3)
    assert server.counter(written, group=GROUP) == 3, "written again, as duplicates"
    assert len(letters(server.connect())) == 3


def test_slot_of_an_earlier_group_does_not_lose_a_dead_letter(
    server: Server, client: Connection, topic: bytes, persister: FailingPersister
) -> None:
    """A group of the same name had a dead letter with a higher producer epoch."""
    client.create_topic(DEAD, 2, **ENABLED)
    enable_share_groups(server, persister, level=2, **GROUP_SETTINGS)
    later = producer_of(SharePartitionKey(GROUP, topic, 1), 0, 1)._replace(epoch=7)
    producer = {"producer_id": later.id, "producer_epoch": later.epoch, "base_sequence": 0}
    client.produce(DEAD, b"earlier", partition=1, timestamp=server.clock.time_ms(), **producer)
    reject_all(client, topic)
    server.run_until(lambda: start_of(persister, topic) == 3)
    offsets = {dict(letter.headers).get("__dlq.errors.offset") for letter in letters(client)}
    assert offsets == {None, b"0", b"1", b"2"}
