"""Clients over crashes and restarts of the broker: they resume by themselves; nothing that was acknowledged is lost
or doubled.
"""

from __future__ import annotations

import threading

import pytest

TIMEOUT_S = 60
MAX_QUEUED = 5_000
"""Maximum records that wait for the broker: librdkafka's own queue would overflow during a slow start."""


@pytest.mark.promise("D1", "T11")
@pytest.mark.parametrize("crash", [False, True], ids=["SIGTERM", "SIGKILL"])
def test_an_idempotent_producer_over_restarts(ottla_broker_factory, families, topic, crash):
    from confluent_kafka import Producer

    broker = ottla_broker_factory()
    servers = broker.bootstrap_servers
    families["confluent-kafka"].create_topic(servers, topic, 1, {"segment.bytes": "1048576"})
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 200,
            "message.timeout.ms": TIMEOUT_S * 1000,
            "log_level": 0,
        }
    )
    acknowledged: dict[bytes, int] = {}
    errors = []

    def delivered(error, message):
        if error is not None:
            errors.append(error)
        else:
            acknowledged[message.value()] = message.offset()

    stop = threading.Event()
    sent = 0

    def restart():
        for _ in range(2):
            before = len(acknowledged)
            while len(acknowledged) < before + 500 and not stop.is_set():
                stop.wait(0.01)
            broker.restart(crash=crash)
        stop.set()

    restarts = threading.Thread(target=restart)
    restarts.start()
    while not stop.is_set():
        producer.produce(topic, b"%d " % sent + b"x" * 100, on_delivery=delivered)
        sent += 1
        producer.poll(0 if sent % 50 else 0.005)
        while len(producer) > MAX_QUEUED and not stop.is_set():
            producer.poll(0.05)
    restarts.join()
    assert producer.flush(TIMEOUT_S) == 0
    assert not errors
    assert len(acknowledged) == sent
    received = families["confluent-kafka"].consume(servers, topic, 0, None, sent)
    assert [record.value for record in received] == [b"%d " % i + b"x" * 100 for i in range(sent)]
    assert {record.value: record.offset for record in received} == acknowledged
    assert tuple(families["confluent-kafka"].bounds(servers, topic, 0)) == (0, sent)


def test_a_consumer_waits_for_the_broker_to_come_back(ottla_broker_factory, families, make_records, topic):
    from confluent_kafka import Consumer, TopicPartition

    broker = ottla_broker_factory()
    servers = broker.bootstrap_servers
    family = families["confluent-kafka"]
    records = make_records(family)[:20]
    family.create_topic(servers, topic, 1, {"retention.ms": "-1"})
    family.produce(servers, topic, 0, records[:10], "lz4")
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        values = [message.value() for message in consumer.consume(10, TIMEOUT_S)]
        broker.restart(crash=True)
        family.produce(servers, topic, 0, records[10:], "lz4")
        while len(values) < 20:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            if message.error() is None:
                values.append(message.value())
    finally:
        consumer.close()
    assert values == [record.value for record in records]
