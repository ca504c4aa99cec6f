"""Consume-transform-produce by librdkafka: offsets are part of the transaction, in both group protocols.

Records read from `input` are written to `output` with their number, and their offsets are committed by the producer
(KIP-447). Some transactions are aborted, then the consumer seeks back; the broker is killed in the middle of one.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("confluent_kafka")

WAIT_S = 90
RECORDS = 60
BATCH = 10
PROTOCOLS = {
    "classic": {"session.timeout.ms": 6000, "partition.assignment.strategy": "range"},
    "consumer": {"group.protocol": "consumer"},
}
CONFIGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.session.timeout.ms": 6000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
}


@pytest.fixture(params=list(PROTOCOLS))
def settings(request):
    return PROTOCOLS[request.param]


@pytest.fixture
def broker(ottla_broker_factory):
    return ottla_broker_factory(configs=CONFIGS)


def fill(servers, topic, count, **settings):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "log_level": 0, **settings})
    if settings:
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    if settings:
        producer.commit_transaction(WAIT_S)
    assert producer.flush(WAIT_S) == 0


def make_consumer(servers, group, settings):
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **settings,
        }
    )


def make_producer(servers, name):
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": name,
            "reconnect.backoff.max.ms": 200,
            # Once librdkafka 2.16 has bootstrapped again it waits for ever to send offsets to the group.
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    return producer


def values(servers, topic):
    """Everything that a reader of committed records sees."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    try:
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None
            if message.error() is not None:
                return found
            found.append(message.value())
    finally:
        consumer.close()


def committed(consumer, topic):
    from confluent_kafka import TopicPartition

    (position,) = consumer.committed([TopicPartition(topic, 0)], WAIT_S)
    assert position.error is None
    return position.offset


def positions(consumer):
    return consumer.position(consumer.assignment())


def transform(consumer, producer, output, messages):
    """One transaction, up to its end."""
    producer.begin_transaction()
    for message in messages:
        producer.produce(output, message.value(), partition=0)
    producer.send_offsets_to_transaction(positions(consumer), consumer.consumer_group_metadata(), WAIT_S)


def take(consumer, count):
    messages = consumer.consume(count, WAIT_S)
    assert [message.error() for message in messages] == [None] * count
    return messages


def test_exactly_once_over_aborts_and_a_kill(broker, families, topic, settings):
    servers, output, group = broker.bootstrap_servers, f"{topic}-out", f"{topic}-group"
    for name in (topic, output):
        families["confluent-kafka"].create_topic(servers, name, 1, {})
    fill(servers, topic, RECORDS)
    consumer, producer = make_consumer(servers, group, settings), make_producer(servers, f"{topic}-id")
    consumer.subscribe([topic])
    for number in range(RECORDS // BATCH):
        messages = take(consumer, BATCH)
        if number % 3 == 1:
            start = messages[0].offset()
            transform(consumer, producer, output, messages)
            producer.abort_transaction(WAIT_S)
            assert committed(consumer, topic) == start
            (place,) = consumer.assignment()
            place.offset = start
            consumer.seek(place)
            messages = take(consumer, BATCH)
        transform(consumer, producer, output, messages)
        if number == 2:
            assert producer.flush(WAIT_S) == 0
            broker.restart(crash=True)
        producer.commit_transaction(WAIT_S)
        assert committed(consumer, topic) == (number + 1) * BATCH
    consumer.close()
    assert values(servers, output) == [b"%d" % number for number in range(RECORDS)]


def test_a_zombie_of_the_group_is_fenced(broker, families, topic, settings):
    """KIP-447: the producers differ, only the group shows the zombie."""
    from confluent_kafka import KafkaException

    servers, output, group = broker.bootstrap_servers, f"{topic}-out", f"{topic}-group"
    for name in (topic, output):
        families["confluent-kafka"].create_topic(servers, name, 1, {})
    fill(servers, topic, BATCH)
    first, zombie = make_consumer(servers, group, settings), make_producer(servers, f"{topic}-1")
    first.subscribe([topic])
    take(first, BATCH)
    metadata, reached = first.consumer_group_metadata(), positions(first)
    first.close()
    second = make_consumer(servers, group, settings)
    second.subscribe([topic])
    take(second, BATCH)
    zombie.begin_transaction()
    zombie.produce(output, b"twice", partition=0)
    with pytest.raises(KafkaException) as refused:
        zombie.send_offsets_to_transaction(reached, metadata, WAIT_S)
    assert refused.value.args[0].txn_requires_abort()
    zombie.abort_transaction(WAIT_S)
    assert values(servers, output) == []
    second.close()


def test_a_group_that_caught_up_has_no_lag(broker, families, topic, settings):
    """The last offset of a transactional topic is a marker's, which no consumer sees."""
    servers, group = broker.bootstrap_servers, f"{topic}-group"
    families["confluent-kafka"].create_topic(servers, topic, 1, {})
    fill(servers, topic, BATCH, **{"transactional.id": f"{topic}-id"})
    consumer = make_consumer(servers, group, settings)
    consumer.subscribe([topic])
    take(consumer, BATCH)
    while positions(consumer)[0].offset < BATCH + 1:
        assert consumer.poll(1) is None
    consumer.commit(offsets=positions(consumer), asynchronous=False)
    described = subprocess.run(
        [sys.executable, "-m", "ottla", "group", "describe", group, "-b", servers, "--json"],
        capture_output=True,
        check=True,
        text=True,
    )
    consumer.close()
    (row,) = json.loads(described.stdout)[0]["partitions"]
    assert (row["topic"], row["offset"], row["end"], row["lag"]) == (topic, BATCH + 1, BATCH + 1, 0)
