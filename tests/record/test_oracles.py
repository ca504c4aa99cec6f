"""Batches against three independent implementations: kafka-python, aiokafka and librdkafka.

librdkafka is tested through its in-process mock broker, which stores a producer's batches and returns them to
consumers: so its own batches come to us unchanged, and ours go through its consumer, without a broker of ours.
"""

from __future__ import annotations

import socket
import struct
import time

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.record.default_records import DefaultRecordBatchBuilder as PythonBuilder
from kafka.record.memory_records import MemoryRecords as PythonRecords

from ottla.record.batch import HEADER_SIZE, BatchView, iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.record.compression import CODEC_NAMES
from ottla.record.control import ControlRecordType, control_record_type, end_transaction_marker
from ottla.record.validate import check_batch
from ottla.record.walk import walk_records

RECORDS = [
    RecordData(1_700_000_000_000, b"key", b"value", (("h", b"x"), ("h", None), ("schlüssel", b""))),
    RecordData(1_699_999_999_990, None, b"earlier than the first", ()),
    RecordData(1_700_000_123_456, b"", None, (("only", b"header"),)),
    RecordData(1_700_000_000_001, b"k" * 300, b"v" * 20_000, ()),
    RecordData(1_700_000_000_002, None, None, ()),
] + [RecordData(1_700_000_001_000 + i, b"%d" % (i % 7), b"page view %d" % i, ()) for i in range(200)]

AIOKAFKA = [pytest.param(AioBuilder, AioRecords, codec, id=f"aiokafka-{codec}") for codec in CODEC_NAMES]
KAFKA_PYTHON = [
    pytest.param(PythonBuilder, PythonRecords, codec, id=f"kafka-python-{codec}") for codec in CODEC_NAMES[:2]
]
"""kafka-python needs further packages for the other codecs."""


def of_view(view):
    return [RecordData(r.timestamp, r.key, r.value, r.headers) for r in view.records()]


def plain(value):
    return None if value is None else bytes(value)


@pytest.mark.parametrize(("builder", "reader", "codec"), AIOKAFKA + KAFKA_PYTHON)
def test_python_clients_read_what_we_build(builder, reader, codec):
    batch = bytes(build_batch(RECORDS, base_offset=500, compression=codec, leader_epoch=3))
    foreign = reader(batch).next_batch()
    assert foreign.validate_crc()
    assert foreign.base_offset == 500
    read = list(foreign)
    assert [r.offset for r in read] == list(range(500, 500 + len(RECORDS)))
    assert [
        RecordData(r.timestamp, plain(r.key), plain(r.value), tuple((name, plain(value)) for name, value in r.headers))
        for r in read
    ] == RECORDS


@pytest.mark.parametrize(("builder", "reader", "codec"), AIOKAFKA + KAFKA_PYTHON)
def test_we_read_what_python_clients_build(builder, reader, codec):
    codec_id = CODEC_NAMES.index(codec)
    maker = builder(2, codec_id, 1, 77, 3, 41, 1 << 20)
    for offset, r in enumerate(RECORDS):
        assert maker.append(offset, r.timestamp_ms, r.key, r.value, list(r.headers)) is not None
    batch = bytearray(maker.build())
    check_batch(batch, memoryview(batch), 0, len(batch))
    [view] = iter_batches(batch)
    assert (view.producer_id, view.producer_epoch, view.base_sequence, view.is_transactional) == (77, 3, 41, True)
    assert (view.compression, view.max_timestamp) == (codec, 1_700_000_123_456)
    assert of_view(view) == RECORDS
    ours = build_batch(
        RECORDS, compression=codec, producer_id=77, producer_epoch=3, base_sequence=41, is_transactional=True
    )
    if codec == "none":
        # Both may set any leader epoch, which the CRC does not cover.
        assert ours[:12] + ours[16:] == batch[:12] + batch[16:]
        walk_records(batch, HEADER_SIZE, len(batch), len(RECORDS))


