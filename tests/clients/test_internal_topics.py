"""Records that clients write to internal topics as `__admin_client`: none stops a partition of a coordinator."""

from __future__ import annotations

import re

import pytest

TIMEOUT_S = 60
BAD_RECORDS = 2_000
"""Far more than the log may name one by one."""
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
ONE_PARTITION = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


def produce(servers: str, topic: str, records, client_id: str = "__admin_client") -> list:
    """Send to partition 0 and return the errors."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "client.id": client_id, "log_level": 0, "linger.ms": 50})
    errors = []
    for key, value in records:
        producer.produce(
            topic,
            key=key,
            value=value,
            partition=0,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    return errors


def commit(servers: str, topic: str, group: str, offset: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(servers: str, topic: str, group: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    (place,) = consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    consumer.close()
    return place.offset


def transact(servers: str, topic: str, transactional_id: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    producer.commit_transaction(TIMEOUT_S)


def test_bad_internal_records_stop_no_coordinator(ottla_broker_factory, families, topic):
    broker = ottla_broker_factory(configs=ONE_PARTITION)
    servers = broker.bootstrap_servers
    families["confluent-kafka"].create_topic(servers, topic, 1, {})
    commit(servers, topic, "g", 42)
    for name in ("spoilt", "other"):
        transact(servers, topic, name)
    bad = [(b"", b""), (b"\0", b"x"), (b"\0\1\0\1g", b"\0\4"), (b"\0\2\0\2\xff\xff", b"\0\3"), (b"\x7f\0new", b"")]
    assert not produce(servers, OFFSETS, bad + [(b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\4trailing")] * BAD_RECORDS)
    assert not produce(servers, TRANSACTIONS, [*bad, (b"\0\0\0\6spoilt", b"\0\x01nonsense")])
    broker.restart()
    assert committed(servers, topic, "g") == 42
    commit(servers, topic, "g", 43)
    for name in ("spoilt", "other", "new"):
        transact(servers, topic, name)
    broker.restart(crash=True)
    assert committed(servers, topic, "g") == 43
    lines = re.findall(r"ERROR.* skipping the unreadable record at offset \d+", broker.logs())
    assert 2 <= len(lines) <= 100


@pytest.mark.parametrize("name", [OFFSETS, TRANSACTIONS])
def test_other_clients_may_not_write_internal_topics(ottla_broker_factory, families, topic, name):
    from confluent_kafka import KafkaError

    broker = ottla_broker_factory(configs=ONE_PARTITION)
    servers = broker.bootstrap_servers
    families["confluent-kafka"].create_topic(servers, topic, 1, {})
    commit(servers, topic, "g", 1)
    transact(servers, topic, "t")
    (error,) = produce(servers, name, [(b"k", b"v")], "other")
    assert error.code() == KafkaError.TOPIC_EXCEPTION
