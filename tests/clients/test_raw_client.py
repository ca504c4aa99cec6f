"""A client of brokers 0.8 and 0.9 with hand-encoded bytes, next to current clients: all directions, both formats."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, TopicPartition
from raw_client import (
    CODECS,
    GZIP,
    SNAPPY,
    Found,
    RawClient,
    Row,
    compressed,
    entries,
    message,
    message_set,
    records,
    wrapper,
)
from tests.fuzz.memory import Growth

ROWS = [
    Row(b"key", b"value", 1_700_000_000_000),
    Row(None, b"no key", 1_700_000_000_500),
    Row(b"gone", None, 1_700_000_000_250),
    Row(None, None, 1_700_000_000_750),
    Row(b"", b"", 1_700_000_001_000),
    Row(bytes(range(256)), b"compressible " * 10_000, 1_700_000_002_000),
]
OLD_FORMATS = (0, 1)
CORRUPT_MESSAGE, UNKNOWN_TOPIC, INVALID_RECORD = 2, 3, 87
LATEST, EARLIEST = -1, -2
WAIT_S = 90.0


@pytest.fixture
def raw(ottla_broker) -> Iterator[RawClient]:
    with RawClient(ottla_broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def made(ottla_broker, families, topic) -> str:
    """A topic with three partitions."""
    families["confluent-kafka"].create_topic(ottla_broker.bootstrap_servers, topic, 3, {})
    return topic


def as_found(rows: list[Row], reader_magic: int, writer_magic: int, first: int = 0) -> list[Found]:
    """The fields of a record of another format as seen by a reader of one format; 2 is the current one."""
    expected = []
    for number, row in enumerate(rows):
        known = row.timestamp_ms if writer_magic else -1
        expected.append(Found(first + number, row.key, row.value, known if reader_magic else None))
    return expected


def received(rows) -> list[Found]:
    """The records that a client of today returned."""
    assert all(row.headers == [] for row in rows)
    return [Found(row.offset, row.key, row.value, row.timestamp_ms) for row in rows]


def test_metadata_names_brokers_and_leaders(raw, made, ottla_broker):
    brokers, topics = raw.metadata(made)
    ((node, (host, port)),) = brokers.items()
    assert f"{host}:{port}" == ottla_broker.bootstrap_servers
    assert topics == {made: (0, {0: node, 1: node, 2: node})}
    everything = raw.metadata()[1]
    assert everything[made] == topics[made]
    assert {error for error, _ in everything.values()} == {0}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", OLD_FORMATS)
def test_its_records_are_read_by_all_clients(raw, made, ottla_broker, families, magic, codec):
    """In two partitions by one request, twice; null and empty keys and values, with times and without."""
    for first in (0, len(ROWS)):
        answers = raw.produce(
            2 * magic, made, {2: message_set(ROWS, magic, CODECS[codec]), 0: message_set(ROWS[:2], magic)}
        )
        assert answers == {2: (0, first), 0: (0, 2 * (first > 0))}
    for reader in OLD_FORMATS:
        assert raw.read(reader, made, 2) == as_found(ROWS + ROWS, reader, magic)
        assert raw.read(reader, made, 0) == as_found(ROWS[:2] * 2, reader, magic)
        assert raw.read(reader, made, 2, 3) == as_found(ROWS + ROWS, reader, magic)[3:]
    for family in families.values():
        rows = family.consume(ottla_broker.bootstrap_servers, made, 2, None, 2 * len(ROWS))
        assert received(rows) == as_found(ROWS + ROWS, 2, magic)


@pytest.mark.parametrize("codec", CODECS)
def test_what_clients_of_today_write_it_reads(raw, made, ottla_broker, producer, make_records, codec):
    """Headers have no place in old formats; everything else comes, from any offset on."""
    sent = make_records(producer)
    producer.produce(ottla_broker.bootstrap_servers, made, 1, sent, codec)
    rows = [Row(record.key, record.value, record.timestamp_ms) for record in sent]
    for magic in OLD_FORMATS:
        for start in (0, 3, len(rows) - 1):
            assert raw.read(magic, made, 1, start) == as_found(rows, magic, 2)[start:]
        (_, _, content) = raw.fetch(2 * magic, made, {1: 0})[1]
        assert {attributes & 7 for _, attributes, _, _ in entries(content)} == {CODECS[codec]}


def test_all_formats_and_codecs_in_one_partition(raw, made, ottla_broker, families, make_records):
    servers = ottla_broker.bootstrap_servers
    new = families["confluent-kafka"]
    expected: list[list[Found]] = [[], [], []]
    for name, codec in CODECS.items():
        for magic in OLD_FORMATS:
            count = len(expected[0])
            assert raw.produce(2 * magic, made, {0: message_set(ROWS, magic, codec)}) == {0: (0, count)}
            for reader, rows in enumerate(expected):
                rows += as_found(ROWS, reader, magic, count)
        sent = make_records(new)[:5]
        count = len(expected[0])
        assert new.produce(servers, made, 0, sent, name)[0] == count
        for reader, rows in enumerate(expected):
            rows += as_found([Row(each.key, each.value, each.timestamp_ms) for each in sent], reader, 2, count)
    for magic in OLD_FORMATS:
        assert raw.read(magic, made, 0) == expected[magic]
    for family in families.values():
        assert received(family.consume(servers, made, 0, None, len(expected[2]))) == expected[2]


def test_a_fetch_has_several_partitions_and_their_errors(raw, made):
    raw.produce(0, made, {0: message_set(ROWS, 0), 1: message_set(ROWS, 0, GZIP)})
    answers = raw.fetch(0, made, {0: 0, 1: len(ROWS) - 1, 2: 0, 7: 0})
    assert {partition: error for partition, (error, _, _) in answers.items()} == {0: 0, 1: 0, 2: 0, 7: UNKNOWN_TOPIC}
    assert {partition: mark for partition, (_, mark, _) in answers.items() if partition < 3} == {
        0: len(ROWS),
        1: len(ROWS),
        2: 0,
    }
    assert list(records(answers[0][2], 0)) == as_found(ROWS, 0, 0)
    assert list(records(answers[1][2], 0))[-1] == as_found(ROWS, 0, 0)[-1]
    assert answers[2][2] == b""


def test_a_fetch_of_a_few_bytes_gets_on(raw, made):
    """A consumer of then grew its buffer where it got nothing; it never has to."""
    raw.produce(0, made, {0: message_set(ROWS, 0)})
    ((error, _, content),) = raw.fetch(0, made, {0: len(ROWS) - 1}, max_bytes=10).values()
    assert error == 0
    assert list(records(content, 0)) == as_found(ROWS, 0, 0)[-1:]


@pytest.mark.parametrize("magic", OLD_FORMATS)
def test_sets_that_no_producer_may_send(raw, made, magic):
    plain = message_set(ROWS[:2], magic)
    refused = {
        "a wrapper within a wrapper": (wrapper(wrapper(plain, 1, magic, GZIP), 1, magic, SNAPPY), INVALID_RECORD),
        "two wrappers": (wrapper(plain, 1, magic, GZIP) * 2, INVALID_RECORD),
        "the other format within": (wrapper(message_set(ROWS[:2], 1 - magic), 1, magic, GZIP), INVALID_RECORD),
        "a flipped bit": (plain[:-1] + bytes([plain[-1] ^ 1]), CORRUPT_MESSAGE),
        "one within a wrapper": (wrapper(plain[:-1] + b"!", 1, magic, SNAPPY), CORRUPT_MESSAGE),
        "no snappy": (message(magic, SNAPPY, 0, Row(None, b"nothing of it")), CORRUPT_MESSAGE),
        "cut snappy": (message(magic, SNAPPY, 0, Row(None, compressed(SNAPPY, plain)[:-3])), CORRUPT_MESSAGE),
    }
    for what, (content, code) in refused.items():
        ((error, base_offset),) = raw.produce(2 * magic, made, {0: content}).values()
        assert (error, base_offset) == (code, -1), what
    assert raw.produce(2 * magic, made, {0: plain, 1: b"", 9: plain}) == {
        0: (0, 0),
        1: (INVALID_RECORD, -1),
        9: (UNKNOWN_TOPIC, -1),
    }
    assert raw.read(magic, made, 0) == as_found(ROWS[:2], magic, magic)


def test_produce_without_an_answer_keeps_the_order(raw, made):
    for number in range(20):
        assert raw.produce(0, made, {0: message_set([Row(None, b"%d" % number)], 0, number % 2)}, acks=0) == {}
    assert raw.produce(0, made, {0: message_set([Row(None, b"20")], 0)}) == {0: (0, 20)}
    assert [found.value for found in raw.read(0, made, 0)] == [b"%d" % number for number in range(21)]


def test_offsets_by_time_are_those_of_segments(raw, ottla_broker, families, topic):
    families["confluent-kafka"].create_topic(ottla_broker.bootstrap_servers, topic, 1, {"segment.bytes": "1048576"})
    for _ in range(3):
        raw.produce(0, topic, {0: message_set([Row(None, b"x" * 700_000)], 0)})
    assert raw.list_offsets(topic, 0, LATEST, 1) == [3]
    assert raw.list_offsets(topic, 0, LATEST, 10) == [3, 2, 1, 0]
    assert raw.list_offsets(topic, 0, EARLIEST, 10) == [0]
    assert raw.list_offsets(topic, 0, 1, 10) == []


def find_coordinator(raw: RawClient, group: str) -> tuple[int, str, int]:
    """The coordinator's node, as soon as there is one; the first request creates the offsets topic."""
    deadline = time.monotonic() + WAIT_S
    while True:
        error, node, host, port = raw.coordinator(group)
        if error == 0:
            return node, host, port
        assert error == 15, error
        assert time.monotonic() < deadline, "no coordinator"


