"""`ottla.Producer` against a real broker."""

from __future__ import annotations

import _thread
import itertools
import socket
import sys
import threading
from typing import Any

import pytest

from ottla import (
    ClientClosed,
    ErrorCode,
    KafkaError,
    Producer,
    ProducerFenced,
    ProducerRecord,
    SimpleConsumer,
    TransactionAborted,
)
from ottla.api import producer as producer_module
from ottla.client.admin.cluster import Cluster
from ottla.common.kafka.key_hash import hash_partition
from ottla.record.batch import iter_batches

NUMBERS = itertools.count(1)
WAIT_S = 90.0


@pytest.fixture
def topic(servers):
    """A topic of its own, with three partitions."""
    name = f"api-produced-{next(NUMBERS)}"
    with Cluster(servers) as cluster:
        cluster.topics.create(name, 3, 1)
    return name


def stored(servers, topic, isolation="read_uncommitted"):
    """All records of a topic, by partition and offset."""
    with SimpleConsumer(servers, isolation=isolation) as consumer:
        found = consumer.fetch_many(dict.fromkeys(consumer.partitions(topic), 0), max_wait_ms=0)
    return [record for _, fetched in sorted(found.items()) for record in fetched.records]


def test_a_record_is_stored_as_it_was_given(servers, topic):
    with Producer(servers) as producer:
        delivery = producer.send(
            topic, "text", key=b"\x00", headers={"h": b"1", "none": None}, partition=1, timestamp_ms=1_700_000_000_000
        )
        assert delivery.result(WAIT_S) == (topic, 1, 0)
        assert delivery.done
        producer.send(topic, None, key="tombstone", partition=2)
    first, second = stored(servers, topic)
    assert (first.value, first.key, first.timestamp_ms) == (b"text", b"\x00", 1_700_000_000_000)
    assert first.headers == (("h", b"1"), ("none", None))
    assert (second.partition, second.key, second.value) == (2, b"tombstone", None)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("\ud800", UnicodeEncodeError),
        ("a\udcff", UnicodeEncodeError),
        ("a\0b", ValueError),
        (b"a", TypeError),
        (1, TypeError),
        (None, TypeError),
    ],
)
def test_a_header_name_that_is_not_text_is_refused(servers, topic, name, error):
    """The library would end the process, or send another name."""
    with Producer(servers) as producer:
        for headers in ({name: b"1"}, [(name, b"1")], [("good", b"1"), (name, None)]):
            with pytest.raises(error):
                producer.send(topic, b"x", headers=headers)
            with pytest.raises(error):
                producer.send_record(ProducerRecord(topic, b"x", headers=list(dict(headers).items())))
        with pytest.raises(TypeError, match="tuple"):
            producer.send(topic, b"x", headers=["ab"])  # type: ignore[list-item]
        producer.send(topic, b"good", headers={"é": b"1", "": None})
    assert [(each.value, each.headers) for each in stored(servers, topic)] == [(b"good", (("é", b"1"), ("", None)))]


def test_the_timestamp_zero_is_refused_and_not_taken_as_now(servers, topic):
    with Producer(servers) as producer:
        for key in (None, b"k"):
            record: ProducerRecord[Any, Any] = ProducerRecord(topic, b"x", key, timestamp_ms=0)
            with pytest.raises(KafkaError, match="timestamp 0") as caught:
                producer.send_record(record)
            assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
        producer.send(topic, b"one", timestamp_ms=1)
    assert [(each.value, each.timestamp_ms) for each in stored(servers, topic)] == [(b"one", 1)]


def test_records_of_a_moment_share_batches(servers, topic):
    with Producer(servers, {"linger.ms": 1000}) as producer:
        deliveries = producer.send_batch(topic, [b"%d" % number for number in range(500)], key="k")
        producer.flush()
        assert all(each.done for each in deliveries)
    (partition,) = {each.result().partition for each in deliveries}
    assert [each.result().offset for each in deliveries] == list(range(500))
    with Cluster(servers) as cluster:
        batches = list(iter_batches(cluster.records.fetch(topic, partition, 0, max_wait_ms=0).records))
    assert sum(batch.records_count for batch in batches) == 500
    assert len(batches) < 10


