"""Transactions of three families of clients behind one face, and what their readers see of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

TIMEOUT_S = 60
TRANSACTION_TIMEOUT_MS = 300_000


class Fenced(Exception):
    """The producer is one of an older epoch."""


class TransactionalProducer(Protocol):
    """A producer that has called InitProducerId."""

    def begin(self) -> None: ...

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        """To partition 0, and wait; raises Fenced."""
        ...

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        """Of partition 0; raises Fenced."""
        ...

    def commit(self) -> None:
        """Raises Fenced."""
        ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class ConfluentProducer:
    """librdkafka."""

    def __init__(self, servers: str, transactional_id: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        self._servers = servers
        self._producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        from confluent_kafka import KafkaError

        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                failures.append(error)

        for value in values:
            self._producer.produce(topic, value, partition=0, on_delivery=delivered)
        self._fenced(self._producer.flush, TIMEOUT_S)
        if failures:
            raise Fenced(failures[0])

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": group})
        metadata = consumer.consumer_group_metadata()
        self._fenced(
            self._producer.send_offsets_to_transaction, [TopicPartition(topic, 0, offset)], metadata, TIMEOUT_S
        )
        consumer.close()

    def commit(self) -> None:
        self._fenced(self._producer.commit_transaction, TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)

    def _fenced(self, call: Any, *arguments: Any) -> None:
        from confluent_kafka import KafkaError, KafkaException

        try:
            call(*arguments)
        except KafkaException as error:
            if error.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED):
                raise Fenced(error) from error
            raise

    def close(self) -> None:
        """librdkafka ends with the object."""


class KafkaPythonProducer:
    """kafka-python."""

    def __init__(self, servers: str, transactional_id: str) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=servers,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            max_block_ms=TIMEOUT_S * 1000,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        sent = [self._producer.send(topic, value, partition=0) for value in values]
        for each in sent:
            self._fenced(each.get, TIMEOUT_S)

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        self._fenced(self._producer.send_offsets_to_transaction, offsets, group)

    def commit(self) -> None:
        self._fenced(self._producer.commit_transaction)

    def abort(self) -> None:
        self._producer.abort_transaction()

    def _fenced(self, call: Any, *arguments: Any) -> None:
        from kafka.errors import InvalidProducerEpochError, ProducerFencedError

        try:
            call(*arguments)
        except (ProducerFencedError, InvalidProducerEpochError) as error:
            raise Fenced(error) from error

    def close(self) -> None:
        self._producer.close(1)


class AioKafkaProducer:
    """aiokafka, on a loop of its own that runs while it is called."""

    def __init__(self, servers: str, transactional_id: str) -> None:
        self._loop = asyncio.new_event_loop()
        # The error of a call also ends aiokafka's own tasks, whose exceptions it never retrieves. To log them from the
        # garbage collector would parse source for the traceback, within whatever a later test parses (CPython #106905).
        self._loop.set_exception_handler(lambda loop, context: None)
        self._producer = self._run(self._start(servers, transactional_id))

    @staticmethod
    async def _start(servers: str, transactional_id: str) -> Any:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        await producer.start()
        return producer

    def _run(self, call: Any) -> Any:
        from aiokafka.errors import ProducerFenced

        try:
            return self._loop.run_until_complete(asyncio.wait_for(call, TIMEOUT_S))
        except ProducerFenced as error:
            raise Fenced(error) from error

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        async def send() -> None:
            for each in [await self._producer.send(topic, value, partition=0) for value in values]:
                await each

        self._run(send())

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        from aiokafka import TopicPartition

        self._run(self._producer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._loop.run_until_complete(self._producer.stop())
        self._loop.close()


PRODUCERS: dict[str, Any] = {
    "confluent-kafka": ConfluentProducer,
    "kafka-python": KafkaPythonProducer,
    "aiokafka": AioKafkaProducer,
}


def confluent_values(servers: str, topic: str, level: str, count: int) -> list[bytes | None]:
    """The first `count` records of partition 0."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "isolation.level": level, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values = []
    while len(values) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{values} came, not {count}"
        assert message.error() is None, message.error()
        values.append(message.value())
    consumer.close()
    return values


def kafka_python_values(servers: str, topic: str, level: str, count: int) -> list[bytes | None]:
    """The first `count` records of partition 0."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None, isolation_level=level, fetch_max_wait_ms=50)
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    values: list[bytes | None] = []
    while len(values) < count:
        polled = consumer.poll(timeout_ms=TIMEOUT_S * 1000, max_records=count - len(values))
        assert polled, f"{values} came, not {count}"
        values += [record.value for record in polled[place]]
    consumer.close()
    return values


def aiokafka_values(servers: str, topic: str, level: str, count: int) -> list[bytes | None]:
    """The first `count` records of partition 0."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def read() -> list[bytes | None]:
        place = TopicPartition(topic, 0)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers, group_id=None, isolation_level=level, fetch_max_wait_ms=50
        )
        await consumer.start()
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        values: list[bytes | None] = []
        while len(values) < count:
            record = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            values.append(record.value)
        await consumer.stop()
        return values

    return asyncio.run(read())


READERS: dict[str, Any] = {
    "confluent-kafka": confluent_values,
    "kafka-python": kafka_python_values,
    "aiokafka": aiokafka_values,
}
