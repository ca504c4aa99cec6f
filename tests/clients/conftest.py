"""Three families of third-party clients behind one interface: the records that each of them sends and receives.

All of them read by manual assignment, without groups.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the modules that the tests here share

TIMEOUT_S = 90
FETCH_WAIT_MS = 50
"""Some clients can't close while a fetch is parked; their half second for each test adds up."""
Headers = list[tuple[str, bytes | None]]


@dataclass
class Sent:
    """A record to produce."""

    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=list)
    timestamp_ms: int = 1_700_000_000_000


@dataclass
class Received:
    """A record as a consumer returned it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Family(Protocol):
    """One client library."""

    sends_null_headers: bool

    def create_topic(self, servers: str, topic: str, partitions: int, configs: dict[str, str]) -> None: ...

    def produce(self, servers: str, topic: str, partition: int, records: Sequence[Sent], codec: str) -> list[int]:
        """Send with acks=all and return the offsets."""
        ...

    def consume(self, servers: str, topic: str, partition: int, start: int | None, count: int) -> list[Received]:
        """`count` records from an offset on, or from the beginning."""
        ...

    def offset_for_time(self, servers: str, topic: str, partition: int, timestamp_ms: int) -> int | None: ...

    def bounds(self, servers: str, topic: str, partition: int) -> tuple[int, int]:
        """First offset and end offset."""
        ...


class ConfluentKafka:
    """librdkafka."""

    sends_null_headers = True

    def create_topic(self, servers, topic, partitions, configs):
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": servers})
        futures = admin.create_topics([NewTopic(topic, partitions, 1, config=configs)], request_timeout=TIMEOUT_S)
        futures[topic].result(TIMEOUT_S)

    def produce(self, servers, topic, partition, records, codec):
        from confluent_kafka import Producer

        # One batch, which the flush sends at once: librdkafka sends a batch uncompressed if compression would enlarge
        # it.
        properties = {"bootstrap.servers": servers, "compression.type": codec, "acks": "all", "linger.ms": 10_000}
        producer = Producer(properties)
        offsets, errors = [], []

        def delivered(error, message):
            if error is not None:
                errors.append(error)
            else:
                offsets.append(message.offset())

        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=partition,
                timestamp=record.timestamp_ms,
                headers=record.headers,
                on_delivery=delivered,
            )
        assert producer.flush(TIMEOUT_S) == 0
        assert not errors
        return offsets

    def _consumer(self, servers):
        from confluent_kafka import Consumer

        return Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": FETCH_WAIT_MS,
            }
        )

    def consume(self, servers, topic, partition, start, count):
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        consumer = self._consumer(servers)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING if start is None else start)])
        received = []
        try:
            while len(received) < count:
                messages = consumer.consume(count - len(received), TIMEOUT_S)
                assert messages, f"{len(received)} of {count} records came"
                for message in messages:
                    assert message.error() is None, message.error()
                    _, timestamp = message.timestamp()
                    headers = list(message.headers() or [])
                    received.append(Received(message.offset(), timestamp, message.key(), message.value(), headers))
        finally:
            consumer.close()
        return received

    def offset_for_time(self, servers, topic, partition, timestamp_ms):
        from confluent_kafka import OFFSET_END, TopicPartition

        consumer = self._consumer(servers)
        try:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], TIMEOUT_S)
        finally:
            consumer.close()
        assert found.error is None
        return None if found.offset == OFFSET_END else found.offset

    def bounds(self, servers, topic, partition):
        from confluent_kafka import TopicPartition

        consumer = self._consumer(servers)
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
        finally:
            consumer.close()


class KafkaPython:
    """kafka-python, a client of its own."""

    sends_null_headers = False

    def create_topic(self, servers, topic, partitions, configs):
        from kafka import KafkaAdminClient
        from kafka.admin import NewTopic

        admin = KafkaAdminClient(bootstrap_servers=servers)
        try:
            admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
        finally:
            admin.close()

    def produce(self, servers, topic, partition, records, codec):
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=servers, compression_type=None if codec == "none" else codec, acks="all", linger_ms=20
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [future.get(TIMEOUT_S).offset for future in futures]
        finally:
            producer.close(TIMEOUT_S)

    def _consumer(self, servers):
        from kafka import KafkaConsumer

        return KafkaConsumer(
            bootstrap_servers=servers,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            check_crcs=True,
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )

    def consume(self, servers, topic, partition, start, count):
        from kafka import TopicPartition

        consumer = self._consumer(servers)
        position = TopicPartition(topic, partition)
        received = []
        try:
            consumer.assign([position])
            if start is None:
                consumer.seek_to_beginning(position)
            else:
                consumer.seek(position, start)
            while len(received) < count:
                polled = consumer.poll(timeout_ms=TIMEOUT_S * 1000, max_records=count - len(received))
                assert polled, f"{len(received)} of {count} records came"
                received += [
                    Received(record.offset, record.timestamp, record.key, record.value, list(record.headers))
                    for record in polled[position]
                ]
        finally:
            consumer.close()
        return received

    def offset_for_time(self, servers, topic, partition, timestamp_ms):
        from kafka import TopicPartition

        consumer = self._consumer(servers)
        position = TopicPartition(topic, partition)
        try:
            found = consumer.offsets_for_times({position: timestamp_ms})[position]
        finally:
            consumer.close()
        return None if found is None else found.offset

    def bounds(self, servers, topic, partition):
        from kafka import TopicPartition

        consumer = self._consumer(servers)
        position = TopicPartition(topic, partition)
        try:
            return consumer.beginning_offsets([position])[position], consumer.end_offsets([position])[position]
        finally:
            consumer.close()


class AioKafka:
    """aiokafka: asks ApiVersions in version 0 and speaks older versions than the others."""

    sends_null_headers = True

    def create_topic(self, servers, topic, partitions, configs):
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        async def run():
            admin = AIOKafkaAdminClient(bootstrap_servers=servers)
            await admin.start()
            try:
                response = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
                assert [entry[1] for entry in response.topic_errors] == [0], response
            finally:
                await admin.close()

        asyncio.run(run())

    def produce(self, servers, topic, partition, records, codec):
        from aiokafka import AIOKafkaProducer

        async def run():
            producer = AIOKafkaProducer(
                bootstrap_servers=servers, compression_type=None if codec == "none" else codec, acks="all", linger_ms=20
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=record.headers,
                        partition=partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                return [(await asyncio.wait_for(future, TIMEOUT_S)).offset for future in futures]
            finally:
                await producer.stop()

        return asyncio.run(run())

    def _with_consumer(self, servers, use: Callable):
        from aiokafka import AIOKafkaConsumer

        async def run():
            consumer = AIOKafkaConsumer(
                bootstrap_servers=servers,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                check_crcs=True,
                fetch_max_wait_ms=FETCH_WAIT_MS,
            )
            await consumer.start()
            try:
                return await use(consumer)
            finally:
                await consumer.stop()

        return asyncio.run(run())

    def consume(self, servers, topic, partition, start, count):
        from aiokafka import TopicPartition

        position = TopicPartition(topic, partition)

        async def use(consumer):
            consumer.assign([position])
            if start is None:
                await consumer.seek_to_beginning(position)
            else:
                consumer.seek(position, start)
            received = []
            while len(received) < count:
                polled = await consumer.getmany(timeout_ms=TIMEOUT_S * 1000, max_records=count - len(received))
                assert polled, f"{len(received)} of {count} records came"
                received += [
                    Received(record.offset, record.timestamp, record.key, record.value, list(record.headers))
                    for record in polled[position]
                ]
            return received

        return self._with_consumer(servers, use)

    def offset_for_time(self, servers, topic, partition, timestamp_ms):
        from aiokafka import TopicPartition

        position = TopicPartition(topic, partition)

        async def use(consumer):
            consumer.assign([position])
            found = (await consumer.offsets_for_times({position: timestamp_ms}))[position]
            return None if found is None else found.offset

        return self._with_consumer(servers, use)

    def bounds(self, servers, topic, partition):
        from aiokafka import TopicPartition

        position = TopicPartition(topic, partition)

        async def use(consumer):
            consumer.assign([position])
            first = await consumer.beginning_offsets([position])
            end = await consumer.end_offsets([position])
            return first[position], end[position]

        return self._with_consumer(servers, use)


FAMILIES: dict[str, Family] = {
    "confluent-kafka": ConfluentKafka(),
    "kafka-python": KafkaPython(),
    "aiokafka": AioKafka(),
}


@pytest.fixture(scope="session")
def families() -> dict[str, Family]:
    return FAMILIES


@pytest.fixture(params=list(FAMILIES))
def family(request) -> Family:
    return FAMILIES[request.param]


@pytest.fixture(params=list(FAMILIES))
def producer(request) -> Family:
    return FAMILIES[request.param]


@pytest.fixture
def servers(ottla_broker) -> str:
    return ottla_broker.bootstrap_servers


@pytest.fixture(scope="session")
def topic_numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def topic(topic_numbers) -> str:
    """A name that no other test of the session uses."""
    return f"clients-{next(topic_numbers)}"


@pytest.fixture(scope="session")
def make_records() -> Callable[[Family], list[Sent]]:
    """Records with everything that a format could lose and that the family can send."""

    def make(family: Family) -> list[Sent]:
        records = [
            Sent(b"key", b"value"),
            Sent(None, b"no key"),
            Sent(b"", b""),
            Sent(b"tombstone", None),
            Sent("schlüssel".encode(), "wert €".encode()),
            Sent(bytes(range(256)), bytes(range(255, -1, -1)) * 40),
            Sent(
                b"headers",
                b"x",
                [
                    ("a", b"1"),
                    ("b", None if family.sends_null_headers else b""),
                    ("a", b"2"),
                    ("", b""),
                    ("ü", bytes(range(256))),
                ],
            ),
            Sent(b"compressible", b"ottla " * 5000),
        ]
        records += [Sent(b"k%d" % (i % 7), b"record %d" % i, [("i", b"%d" % i)]) for i in range(200)]
        for i, record in enumerate(records):
            record.timestamp_ms += i * 10
        return records

    return make