def test_a_batch_that_is_larger_than_the_queue_keeps_its_order(servers, topic):
    with Producer(servers, {"queue.buffering.max.messages": 7, "linger.ms": 0}) as producer:
        deliveries = producer.send_batch(topic, map(str, range(250)), key="k")
        assert [each.result(WAIT_S).offset for each in deliveries] == list(range(250))
    assert [record.value for record in stored(servers, topic)] == [b"%d" % number for number in range(250)]


def test_serializers_make_the_bytes_and_partitioners_see_them(servers, topic):
    seen = []

    def decimal(number: int) -> bytes:
        return b"%d" % number

    def last(key, count):
        seen.append((key, count))
        return count - 1

    with Producer(servers, key_serializer=str.encode, value_serializer=decimal, partitioner=last) as (producer):
        assert producer.send(topic, 7, "k").result(WAIT_S).partition == 2
        producer.send(topic, None)
    assert seen == [(b"k", 3), (None, 3)]
    assert [record.value for record in stored(servers, topic)] == [b"7", None]


def test_keys_go_where_apache_kafka_puts_them(servers, topic):
    keys = [f"key-{number}" for number in range(40)]
    with Producer(servers) as producer:
        deliveries = [producer.send(topic, "v", key) for key in keys]
        found = [delivery.result(WAIT_S).partition for delivery in deliveries]
    assert found == [hash_partition(key.encode(), 3) for key in keys]
    assert len(set(found)) == 3


@pytest.mark.parametrize(("name", "partitions"), [("random", {0, 1, 2}), ("sticky", None)])
def test_partitioners_by_name_pass_over_the_key(servers, topic, name, partitions):
    with Producer(servers, partitioner=name) as producer:
        deliveries = producer.send_batch(topic, ["v"] * 60, key="always the same")
        found = {delivery.result(WAIT_S).partition for delivery in deliveries}
    assert found == partitions if partitions else len(found) < 3


def test_missing_partition_is_reported(servers, topic):
    wrong = Producer(servers, partitioner=lambda key, count: count)
    with wrong, pytest.raises(KafkaError, match="chose partition 3 of topic"):
        wrong.send(topic, "v")
    heard = []
    with Producer(servers) as reporting:
        reporting.send(topic, "v", partition=7, on_delivery=heard.append)
    assert heard[0].error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    producer = Producer(servers)
    producer.send(topic, "v", partition=0).result(WAIT_S)  # from now on the library knows it, and fails at once
    failed = producer.send(topic, "v", partition=8)
    with pytest.raises(KafkaError) as raised:
        producer.close()
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError, match="was not delivered"):
        failed.result()


def test_too_large_record_is_refused_at_once(servers, topic):
    with Producer(servers, {"max.request.size": 1000}) as producer, pytest.raises(KafkaError) as raised:
        producer.send(topic, bytes(2000))
    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("buffer", [bytearray(b"v"), memoryview(b"v"), memoryview(bytearray(b"v"))])
def test_a_buffer_that_may_change_while_it_is_sent_is_refused(servers, topic, buffer):
    """The class of CVE-2026-35554: a buffer is used again while a request still carries it."""
    with Producer(servers) as producer, pytest.raises(TypeError, match="read-only"):
        producer.send(topic, buffer)


class Tracing:
    """Adds a header to each record, and keeps what became of it."""

    def __init__(self):
        self.reported = []

    def on_send(self, record):
        record.headers = (*record.headers, ("trace", b"1"))
        return record

    def on_acknowledgement(self, delivery):
        self.reported.append(delivery.result().offset)
        raise RuntimeError("its failure is not a failure of the record")


