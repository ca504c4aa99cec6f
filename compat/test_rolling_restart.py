"""Third-party clients over a rolling restart: each of three brokers is stopped in turn, under load.

All clients go through the same restart, each producer with its own topic: three partitions on three brokers,
min.insync.replicas=2. Idempotent producers lose no record, duplicate none and preserve the order; segmentio/kafka-go
has no such producer and loses none. Group members miss no record, and consumers with assigned partitions read each
record exactly once. (Apache Kafka's producer has its own test, in java/test_cluster.py.)
"""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from go_process import TIMEOUT_S, Ongoing
from three_brokers import ThreeBrokers

pytestmark = pytest.mark.timeout(900)  # the first test builds the program, which is slow on a loaded machine

PARTITIONS = 3
PROGRESS = 100
"""Minimum number of records per producer and reader between two broker restarts."""
SETTINGS = {"offsets_topic_num_partitions": "3", "group_initial_rebalance_delay_ms": "0"}
LIBRDKAFKA = "librdkafka"
FRANZ = "franz-go"
SEGMENTIO = "segmentio"


class Stored(NamedTuple):
    """One record with its position."""

    partition: int
    offset: int
    value: str


class LibrdkafkaProducer(threading.Thread):
    """An idempotent producer that sends 0, 1, 2, ... until `finish`."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(name=f"producer of {topic}", daemon=True)
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
        self._topic = topic
        self._finishing = threading.Event()
        self._acknowledged: list[dict[str, Any]] = []

    def run(self) -> None:
        number = 0
        while not self._finishing.is_set():
            self._producer.produce(self._topic, str(number), on_delivery=self._delivered)
            self._producer.poll(0.005)
            number += 1
        self._producer.flush(TIMEOUT_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        one: dict[str, Any] = {"value": message.value().decode()}
        if error is None:
            one |= {"partition": message.partition(), "offset": message.offset()}
        else:
            one["error"] = str(error)
        self._acknowledged.append(one)

    def lines(self) -> list[dict[str, Any]]:
        """Returns the records acknowledged or failed so far."""
        return list(self._acknowledged)

    def finish(self) -> list[dict[str, Any]]:
        self._finishing.set()
        self.join(2 * TIMEOUT_S)
        return self.lines()

    def kill(self) -> None:
        self._finishing.set()


class LibrdkafkaReader(threading.Thread):
    """Reads all partitions of a topic from the beginning, with manual assignment."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(name=f"reader of {topic}", daemon=True)
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
        self._finishing = threading.Event()
        self._read: list[dict[str, Any]] = []

    def run(self) -> None:
        while not self._finishing.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._read.append(
                    {"partition": message.partition(), "offset": message.offset(), "value": message.value().decode()}
                )
        self._consumer.close()

    def lines(self) -> list[dict[str, Any]]:
        """Returns the records read so far."""
        return list(self._read)

    def finish(self) -> list[dict[str, Any]]:
        self._finishing.set()
        self.join(TIMEOUT_S)
        return self.lines()

    def kill(self) -> None:
        self._finishing.set()


Client = Ongoing | LibrdkafkaProducer | LibrdkafkaReader


@dataclass
class Restart:
    """Results of the clients over one rolling restart."""

    acknowledged: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By producer, in order of the delivery reports."""
    stored: dict[str, list[Stored]] = field(default_factory=dict)
    """All records after the restart, by topic, which has its producer's name."""
    read: dict[str, list[Stored]] = field(default_factory=dict)
    """By reader, in reading order; all of them read the topic of librdkafka."""


@pytest.fixture(scope="module")
def restart(go_build: Path | str, tmp_path_factory: pytest.TempPathFactory) -> Restart:
    """One rolling restart under all clients, without the Go clients where they are unavailable."""
    folder = tmp_path_factory.mktemp("rolling")
    cluster = ThreeBrokers(folder, **SETTINGS)
    try:
        with ExitStack() as clients:
            result = roll(cluster, clients, folder, go_build if isinstance(go_build, Path) else None)
    finally:
        cluster.close()
    return result