def committed(raw: RawClient, version: int, group: str, topic: str) -> dict[int, tuple[int, str | None, int]]:
    """The committed offset, as soon as the coordinator has loaded its group."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = raw.committed(version, group, topic, (0, 1, 2))
        if {error for _, _, error in found.values()} == {0}:
            return found
        assert {error for _, _, error in found.values()} <= {14, 16}, found
        assert time.monotonic() < deadline, "the group is not loaded"


@pytest.mark.parametrize("version", [0, 1])
def test_offsets_of_a_group_go_both_ways(raw, made, ottla_broker, version):
    """Committed by hand and read by librdkafka, then the other way round; a missing commit is -1."""
    group = f"{made} by hand"
    node, host, port = find_coordinator(raw, group)
    assert raw.metadata()[0] == {node: (host, port)}
    nothing = (-1, "", 0)
    assert committed(raw, version, group, made) == {0: nothing, 1: nothing, 2: nothing}
    assert raw.commit(version, group, made, {0: (5, "note"), 2: (7, "")}) == {0: 0, 2: 0}
    assert committed(raw, version, group, made) == {0: (5, "note", 0), 1: nothing, 2: (7, "", 0)}
    assert committed(raw, 1 - version, group, made) == committed(raw, version, group, made)
    consumer = Consumer({"bootstrap.servers": ottla_broker.bootstrap_servers, "group.id": group})
    try:
        asked = [TopicPartition(made, partition) for partition in range(3)]
        assert [each.offset for each in consumer.committed(asked, WAIT_S)][::2] == [5, 7]
        consumer.commit(offsets=[TopicPartition(made, 1, 9)], asynchronous=False)
    finally:
        consumer.close()
    assert committed(raw, version, group, made) == {0: (5, "note", 0), 1: (9, "", 0), 2: (7, "", 0)}


def test_request_of_an_unknown_version_closes_connection(raw):
    raw.send(1, 9999, b"")
    with pytest.raises((AssertionError, ConnectionError), match=r"closed|reset"):
        raw.receive()


HUNDRED_MEGABYTES = 100 << 20
READERS = 4


def converted_at_once(servers: str, topic: str, count: int) -> list[int]:
    """The total bytes of this many consumers that each request a hundred megabytes of every partition at once."""

    def read(_: int) -> int:
        with RawClient(servers) as client:
            answers = client.fetch(0, topic, {0: 0, 1: 0, 2: 0}, HUNDRED_MEGABYTES)
            assert {error for error, _, _ in answers.values()} == {0}
            assert all(list(records(content, 0)) for _, _, content in answers.values() if content)
            return sum(len(content) for _, _, content in answers.values())

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(read, range(count)))


def test_a_conversion_has_a_bound_whatever_is_asked_for(ottla_broker_factory, families, topic):
    """300 MB in plain batches of a megabyte: each of several readers gets a few of them."""
    broker = ottla_broker_factory()
    servers = broker.bootstrap_servers
    families["confluent-kafka"].create_topic(servers, topic, 3, {})
    with RawClient(servers) as client:
        rows = message_set([Row(b"k", b"v" * 10_000)] * 90, 0)
        for _ in range(HUNDRED_MEGABYTES // len(rows)):
            client.produce(0, topic, dict.fromkeys(range(3), rows))
    growth = Growth(broker.pid)
    sizes = converted_at_once(servers, topic, READERS)
    assert all(1 << 20 < size < 8 << 20 for size in sizes)
    assert growth.bytes < 64 << 20


def test_a_conversion_of_one_batch_has_a_bound(ottla_broker_factory, families, topic):
    """A batch of a hundred megabytes that is small on the wire is converted for one reader at a time."""
    broker = ottla_broker_factory()
    servers = broker.bootstrap_servers
    families["confluent-kafka"].create_topic(servers, topic, 3, {})
    with RawClient(servers) as client:
        rows = message_set([Row(b"k", b"v" * 1_000_000)] * 100, 0, GZIP)
        for partition in range(3):
            assert client.produce(0, topic, {partition: rows}) == {partition: (0, 0)}
    growth = Growth(broker.pid)
    converted_at_once(servers, topic, READERS)
    assert growth.bytes < 400 << 20