def test_interceptors_see_records_on_their_way_out_and_back(servers, topic):
    tracing = Tracing()
    with Producer(servers, interceptors=[tracing]) as producer:
        producer.send(topic, "a", partition=0)
        producer.send_record(ProducerRecord(topic, "b", partition=0))
        producer.send_batch(topic, ["c"], key="k")
    assert [record.headers for record in stored(servers, topic)] == [(("trace", b"1"),)] * 3
    assert len(tracing.reported) == 3


class Forgetful(Tracing):
    """Lacks its last line."""

    def on_send(self, record):
        super().on_send(record)


def test_an_interceptor_that_returns_nothing_takes_nothing_away(servers, topic, caplog):
    with Producer(servers, interceptors=[Forgetful()]) as producer:
        producer.send(topic, "a", partition=0)
    assert [record.value for record in stored(servers, topic)] == [b"a"]
    assert "it returned NoneType, not ProducerRecord" in caplog.text


@pytest.mark.parametrize("value", ["one", b"one"])
def test_one_value_is_not_a_batch(servers, topic, value):
    with Producer(servers) as producer, pytest.raises(KafkaError, match="needs a list of values"):
        producer.send_batch(topic, value)


def test_callbacks_may_come_from_no_call_of_the_caller(servers, topic):
    heard = threading.Event()
    with Producer(servers) as producer:
        producer.send(topic, "v", on_delivery=lambda delivery: heard.set())
        assert heard.wait(WAIT_S)


@pytest.mark.parametrize("what", ["flush", "close"])
def test_a_callback_that_would_wait_for_itself_is_refused(servers, topic, what):
    """The waiting thread is the producer's own, or in a flush."""
    refused = []
    by_thread = threading.Event()

    def wait(delivery):
        with pytest.raises(KafkaError, match=f"{what} waits for all callbacks") as raised:
            getattr(producer, what)()
        refused.append(raised.value.code)
        by_thread.set()

    with Producer(servers) as producer:
        producer.send(topic, "0", on_delivery=wait)
        assert by_thread.wait(WAIT_S)
        producer.send(topic, "1", on_delivery=wait)
        producer.flush()
    assert refused == [ErrorCode.INVALID_REQUEST] * 2
    assert len(stored(servers, topic)) == 2


def test_callback_that_exits_ends_no_producer_thread(servers, topic):
    with Producer(servers) as producer:
        left = threading.Event()

        def leave(delivery):
            left.set()
            sys.exit("from a callback")

        producer.send(topic, "0", on_delivery=leave)
        assert left.wait(WAIT_S)
        assert producer.send(topic, "1").result(WAIT_S)


def test_a_closed_producer_says_so(servers, topic):
    producer = Producer(servers)
    producer.send(topic, "v")
    producer.close()
    producer.close()
    for use in (lambda: producer.send(topic, "v"), producer.flush, producer.transaction):
        with pytest.raises(ClientClosed, match="this producer is closed"):
            use()
    assert len(stored(servers, topic)) == 1


def test_ctrl_c_ends_a_producer_without_its_cluster(monkeypatch):
    monkeypatch.setattr(producer_module, "INTERRUPTED_FLUSH_S", 0.2)
    with socket.socket() as closed_address:
        closed_address.bind(("127.0.0.1", 0))
        producer = Producer(f"127.0.0.1:{closed_address.getsockname()[1]}")
        delivery = producer.send("t", "v")
        with pytest.raises(KeyboardInterrupt), producer:
            raise KeyboardInterrupt
    with pytest.raises(KafkaError) as raised:
        delivery.result(0)
    assert raised.value.code == ErrorCode.OPERATION_NOT_ATTEMPTED


