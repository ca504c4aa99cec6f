"""Clients that others wrote over a rolling restart: each of three brokers is told to stop in turn, under load.

All clients go through the same restart, each producer with a topic of its own: three partitions on three brokers, two
in sync required. Idempotent producers lose nothing, double nothing and keep the order; segmentio/kafka-go has no such
producer and loses nothing. Those that read meanwhile see everything, and what they assigned themselves exactly once.
(Apache Kafka's producer has its own test, in java/test_cluster.py.)
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

pytestmark = pytest.mark.timeout(900)  # the first of them builds the program, as long as a loaded machine takes

PARTITIONS = 3
PROGRESS = 100
"""Records that each producer gets through, and each reader sees, between the end of one broker and that of the next."""
SETTINGS = {"offsets_topic_num_partitions": "3", "group_initial_rebalance_delay_ms": "0"}
LIBRDKAFKA = "librdkafka"
FRANZ = "franz-go"
SEGMENTIO = "segmentio"


class Stored(NamedTuple):
    """One record where it lies."""

    partition: int
    offset: int
    value: str


class LibrdkafkaProducer(threading.Thread):
    """An idempotent producer that sends 0, 1, 2, ... until it is told to finish."""

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
        """What was acknowledged or failed by now."""
        return list(self._acknowledged)

    def finish(self) -> list[dict[str, Any]]:
        self._finishing.set()
        self.join(2 * TIMEOUT_S)
        return self.lines()

    def kill(self) -> None:
        self._finishing.set()


class LibrdkafkaReader(threading.Thread):
    """Reads all partitions of a topic from the beginning, assigned by itself."""

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
        """What was read by now."""
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
    """What the clients did over one rolling restart."""

    acknowledged: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By producer, in the order in which they were told."""
    stored: dict[str, list[Stored]] = field(default_factory=dict)
    """By topic, whose name is its producer's: all that is there afterwards."""
    read: dict[str, list[Stored]] = field(default_factory=dict)
    """By reader, in the order in which they read; all of them read the topic of librdkafka."""


@pytest.fixture(scope="module")
def restart(go_build: Path | str, tmp_path_factory: pytest.TempPathFactory) -> Restart:
    """One rolling restart under all clients; without those of Go where they can't be had."""
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
    """Until each client has told of so many records more."""
    for family in clients:
        for name, client in family.items():
            enough = len(client.lines()) + PROGRESS
            cluster.until(partial(told, client, enough), f"{name} goes on", TIMEOUT_S)


def told(client: Client, enough: int) -> bool:
    return len(client.lines()) >= enough


def has_read(reader: Client, wanted: set[Stored]) -> bool:
    return wanted <= set(positions(reader))


def positions(reader: Client) -> list[Stored]:
    return [Stored(one["partition"], one["offset"], one["value"]) for one in reader.lines()]


def read_all(servers: str, topic: str) -> list[Stored]:
    """Every record of a topic that nobody writes to any more."""
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
    """Whether the numbers rise in each partition."""
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
    told_of = {Stored(one["partition"], one["offset"], one["value"]) for one in acknowledged}
    assert len(told_of) == len(acknowledged)
    assert told_of == set(stored)
    assert len({record.value for record in stored}) == len(stored)
    assert in_order(stored)


def check_read_once(restart: Restart, name: str) -> None:
    read = restart.read[name]
    assert sorted(read) == sorted(restart.stored[LIBRDKAFKA])
    assert in_order(read)