def roll(cluster: ThreeBrokers, clients: ExitStack, folder: Path, program: Path | None) -> Restart:
    servers = cluster.bootstrap_servers
    create(servers, [LIBRDKAFKA, FRANZ, SEGMENTIO])
    producers: dict[str, Client] = {LIBRDKAFKA: LibrdkafkaProducer(servers, LIBRDKAFKA)}
    readers: dict[str, Client] = {LIBRDKAFKA: LibrdkafkaReader(servers, LIBRDKAFKA)}
    if program is not None:
        for name, command in ((FRANZ, "franz-produce"), (SEGMENTIO, "segmentio-produce")):
            producers[name] = Ongoing(folder, name, program, command, servers, name)
        for name, *command in (
            (FRANZ, "franz-consume", servers, LIBRDKAFKA),
            (f"{FRANZ} in a group", "franz-consume", servers, LIBRDKAFKA, FRANZ),
            (f"{SEGMENTIO} in a group", "segmentio-consume", servers, LIBRDKAFKA, SEGMENTIO),
        ):
            readers[name] = Ongoing(folder, f"{name} reads", program, *command)
    for client in (*producers.values(), *readers.values()):
        clients.callback(client.kill)
        if isinstance(client, threading.Thread):
            client.start()
    wait_for_progress(cluster, producers, readers)
    for node_id in (1, 2, 3):
        cluster.end(node_id, signal.SIGTERM)
        wait_for_progress(cluster, producers, readers)
    result = Restart()
    for name, producer in producers.items():
        result.acknowledged[name] = producer.finish()
        result.stored[name] = read_all(servers, name)
    wanted = set(result.stored[LIBRDKAFKA])
    for name, reader in readers.items():
        cluster.until(partial(has_read, reader, wanted), f"{name} has read everything", TIMEOUT_S)
        reader.finish()
        result.read[name] = positions(reader)
    return result


def create(servers: str, topics: list[str]) -> None:
    config = {"min.insync.replicas": "2"}
    wanted = [NewTopic(topic, PARTITIONS, 3, config=config) for topic in topics]
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics(wanted).values():
        made.result(TIMEOUT_S)


def wait_for_progress(cluster: ThreeBrokers, *clients: dict[str, Client]) -> None:
    """Wait until each client has reported `PROGRESS` more records."""
    for family in clients:
        for name, client in family.items():
            enough = len(client.lines()) + PROGRESS
            cluster.until(partial(has_lines, client, enough), f"{name} makes progress", TIMEOUT_S)


def has_lines(client: Client, enough: int) -> bool:
    return len(client.lines()) >= enough


def has_read(reader: Client, wanted: set[Stored]) -> bool:
    return wanted <= set(positions(reader))


def positions(reader: Client) -> list[Stored]:
    return [Stored(one["partition"], one["offset"], one["value"]) for one in reader.lines()]


def read_all(servers: str, topic: str) -> list[Stored]:
    """Returns every record of a topic without active producers."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "all", "enable.auto.commit": False})
    ends = {each: consumer.get_watermark_offsets(TopicPartition(topic, each), TIMEOUT_S)[1] for each in range(3)}
    found: list[Stored] = []
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in ends])
    while len(found) < sum(ends.values()):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{topic} ends at {ends}, and {len(found)} records came"
        assert message.error() is None, message.error()
        found.append(Stored(message.partition(), message.offset(), message.value().decode()))
    consumer.close()
    return found


def in_order(records: list[Stored]) -> bool:
    """Returns whether the numbers increase in each partition."""
    for partition in range(PARTITIONS):
        numbers = [int(record.value) for record in records if record.partition == partition]
        if numbers != sorted(set(numbers)):
            return False
    return True


class TestLibrdkafka:
    """confluent-kafka."""

    def test_its_idempotent_producer_loses_and_doubles_nothing(self, restart: Restart) -> None:
        check_idempotent(restart, LIBRDKAFKA)

    def test_its_consumer_reads_everything_once(self, restart: Restart) -> None:
        check_read_once(restart, LIBRDKAFKA)


@pytest.mark.usefixtures("go_program")
class TestGo:
    """franz-go and segmentio/kafka-go."""

    def test_franz_idempotent_producer_loses_and_doubles_nothing(self, restart: Restart) -> None:
        check_idempotent(restart, FRANZ)

    def test_franz_consumer_reads_everything_once(self, restart: Restart) -> None:
        check_read_once(restart, FRANZ)

    @pytest.mark.parametrize("name", [FRANZ, SEGMENTIO])
    def test_members_of_groups_miss_nothing(self, restart: Restart, name: str) -> None:
        assert set(restart.read[f"{name} in a group"]) == set(restart.stored[LIBRDKAFKA])

    def test_segmentio_writer_loses_nothing(self, restart: Restart) -> None:
        acknowledged = {one["value"] for one in restart.acknowledged[SEGMENTIO]}
        assert len(acknowledged) > 4 * PROGRESS
        assert acknowledged <= {record.value for record in restart.stored[SEGMENTIO]}


def check_idempotent(restart: Restart, name: str) -> None:
    acknowledged, stored = restart.acknowledged[name], restart.stored[name]
    assert not [one for one in acknowledged if "error" in one]
    assert len(acknowledged) > 4 * PROGRESS
    delivered = {Stored(one["partition"], one["offset"], one["value"]) for one in acknowledged}
    assert len(delivered) == len(acknowledged)
    assert delivered == set(stored)
    assert len({record.value for record in stored}) == len(stored)
    assert in_order(stored)


def check_read_once(restart: Restart, name: str) -> None:
    read = restart.read[name]
    assert sorted(read) == sorted(restart.stored[LIBRDKAFKA])
    assert in_order(read)