def test_ctrl_c_during_close_fails_pending_records():
    with socket.socket() as closed_address:
        closed_address.bind(("127.0.0.1", 0))
        producer = Producer(f"127.0.0.1:{closed_address.getsockname()[1]}")
        (delivery,) = producer.send_batch("t", ["v"])
        reported = []

        def wait():
            with pytest.raises(KafkaError) as raised:
                delivery.result()
            reported.append(raised.value.code)

        def interrupt():
            while not producer._flushing:
                threading.Event().wait(0.01)
            _thread.interrupt_main()

        waiting = [threading.Thread(target=each, daemon=True) for each in (wait, interrupt)]
        for each in waiting:
            each.start()
        with pytest.raises(KeyboardInterrupt):
            producer.close()
        for each in waiting:
            each.join(WAIT_S)
    assert reported == [ErrorCode.OPERATION_NOT_ATTEMPTED]


def test_full_queue_is_awaited_and_reported():
    with socket.socket() as closed_address:
        closed_address.bind(("127.0.0.1", 0))
        config = {"queue.buffering.max.messages": 2, "max.block.ms": 150, "delivery.timeout.ms": 2000, "linger.ms": 0}
        producer = Producer(f"127.0.0.1:{closed_address.getsockname()[1]}", config)
        deliveries = producer.send_batch("t", ["a", "b"])
        with pytest.raises(KafkaError, match="stays full"):
            producer.send("t", "c")
        with pytest.raises(KafkaError, match="and 1 others") as raised:
            producer.close()
    assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert all(delivery.error is not None for delivery in deliveries)


# Transactions


@pytest.fixture
def transactional(servers):
    with Producer(servers, {"transactional.id": f"api-{next(NUMBERS)}"}) as producer:
        yield producer


def test_a_block_commits_or_aborts(servers, topic, transactional):
    with transactional.transaction():
        transactional.send(topic, "committed", partition=0)

    def fail():
        with transactional.transaction():
            transactional.send(topic, "aborted", partition=0)
            transactional.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with transactional.transaction():
        transactional.send(topic, "committed too", partition=0)
    seen = [record.value for record in stored(servers, topic, "read_committed")]
    assert seen == [b"committed", b"committed too"]


def test_outside_of_a_block_nothing_is_sent(topic, transactional):
    with pytest.raises(KafkaError, match="with producer") as raised:
        transactional.send(topic, "v")
    assert raised.value.code == ErrorCode.INVALID_TXN_STATE
    with transactional.transaction(), pytest.raises(KafkaError, match="open already"), transactional.transaction():
        pass


def test_what_was_committed_is_not_committed_again(topic, transactional):
    with transactional.transaction() as transaction:
        transactional.send(topic, "v")
    with pytest.raises(KafkaError, match="without an open transaction") as raised:
        transaction.__exit__(None, None, None)
    assert raised.value.code == ErrorCode.INVALID_TXN_STATE
    with transactional.transaction():
        transactional.send(topic, "v")


@pytest.mark.parametrize("known", [False, True])
def test_failed_record_aborts_transaction_producer_continues(servers, topic, transactional, known):
    before = [b"before it"] if known else []
    for value in before:
        with transactional.transaction():
            transactional.send(topic, value, partition=0)

    def fail():
        with transactional.transaction():
            transactional.send(topic, "beside it", partition=0)
            transactional.send(topic, "v", partition=9)

    with pytest.raises(TransactionAborted):
        fail()
    with transactional.transaction():
        transactional.send(topic, "after it", partition=0)
    assert [record.value for record in stored(servers, topic, "read_committed")] == [*before, b"after it"]


def test_the_younger_of_two_producers_fences_the_other(servers, topic):
    config = {"transactional.id": f"api-{next(NUMBERS)}"}
    with Producer(servers, config) as old, Producer(servers, config) as young:
        with pytest.raises(ProducerFenced), old.transaction():
            old.send(topic, "zombie", partition=0)
        with young.transaction():
            young.send(topic, "living", partition=0)
    assert [record.value for record in stored(servers, topic, "read_committed")] == [b"living"]


def test_transaction_requires_an_id(servers):
    with Producer(servers) as producer, pytest.raises(KafkaError, match=r"transactional\.id") as raised:
        producer.transaction()
    assert raised.value.code == ErrorCode.INVALID_CONFIG
