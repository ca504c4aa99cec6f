"""The rest of the inputs over sockets into a real broker process: framing, pipelining, hang-ups, log and memory."""

from __future__ import annotations

import itertools
import random
import select
import socket
import struct
import time

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.builder import RecordData, build_batch
from ottla.testing import Broker

from .generator import (
    COMPACTED_TOPIC,
    INPUTS,
    SEED,
    TOPIC,
    TOPIC_PARTITIONS,
    Generator,
    makes_many_partitions,
    with_topic_id,
)
from .memory import high_water_bytes
from .wire import Wire

SHARE = INPUTS * 6 // 100
OPEN_CONNECTIONS = 60
MAX_GROWTH_BYTES = 150_000_000
MAX_LOG_BYTES = 400_000
MAX_ANSWER_S = 10.0


class Crowd:
    """Connections that send hostile requests, read responses, and are dropped one after another in rude ways."""

    def __init__(self, port: int, rng: random.Random) -> None:
        self._port = port
        self._rng = rng
        self._open: list[socket.socket] = []

    def send(self, request: bytes) -> None:
        """Send on one of the connections, whole, in pieces, cut short or with a wrong size in front."""
        rng = self._rng
        connection = self._choose()
        size = len(request) if rng.random() < 0.93 else rng.choice((-1, -(1 << 31), 0, 1, len(request) + 1, 1 << 27))
        data = struct.pack(">i", size) + request
        way = rng.random()
        try:
            if way < 0.8:
                connection.sendall(data)
            elif way < 0.95:
                cut = rng.randrange(len(data))
                connection.sendall(data[:cut])
                connection.sendall(data[cut:])
            else:
                connection.sendall(data[: rng.randrange(len(data))])
                self._leave(connection)
        except OSError:  # the broker has closed it, as it should
            self._leave(connection)

    def _choose(self) -> socket.socket:
        rng = self._rng
        if len(self._open) >= OPEN_CONNECTIONS:
            self._read()
        if len(self._open) < OPEN_CONNECTIONS and (not self._open or rng.random() < 0.5):
            connection = socket.create_connection(("127.0.0.1", self._port), timeout=10)
            self._open.append(connection)
            return connection
        return rng.choice(self._open)

    def _read(self) -> None:
        """Read responses, drop closed connections, and abandon a few."""
        readable, _, _ = select.select(self._open, [], [], 0)
        for connection in readable:
            try:
                if not connection.recv(1 << 20, socket.MSG_DONTWAIT):
                    self._leave(connection)
            except BlockingIOError:
                continue
            except OSError:
                self._leave(connection)
        for connection in self._rng.sample(self._open, len(self._open) // 3):
            self._leave(connection)

    def _leave(self, connection: socket.socket) -> None:
        if self._rng.random() < 0.3:  # with a reset instead of a farewell
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        self._open.remove(connection)

    def close(self) -> None:
        """Leave all."""
        while self._open:
            self._leave(self._open[-1])


def create_topics(broker: Broker) -> bytes:
    """The topics that the requests name, where they are missing; returns the id of `TOPIC`."""
    with Cluster(broker.bootstrap_servers, timeout_s=30) as cluster:
        while True:
            known = cluster.topics.all()
            try:
                if COMPACTED_TOPIC not in known:
                    cluster.topics.create(COMPACTED_TOPIC, TOPIC_PARTITIONS, configs={"cleanup.policy": "compact"})
                if TOPIC not in known:
                    cluster.topics.create(TOPIC, TOPIC_PARTITIONS)
                return cluster.topics.get(TOPIC).topic_id
            except KafkaError as error:
                # Hostile requests that are still in work create and delete the same topics.
                if error.code not in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise


def round_trip(broker: Broker, name: str) -> None:
    """A new topic takes a record and gives it back."""
    batch = bytes(build_batch([RecordData(1_700_000_000_000, b"key", b"value")]))
    with Cluster(broker.bootstrap_servers, timeout_s=30) as cluster, Wire(broker.port) as wire:
        cluster.topics.create(name, 1)
        data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)])
        produced = wire.ask(ApiKey.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]))
        assert produced.responses[0].partition_responses[0].error_code == 0
        assert cluster.records.fetch(name, 0, 0).records[61:] == batch[61:]


def seconds_to_answer(port: int) -> float:
    """Response time of ApiVersions on a new connection."""
    begin = time.monotonic()
    with Wire(port) as wire:
        wire.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    return time.monotonic() - begin


@pytest.mark.promise("S1")
@pytest.mark.timeout(600)
def test_no_bytes_harm_the_broker(fuzz_seed):
    with Broker() as broker:
        topic_id = create_topics(broker)
        round_trip(broker, "before")
        before = high_water_bytes(broker.pid)
        crowd = Crowd(broker.port, random.Random(SEED))
        for number, (_kind, request) in enumerate(itertools.islice(Generator(SEED, "sockets").requests(), SHARE)):
            if makes_many_partitions(request):
                continue
            crowd.send(with_topic_id(request, topic_id))
            if number % 100 == 0:
                assert seconds_to_answer(broker.port) < MAX_ANSWER_S, fuzz_seed
                topic_id = create_topics(broker)
        crowd.close()
        round_trip(broker, "after")
        grown = high_water_bytes(broker.pid) - before
        log = broker.logs()
        assert broker.stop() == 0
    assert grown < MAX_GROWTH_BYTES, f"{grown / 1e6:.0f} MB more; {fuzz_seed}"
    assert "Traceback" not in log, f"{fuzz_seed}: {log[-3000:]}"
    assert "CRITICAL" not in log, fuzz_seed
    assert len(log) < MAX_LOG_BYTES, fuzz_seed