@pytest.mark.parametrize("commit", [True, False])
def test_python_clients_read_our_transaction_markers(commit):
    marker = bytes(
        end_transaction_marker(commit=commit, timestamp_ms=5, producer_id=1, producer_epoch=0, coordinator_epoch=0)
    )
    foreign = PythonRecords(marker).next_batch()
    assert foreign.is_control_batch
    assert foreign.is_transactional
    [record] = list(foreign)
    assert (record.commit, record.abort) == (commit, not commit)
    [view] = iter_batches(marker)
    expected = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    assert control_record_type(next(view.records())) is expected


class MockCluster:
    """librdkafka's mock broker, and a socket to it with a minimal client."""

    TOPIC = "oracle"

    def __init__(self) -> None:
        # The producer owns the mock cluster: it lives as long as this object.
        self.owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        [broker] = self.owner.list_topics(timeout=10).brokers.values()
        self.address = f"{broker.host}:{broker.port}"
        self._socket = socket.create_connection((broker.host, broker.port), timeout=10)

    def call(self, api_key: int, version: int, body: bytes) -> bytes:
        frame = struct.pack(">hhih", api_key, version, 1, -1) + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def fetch(self, offset: int) -> bytes:
        """Fetch the batch at `offset` of partition 0 by Fetch v4; waits up to ten seconds for it."""
        name = struct.pack(">h", len(self.TOPIC)) + self.TOPIC.encode()
        partition = struct.pack(">iqi", 0, offset, 1 << 26)
        body = struct.pack(">iiiib", -1, 10_000, 1, 1 << 26, 0) + struct.pack(">i", 1) + name + struct.pack(">i", 1)
        answer = self.call(1, 4, body + partition)
        at = 4 + 4 + 4 + len(name) + 4
        _, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
        assert error == 0
        at += 26 + 16 * max(0, aborted)
        (size,) = struct.unpack_from(">i", answer, at)
        return answer[at + 4 : at + 4 + size]

    def produce(self, batch: bytes) -> None:
        """Produce one batch to partition 0, by Produce v7."""
        name = struct.pack(">h", len(self.TOPIC)) + self.TOPIC.encode()
        body = struct.pack(">hhii", -1, -1, 5000, 1) + name + struct.pack(">iii", 1, 0, len(batch)) + batch
        answer = self.call(0, 7, body)
        _, error = struct.unpack_from(">ih", answer, 4 + 4 + len(name) + 4)
        assert error == 0

    def close(self) -> None:
        self._socket.close()

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            assert piece
            data += piece
        return data


@pytest.fixture
def mock_cluster():
    cluster = MockCluster()
    yield cluster
    cluster.close()


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_we_read_what_librdkafka_builds(mock_cluster, codec):
    # Usually one batch; messages queued before the producer knew the partition's leader may be in another one.
    producer = Producer(
        {"bootstrap.servers": mock_cluster.address, "compression.type": codec, "linger.ms": 10_000, "log_level": 0}
    )
    for r in RECORDS:
        producer.produce(
            mock_cluster.TOPIC, r.value, r.key, partition=0, timestamp=r.timestamp_ms, headers=list(r.headers)
        )
    assert producer.flush(20) == 0
    views: list[BatchView] = []
    while sum(view.records_count for view in views) < len(RECORDS):
        stored = bytearray(mock_cluster.fetch(views[-1].next_offset if views else 0))
        (view,) = iter_batches(stored)
        check_batch(stored, memoryview(stored), view.position, view.end)
        body = view.body()
        walk_records(body, 0, len(body), view.records_count)
        views.append(view)
    assert codec in {view.compression for view in views}
    assert [record for view in views for record in of_view(view)] == RECORDS


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_librdkafka_reads_what_we_build(mock_cluster, codec):
    mock_cluster.owner.list_topics(mock_cluster.TOPIC, timeout=10)
    mock_cluster.produce(bytes(build_batch(RECORDS, compression=codec)))
    consumer = Consumer(
        {"bootstrap.servers": mock_cluster.address, "group.id": "oracle", "check.crcs": True, "log_level": 0}
    )
    consumer.assign([TopicPartition(mock_cluster.TOPIC, 0, 0)])
    read = []
    give_up = time.monotonic() + 20
    while len(read) < len(RECORDS) and time.monotonic() < give_up:
        for message in consumer.consume(len(RECORDS), timeout=0.2):
            assert message.error() is None
            read.append(message)
    consumer.close()
    assert [RecordData(m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ())) for m in read] == RECORDS
