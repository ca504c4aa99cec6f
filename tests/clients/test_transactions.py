"""Transactions of third-party clients: atomic for read_committed consumers, and one epoch at a time.

OTTLA_TEST_BOOTSTRAP=host:port runs them against that broker instead, to check them with Apache Kafka.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from transactional import PRODUCERS, READERS, Fenced, TransactionalProducer

NUMBERS = itertools.count(time.time_ns() // 1_000_000)
MakeProducer = Callable[[str, str], TransactionalProducer]


@pytest.fixture(scope="session")
def servers(request) -> str:
    elsewhere = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    return elsewhere or request.getfixturevalue("ottla_broker").bootstrap_servers


@pytest.fixture
def topic(servers) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"transactions-{next(NUMBERS)}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


@pytest.fixture
def make_producer(servers) -> Iterator[MakeProducer]:
    with ExitStack() as stack:

        def make(library: str, transactional_id: str) -> TransactionalProducer:
            producer: Any = PRODUCERS[library](servers, transactional_id)
            stack.callback(producer.close)
            return producer

        yield make


def committed_offset(servers: str, group: str, topic: str) -> int:
    """As seen by a reader that waits for the end of transactions."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "isolation.level": "read_committed"})
    [found] = consumer.committed([TopicPartition(topic, 0)], 30)
    consumer.close()
    return found.offset


@pytest.mark.parametrize("library", PRODUCERS)
def test_commit_and_abort(servers, topic, make_producer, library):
    producer = make_producer(library, f"id-{topic}")
    for number, ends in enumerate((producer.abort, producer.commit, producer.abort, producer.abort, producer.commit)):
        producer.begin()
        producer.send(topic, [b"%d.%d" % (number, each) for each in range(3)])
        ends()
    producer.begin()
    producer.send(topic, [b"last"])
    producer.commit()
    wanted = [b"1.0", b"1.1", b"1.2", b"4.0", b"4.1", b"4.2", b"last"]
    everything = [b"%d.%d" % (number, each) for number in range(5) for each in range(3)] + [b"last"]
    for reader in READERS.values():
        assert reader(servers, topic, "read_committed", len(wanted)) == wanted
        assert reader(servers, topic, "read_uncommitted", len(everything)) == everything


@pytest.mark.parametrize("library", PRODUCERS)
def test_an_empty_transaction(servers, topic, make_producer, library):
    producer = make_producer(library, f"id-{topic}")
    for ends in (producer.commit, producer.abort, producer.abort, producer.commit):
        producer.begin()
        ends()
    producer.begin()
    producer.send(topic, [b"after"])
    producer.commit()
    assert READERS[library](servers, topic, "read_committed", 1) == [b"after"]


def send_late(zombie: TransactionalProducer, topic: str) -> None:
    zombie.send(topic, [b"late"])
    zombie.commit()


def send_offset_late(zombie: TransactionalProducer, topic: str) -> None:
    zombie.send_offset(topic, 7, f"group-{topic}")
    zombie.commit()


def commit_late(zombie: TransactionalProducer, _: str) -> None:
    zombie.commit()


# Not here: kafka-python 3.0 requests the next epoch after a refused send, as if it were not a zombie. Apache Kafka
# treats that as a repeated InitProducerId of the successor, and answers both alike.
LATE = [
    (library, late)
    for library in PRODUCERS
    for late in (send_late, send_offset_late, commit_late)
    if (library, late) != ("kafka-python", send_late)
]


@pytest.mark.parametrize(("library", "late"), LATE)
def test_a_zombie_is_fenced(servers, topic, make_producer, library, late):
    zombie = make_producer(library, f"id-{topic}")
    zombie.begin()
    zombie.send(topic, [b"of the zombie"])
    successor = make_producer(library, f"id-{topic}")
    successor.begin()
    successor.send(topic, [b"of the successor"])
    with pytest.raises(Fenced):
        late(zombie, topic)
    successor.send(topic, [b"and more"])
    successor.commit()
    successor.begin()
    successor.send(topic, [b"the next"])
    successor.commit()
    wanted = [b"of the successor", b"and more", b"the next"]
    assert READERS[library](servers, topic, "read_committed", 3) == wanted
    assert committed_offset(servers, f"group-{topic}", topic) < 0


@pytest.mark.promise("T12")
@pytest.mark.parametrize("library", PRODUCERS)
def test_offsets_count_once_they_are_committed(servers, topic, make_producer, library):
    producer = make_producer(library, f"id-{topic}")
    group = f"group-{topic}"
    for offset, ends, expected in ((3, producer.abort, None), (5, producer.commit, 5), (9, producer.abort, 5)):
        producer.begin()
        producer.send(topic, [b"%d" % offset])
        producer.send_offset(topic, offset, group)
        ends()
        found = committed_offset(servers, group, topic)
        assert found == expected if expected is not None else found < 0


def test_families_follow_each_other_under_one_id(servers, topic, make_producer):
    """Each takes over the transactional id of the previous one, which aborts the open transaction."""
    for library in [*PRODUCERS, *PRODUCERS]:
        producer = make_producer(library, f"id-{topic}")
        producer.begin()
        producer.send(topic, [library.encode()])
        producer.commit()
        producer.begin()
        producer.send(topic, [b"left open"])
    last = make_producer("confluent-kafka", f"id-{topic}")
    last.begin()
    last.send(topic, [b"last"])
    last.commit()
    wanted = [library.encode() for library in [*PRODUCERS, *PRODUCERS]] + [b"last"]
    for reader in READERS.values():
        assert reader(servers, topic, "read_committed", len(wanted)) == wanted
