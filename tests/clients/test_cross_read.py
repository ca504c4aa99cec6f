"""Every client reads the records of every client: from the beginning, from an offset, from a timestamp; and the
transferred bytes are the sent ones."""

from __future__ import annotations

import socket
import threading

import pytest

from ottla.app.ports import HOST, free_ports
from ottla.client.admin.cluster import Cluster
from ottla.record.batch import MAGIC_POSITION, iter_batches

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def check(received, sent, offsets):
    assert [record.offset for record in received] == offsets
    for got, record in zip(received, sent, strict=True):
        assert (got.key, got.value) == (record.key, record.value)
        assert got.headers == record.headers
        assert got.timestamp_ms == record.timestamp_ms


@pytest.mark.parametrize("codec", CODECS)
def test_every_client_reads_what_one_produced(ottla_broker, families, producer, make_records, topic, codec):
    servers = ottla_broker.bootstrap_servers
    producer.create_topic(servers, topic, 2, {"retention.ms": "-1"})
    records = make_records(producer)
    offsets = producer.produce(servers, topic, 1, records, codec)
    assert offsets == list(range(len(records)))
    with Cluster(servers) as cluster:
        batches = list(iter_batches(cluster.records.fetch(topic, 1, 0).records))
    assert {batch.compression for batch in batches} == {codec}
    assert all(batch.crc_matches() for batch in batches)
    for name, consumer in families.items():
        check(consumer.consume(servers, topic, 1, None, len(records)), records, offsets)
        middle = len(records) // 2
        check(consumer.consume(servers, topic, 1, middle, len(records) - middle), records[middle:], offsets[middle:])
        assert tuple(consumer.bounds(servers, topic, 1)) == (0, len(records)), name
        assert tuple(consumer.bounds(servers, topic, 0)) == (0, 0), name


def test_offsets_by_timestamp(ottla_broker, family, families, make_records, topic):
    servers = ottla_broker.bootstrap_servers
    producer = families["confluent-kafka"]
    producer.create_topic(servers, topic, 1, {"retention.ms": "-1"})
    records = make_records(producer)
    for start in range(0, len(records), 40):
        producer.produce(servers, topic, 0, records[start : start + 40], "lz4" if start % 80 else "none")
    for index in (0, 1, 39, 40, 77, len(records) - 1):
        timestamp = records[index].timestamp_ms
        assert family.offset_for_time(servers, topic, 0, timestamp) == index
        assert family.offset_for_time(servers, topic, 0, timestamp - 9) == index
    assert family.offset_for_time(servers, topic, 0, 0) == 0
    assert family.offset_for_time(servers, topic, 0, records[-1].timestamp_ms + 1) is None
    start = family.offset_for_time(servers, topic, 0, records[100].timestamp_ms)
    check(family.consume(servers, topic, 0, start, len(records) - 100), records[100:], list(range(100, len(records))))


def test_clients_append_to_one_partition_in_turns(ottla_broker, families, make_records, topic):
    servers = ottla_broker.bootstrap_servers
    families["confluent-kafka"].create_topic(servers, topic, 1, {})
    sent = []
    for turn, codec in enumerate(CODECS):
        for family in families.values():
            part = make_records(family)[turn * 10 : turn * 10 + 10]
            assert family.produce(servers, topic, 0, part, codec)[0] == len(sent)
            sent += part
    for family in families.values():
        check(family.consume(servers, topic, 0, None, len(sent)), sent, list(range(len(sent))))


def test_topics_are_created_by_producing(ottla_broker, family, make_records, topic):
    servers = ottla_broker.bootstrap_servers
    assert family.produce(servers, topic, 0, make_records(family)[:3], "none") == [0, 1, 2]


class Tap:
    """A TCP relay in front of the broker that keeps what clients sent."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.target: tuple[str, int] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            assert self.target is not None
            server = socket.create_connection(self.target)
            threading.Thread(target=self._pump, args=(client, server, self.sent), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, bytearray()), daemon=True).start()

    @staticmethod
    def _pump(source, target, copy):
        with source:
            try:
                while data := source.recv(65536):
                    copy += data
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)
            except OSError:
                return

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def tap():
    tap = Tap()
    yield tap
    tap.close()


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_stored_as_they_were_sent(ottla_broker_factory, tap, producer, make_records, topic, codec):
    """The same bytes, all but base offset and leader epoch, which the broker assigns."""
    (port,) = free_ports(1)
    tap.target = HOST, port
    ottla_broker_factory(port=port, configs={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{tap.port}"})
    servers = f"127.0.0.1:{tap.port}"
    producer.create_topic(servers, topic, 1, {})
    records = make_records(producer)
    producer.produce(servers, topic, 0, records, codec)
    with Cluster(servers) as cluster:
        fetched = cluster.records.fetch(topic, 0, 0).records
    batches = list(iter_batches(fetched))
    assert batches[-1].next_offset == len(records)
    for batch in batches:
        assert batch.to_bytes()[MAGIC_POSITION:] in tap.sent
