"""`ottla.LegacyConsumer` on a real broker and a simulated ZooKeeper, in which the tests register broker and topics."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time

import pytest
from simulated_zookeeper import SimulatedZooKeeper

import ottla.api.legacy_consumer
from ottla import (
    Admin,
    AsyncLegacyConsumer,
    ErrorCode,
    KafkaError,
    LegacyConsumer,
    Producer,
    TopicFilter,
    UndecodableRecord,
)
from ottla.protocol.znodes import paths

NUMBERS = itertools.count(1)
WITHIN_S = 240
"""Nothing takes that long, nor waits for a session to time out."""
PARTITIONS = 4


@pytest.fixture(scope="module")
def zookeeper(ottla_broker):
    with SimulatedZooKeeper() as running:
        running.register(ottla_broker.bootstrap_servers)
        yield running


@pytest.fixture
def group():
    return f"legacy-group-{next(NUMBERS)}"


@pytest.fixture
def make(zookeeper, group, monkeypatch):
    """A consumer of a group of its own, which reads from the beginning and does not wait for others for long."""
    monkeypatch.setattr(ottla.api.legacy_consumer, "session_below", zookeeper.connect)
    settings = {
        "zookeeper.connect": "simulated",
        "group.id": group,
        "auto.offset.reset": "smallest",
        "auto.commit.interval.ms": 50,
        "rebalance.backoff.ms": 50,
        "zookeeper.session.timeout.ms": 1000 * WITHIN_S,
    }
    return lambda more=None, kind=LegacyConsumer, **rest: kind(settings | (more or {}), **rest)


@pytest.fixture
def admin(servers):
    with Admin(servers) as client:
        yield client


@pytest.fixture
def topic(servers, admin, zookeeper):
    """A topic of its own with ten records in each partition."""
    name = f"legacy-{next(NUMBERS)}"
    made(admin, zookeeper, name)
    fill(servers, name)
    return name


def made(admin, zookeeper, name):
    admin.create_topic(name, partitions=PARTITIONS, replication_factor=1)
    zookeeper.set_topic(name, PARTITIONS)


def fill(servers, name, count=10):
    with Producer(servers) as producer:
        for number in range(count * PARTITIONS):
            producer.send(name, f"{number}", partition=number % PARTITIONS)


def until(condition):
    """Its first true result."""
    deadline = time.monotonic() + WITHIN_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)
    return found


def committed(zookeeper, group):
    """The committed offsets in ZooKeeper, by partition."""
    folder = f"{paths.CONSUMERS}/{group}/offsets/"
    found = {path.removeprefix(folder): data for path, data in zookeeper.tree().items() if path.startswith(folder)}
    return {place(path): int(data) for path, data in found.items() if "/" in path}


def owners(zookeeper, group):
    """The owning thread of each partition in ZooKeeper."""
    folder = f"{paths.CONSUMERS}/{group}/owners/"
    found = {path.removeprefix(folder): data for path, data in zookeeper.tree().items() if path.startswith(folder)}
    return {place(path): data.decode() for path, data in found.items() if "/" in path}


def place(path):
    topic, _, number = path.rpartition("/")
    return topic, int(number)


class Reading:
    """A thread for each stream; they store records with their reader, until the consumer is shut down."""

    def __init__(self, streams):
        self.taken = []
        self.errors = []
        self._threads = [threading.Thread(target=self._read, args=(each,), daemon=True) for each in streams]
        for thread in self._threads:
            thread.start()

    def _read(self, stream):
        try:
            for record in stream:
                self.taken.append((record.topic, record.partition, record.offset))
        except Exception as error:
            self.errors.append(error)

    def ended(self):
        """Wait for the threads."""
        for thread in self._threads:
            thread.join(WITHIN_S)
            assert not thread.is_alive()
        assert not self.errors


def all_of(topic, count=10):
    return {(topic, partition, offset) for partition in range(PARTITIONS) for offset in range(count)}


PLACES = [
    {"offsets.storage": "zookeeper"},
    {"offsets.storage": "kafka"},
    {"offsets.storage": "kafka", "dual.commit.enabled": False},
]


@pytest.mark.parametrize("places", PLACES, ids=["zookeeper", "both", "kafka"])
def test_group_continues_exactly_at_its_offset(make, admin, zookeeper, group, topic, places):
    with make(places) as consumer:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        first = [(record.topic, record.partition, record.offset) for record in itertools.islice(stream, 23)]
    known = {(topic, partition): 0 for partition in range(PARTITIONS)}
    for _, partition, offset in first:
        known[topic, partition] = offset + 1
    in_kafka = {key: offset.offset for key, offset in admin.group_offsets(group).items()}
    in_zookeeper = committed(zookeeper, group)
    assert in_zookeeper == ({} if places is PLACES[2] else known)
    assert in_kafka == ({} if places is PLACES[0] else known)
    with make(places) as consumer:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        second = [(record.topic, record.partition, record.offset) for record in itertools.islice(stream, 17)]
    assert set(first) | set(second) == all_of(topic)


def test_members_take_over_and_release_partitions(make, servers, zookeeper, group, topic):
    keys = {(topic, partition) for partition in range(PARTITIONS)}
    one, two = make(), make()
    first = Reading(one.create_message_streams({topic: 2})[topic])
    until(lambda: set(first.taken) == all_of(topic))
    second = Reading(two.create_message_streams({topic: 1})[topic])
    until(lambda: owners(zookeeper, group).keys() == keys and len(set(owners(zookeeper, group).values())) == 3)
    fill(servers, topic)
    until(lambda: {*first.taken, *second.taken} == all_of(topic, 20))
    one.shutdown()
    first.ended()
    fill(servers, topic)
    until(lambda: {*first.taken, *second.taken} == all_of(topic, 30))
    until(lambda: committed(zookeeper, group) == dict.fromkeys(keys, 30))  # the last record is done with, too
    two.shutdown()
    second.ended()
    assert second.taken
    assert committed(zookeeper, group) == dict.fromkeys(keys, 30)
    assert not owners(zookeeper, group)


def test_what_was_not_done_is_read_again(make, zookeeper, group, topic):
    with contextlib.suppress(ZeroDivisionError), make() as consumer:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        for number, record in enumerate(stream):
            failed = record
            1 // (11 - number)
    with make() as consumer:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        again = list(itertools.islice(stream, 40 - 11))
    assert (failed.partition, failed.offset) in {(record.partition, record.offset) for record in again}


def test_without_automatic_commits_only_the_callers_count(make, zookeeper, group, topic):
    manual = {"auto.commit.enable": False}
    with make(manual) as consumer:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        given = list(itertools.islice(stream, 5))
        consumer.commit_offsets()
        then = committed(zookeeper, group)
        list(itertools.islice(stream, 20))
    assert committed(zookeeper, group) == then
    assert sum(then.values()) == len(given)


def test_the_largest_offset_is_where_a_new_group_begins(make, servers, zookeeper, group, topic):
    ends = {(topic, partition): 10 for partition in range(PARTITIONS)}
    with make({"auto.offset.reset": "largest"}) as consumer:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        until(lambda: committed(zookeeper, group) == ends)
        fill(servers, topic, 1)
        found = {(record.partition, record.offset) for record in itertools.islice(stream, PARTITIONS)}
    assert found == {(partition, 10) for partition in range(PARTITIONS)}


def test_an_offset_that_the_log_has_no_more_is_reset(make, zookeeper, group, topic):
    zookeeper.write(paths.consumer_offset(group, topic, 2), b"11")
    with make() as consumer:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        found = {(record.topic, record.partition, record.offset) for record in itertools.islice(stream, 40)}
    assert found == all_of(topic)


def test_a_session_that_expires_is_followed_by_another(make, servers, zookeeper, group, topic):
    consumer = make()
    reading = Reading(consumer.create_message_streams({topic: 1})[topic])
    until(lambda: set(reading.taken) == all_of(topic))
    (before,) = set(owners(zookeeper, group).values())
    zookeeper.call(zookeeper.sessions[-1].expire)
    zookeeper.call(zookeeper.sessions[-1].cut)
    until(lambda: set(owners(zookeeper, group).values()) - {before})
    fill(servers, topic)
    until(lambda: set(reading.taken) == all_of(topic, 20))
    consumer.shutdown()
    reading.ended()


def test_filter_reads_existing_and_new_topics(make, servers, admin, zookeeper, group):
    name = f"filtered-{next(NUMBERS)}"
    consumer = make()
    reading = Reading(consumer.create_message_streams_by_filter(TopicFilter(f"{name}-.*"), 2))
    made(admin, zookeeper, f"{name}-a")
    fill(servers, f"{name}-a")
    until(lambda: set(reading.taken) == all_of(f"{name}-a"))
    assert {owner.rpartition("-")[2] for owner in owners(zookeeper, group).values()} == {"0", "1"}
    consumer.shutdown()
    reading.ended()


def test_stream_ends_after_its_timeout_and_can_continue(make, servers, topic):
    with make({"consumer.timeout.ms": 1}) as consumer:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        found = []
        while len(found) < 40:
            found += stream
        assert {(each.topic, each.partition, each.offset) for each in found} == all_of(topic)
        assert list(stream) == []


def test_unsupported_operations_are_reported(make, topic):
    consumer = make()
    with pytest.raises(KafkaError) as refused:
        consumer.create_message_streams_by_filter(TopicFilter("a(?=b)"))
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    consumer.create_message_streams({topic: 1})
    with pytest.raises(KafkaError, match="created only once"):
        consumer.create_message_streams({topic: 1})
    consumer.shutdown()
    consumer.shutdown()
    with pytest.raises(KafkaError, match="closed"):
        consumer.commit_offsets()


def test_undecodable_records_may_be_skipped(make, zookeeper, group, topic):
    def decoded(value):
        return 1 // abs(int(value) - 21)  # refuses the sixth record of partition 1

    seen = set()
    with contextlib.suppress(UndecodableRecord), make(value_deserializer=decoded) as consumer:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        for record in stream:
            assert record.value in (0, 1)
            seen.add((record.topic, record.partition, record.offset))
    with make(value_deserializer=decoded) as consumer:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        with pytest.raises(UndecodableRecord, match="can't be decoded") as refused:
            seen.update((record.topic, record.partition, record.offset) for record in stream)
        bad = refused.value
        assert (bad.topic, bad.partition, bad.offset) == (topic, 1, 5)
        while len(seen) < 39:
            record = next(stream)
            seen.add((record.topic, record.partition, record.offset))
    assert seen == all_of(topic) - {(topic, 1, 5)}
    assert committed(zookeeper, group) == {(topic, partition): 10 for partition in range(PARTITIONS)}


class Hooks:
    """Events of a consumer's hooks; commits before a partition is released, like Kafka 0.9's MirrorMaker."""

    def __init__(self, make, topic, streams):
        self.released, self.assigned = [], []
        manual = {"auto.commit.enable": False}
        hooks = {"before_releasing_partitions": self._releasing, "before_starting_fetchers": self._starting}
        self.consumer = make(manual, **hooks)
        self.reading = Reading(self.consumer.create_message_streams({topic: streams})[topic])

    def _releasing(self, partitions):
        self.consumer.commit_offsets()
        self.released.append(partitions)

    def _starting(self, consumer, assignment):
        self.assigned.append((consumer, assignment))
        raise ZeroDivisionError  # which delays no other stream


def test_hooks_commit_moved_partitions_and_get_assignments(make, servers, zookeeper, group, topic):
    one = Hooks(make, topic, 2)
    until(lambda: set(one.reading.taken) == all_of(topic))
    assert not committed(zookeeper, group)
    two = Hooks(make, topic, 2)
    until(lambda: two.assigned)
    fill(servers, topic)
    until(lambda: {*one.reading.taken, *two.reading.taken} == all_of(topic, 20))
    assert len(one.reading.taken) + len(two.reading.taken) == len(all_of(topic, 20)), "nothing is read twice"
    (released,) = one.released
    assert committed(zookeeper, group) == {(topic, number): 10 for number in range(PARTITIONS)}
    assert released[topic] >= {number for _, number, _ in two.reading.taken}
    named = {(topic, number): thread.name for number, thread in two.assigned[-1][1][topic].items()}
    assert named == owners(zookeeper, group)
    assert {name.rpartition("-")[0] for name in named.values()} == {one.assigned[-1][0], two.assigned[-1][0]}
    for each in (one, two):
        each.consumer.shutdown()
        each.reading.ended()
    assert one.released == [released], "a leaving member gets no event"


def test_with_an_event_loop_a_cancelled_call_loses_nothing(make, servers, zookeeper, group, topic):
    async def read():
        async with make(kind=AsyncLegacyConsumer, value_deserializer=int) as consumer:
            (stream,) = (await consumer.create_message_streams({topic: 1}))[topic]
            found = []
            while len(found) < 40:
                with contextlib.suppress(TimeoutError):
                    record = await asyncio.wait_for(anext(stream), 0.001)
                    found.append((record.topic, record.partition, record.offset))
                    assert record.value == 4 * record.offset + record.partition
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(stream), 0.001)
            await asyncio.to_thread(fill, servers, topic, 1)
            async for record in stream:
                found.append((record.topic, record.partition, record.offset))
                if len(found) == 44:
                    break
            await consumer.commit_offsets()
            assert consumer.problem is None
        assert [record async for record in stream] == []
        with pytest.raises(KafkaError, match="closed"):
            await consumer.commit_offsets()
        return found

    found = asyncio.run(read())
    assert sorted(found) == sorted(all_of(topic, 11))
    assert committed(zookeeper, group) == {(topic, partition): 11 for partition in range(PARTITIONS)}


def test_a_stream_on_a_loop_ends_after_its_time(make, topic):
    async def read():
        async with make({"consumer.timeout.ms": 1}, kind=AsyncLegacyConsumer) as consumer:
            (stream,) = await consumer.create_message_streams_by_filter(TopicFilter(topic))
            found = []
            while len(found) < 40:
                found += [(each.topic, each.partition, each.offset) async for each in stream]
            return found

    assert set(asyncio.run(read())) == all_of(topic)
