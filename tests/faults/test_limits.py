"""Few descriptors, many connections, many partitions: open connections are served whichever limit is reached."""

from __future__ import annotations

import os
import resource
import selectors
import shutil
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.app.ports import HOST
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.connection import BrokerUnreachable, Connection
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.batch import iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.testing import Broker

from ..cluster.nodes import Nodes, eventually, on_loopback

TOPIC = "wide"
API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)
MEGABYTE = 1 << 20
HONEST_S = 5.0
"""Maximum response time of an active client, with any crowd of idle ones."""

needs_prlimit = pytest.mark.skipif(shutil.which("prlimit") is None, reason="a low limit is set by prlimit")


def python_with_descriptors(folder: Path, limit: int) -> str:
    """A Python with a hard limit of `limit` open files, which the broker can't raise."""
    path = folder / f"python-{limit}"
    path.write_text(f'#!/bin/sh\nexec prlimit --nofile={limit}:{limit} -- "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return str(path)


def connect(broker: Broker, timeout_s: float = 20.0) -> Connection:
    return Connection("127.0.0.1", broker.port, client_id="test", timeout_s=timeout_s, software_version="0")


def produce(connection: Connection, topic_id: bytes, partition: int) -> ErrorCode:
    batch = bytes(build_batch([RecordData(1_700_000_000_000, b"%d" % partition, b"value")]))
    data = PartitionProduceData(index=partition, records=batch)
    topic = TopicProduceData(topic_id=topic_id, partition_data=[data])
    response = connection.request(ApiKey.PRODUCE, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]))
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


@pytest.fixture
def many_sockets() -> Iterator[None]:
    """Let this process open enough of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    if wanted < 2500:
        pytest.skip(f"this process may open only {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def answered(connection: socket.socket) -> bool:
    """Whether ApiVersions is answered on it now."""
    try:
        connection.sendall(API_VERSIONS_V0)
        return len(connection.recv(4, socket.MSG_WAITALL)) == 4
    except OSError:
        return False


@pytest.mark.promise("S8")
@needs_prlimit
def test_running_out_of_descriptors_harms_no_open_connection(tmp_path, many_sockets):
    """150 descriptors, 300 clients, 120 partitions; the files of the partitions alone exceed the limit."""
    partitions = 120
    with Broker(python=python_with_descriptors(tmp_path, 150)) as broker, ExitStack() as stack:
        early = [stack.enter_context(_closing(connect(broker))) for _ in range(10)]
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create(TOPIC, partitions)
            topic_id = cluster.topics.get(TOPIC).topic_id
        for partition in range(partitions):
            assert produce(early[partition % 10], topic_id, partition) == ErrorCode.NONE
        crowd = [stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 10)) for _ in range(300)]
        _until(lambda: "new clients wait" in broker.logs())
        # Connected clients continue, on every partition.
        for partition in range(partitions):
            assert produce(early[partition % 10], topic_id, partition) == ErrorCode.NONE
        for connection in early:
            assert connection.request(ApiKey.METADATA, MetadataRequest(topics=[])).brokers
        # New active clients are accepted too, since the crowd is idle.
        begin = time.monotonic()
        connect(broker).close()
        assert time.monotonic() - begin < HONEST_S
        for waiting in crowd:
            waiting.close()
        # All acknowledged records exist.
        with Cluster(broker.bootstrap_servers) as cluster:
            for partition in range(partitions):
                records = cluster.records.fetch(TOPIC, partition, 0).records
                assert sum(batch.records_count for batch in iter_batches(records)) == 2
        for partition in range(partitions):
            assert produce(early[partition % 10], topic_id, partition) == ErrorCode.NONE
        log = broker.logs()
        assert "Traceback" not in log
        assert "ulimit -n" in log
        assert len(log) < 20_000
        assert broker.stop() == 0


@needs_prlimit
def test_silent_connections_keep_no_node_out_of_its_cluster(tmp_path, many_sockets):
    """256 descriptors and 200 silent connections to every listener: the controller fails over, a killed broker rejoins.

    The crowd reconnects whenever it is closed.
    """
    python = python_with_descriptors(tmp_path, 256)
    places = [replace(place, python=python) for place in on_loopback(3)]
    nodes = Nodes(tmp_path, places=places)
    crowds = [Crowd(200, port) for node in nodes.nodes for port in (node.place.port, node.place.controller_port)]
    with ExitStack() as stack:
        stack.callback(nodes.close)
        nodes.start()
        client = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})
        client.create_topics([NewTopic("t", 20, 3)])["t"].result(60)
        eventually(lambda: _in_sync(client, 3), "all replicas are in sync")
        for crowd in crowds:
            stack.enter_context(crowd)
        eventually(lambda: all(crowd.returned for crowd in crowds), "each listener has closed some of them")
        for node in nodes.nodes:
            begin = time.monotonic()
            Connection(HOST, node.port, client_id="test", timeout_s=20, software_version="0").close()
            assert time.monotonic() - begin < HONEST_S
        active = int(client.list_topics(timeout=60).controller_id)
        for victim in (nodes[active], nodes[active % 3 + 1]):
            victim.kill()
            eventually(partial(_in_sync, client, 2, without=victim.node_id), "the others lead", 60)
            victim.start()
            eventually(lambda: _in_sync(client, 3), "it is in sync again", 60)
        logs = [node.log_text() for node in nodes.nodes]
        assert not any("Too many open files" in text for text in logs)
        assert not any("Traceback" in text for text in logs)


def _in_sync(client: AdminClient, count: int, *, without: int = -1) -> bool:
    """Whether each partition has this many in-sync replicas, and a leader other than the removed one."""
    try:
        found = client.list_topics("t", timeout=10).topics["t"].partitions
    except KafkaException:
        return False
    return bool(found) and all(len(part.isrs) == count and part.leader not in (-1, without) for part in found.values())


class Crowd:
    """Idle connections, reopened whenever the broker closes them."""

    def __init__(self, size: int, port: int) -> None:
        self._size = size
        self._port = port
        self.returned = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Crowd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for _ in range(self._size):
                self._connect(selector)
            while not self._ended.is_set():
                for key, _ in selector.select(0.05):
                    # No data arrives: it was closed, or the listener is down for the moment.
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    self.returned += 1
                for _ in range(self._size - len(selector.get_map())):
                    self._connect(selector)
            for key in list(selector.get_map().values()):
                key.fileobj.close()

    def _connect(self, selector: selectors.BaseSelector) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex((HOST, self._port))
        selector.register(connection, selectors.EVENT_READ)


@needs_prlimit
def test_more_partitions_than_descriptors_from_start_to_restart(tmp_path):
    """1,000 partitions under 100 descriptors: slower, but nothing fails."""
    partitions = 1000
    with Broker(python=python_with_descriptors(tmp_path, 100)) as broker:
        with Cluster(broker.bootstrap_servers, timeout_s=60) as cluster:
            cluster.topics.create(TOPIC, partitions)
            topic_id = cluster.topics.get(TOPIC).topic_id
        for crash in (False, True):
            connection = connect(broker)
            for partition in range(0, partitions, 7):
                assert produce(connection, topic_id, partition) == ErrorCode.NONE
            connection.close()
            broker.restart(crash=crash)
        with Cluster(broker.bootstrap_servers) as cluster:
            ends = cluster.records.list_offsets({(TOPIC, partition): -1 for partition in range(partitions)})
            for partition in range(partitions):
                assert ends[TOPIC, partition].offset == (2 if partition % 7 == 0 else 0)
        assert "Traceback" not in broker.logs()


class _closing:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> Connection:
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _accepts(broker: Broker) -> bool:
    try:
        connect(broker, timeout_s=1).close()
    except (KafkaError, BrokerUnreachable):
        return False
    return True


def _until(condition, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def test_a_thousand_idle_connections_and_partitions(many_sockets):
    """Figures come from bench/workloads; here only that nothing is out of proportion."""
    with Broker() as broker, ExitStack() as stack:
        empty = _resident_bytes(broker)
        with Cluster(broker.bootstrap_servers, timeout_s=60) as cluster:
            cluster.topics.create(TOPIC, 1000)
            topic_id = cluster.topics.get(TOPIC).topic_id
        with_partitions = _resident_bytes(broker)
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 20)) for _ in range(1000)]
        assert all(answered(connection) for connection in idle)
        with_connections = _resident_bytes(broker)
        assert with_partitions - empty < 120 * MEGABYTE
        assert with_connections - with_partitions < 40 * MEGABYTE
        cpu = _cpu_seconds(broker)
        begin = time.monotonic()
        one = stack.enter_context(_closing(connect(broker)))
        slowest = 0.0
        while time.monotonic() - begin < 3:
            asked = time.monotonic()
            assert one.request(ApiKey.METADATA, MetadataRequest(topics=[])).brokers
            slowest = max(slowest, time.monotonic() - asked)
            time.sleep(0.05)
        assert slowest < HONEST_S
        # Sixty small requests in three seconds; anything that walks over connections or partitions would show.
        assert _cpu_seconds(broker) - cpu < 0.6
        assert produce(one, topic_id, 999) == ErrorCode.NONE
        broker.restart(crash=True)
        with Cluster(broker.bootstrap_servers) as cluster:
            assert cluster.records.list_offsets({(TOPIC, 999): -1})[TOPIC, 999].offset == 1


def _resident_bytes(broker: Broker) -> int:
    pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _cpu_seconds(broker: Broker) -> float:
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_connection_limits_of_one_address(many_sockets):
    """max.connections.per.ip refuses at once, max.connections lets new clients wait until one leaves."""
    with Broker(configs={"max.connections.per.ip": 50}) as broker, ExitStack() as stack:
        inside = [stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 10)) for _ in range(50)]
        assert all(answered(connection) for connection in inside)
        refused = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 10))
        assert refused.recv(1) == b""
        inside.pop().close()
        _until(lambda: _accepts(broker))
        assert answered(inside[0])
    with Broker(configs={"max.connections": 50}) as broker, ExitStack() as stack:
        inside = [stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 10)) for _ in range(50)]
        assert all(answered(connection) for connection in inside)
        waiting = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 10))
        waiting.sendall(API_VERSIONS_V0)
        waiting.settimeout(0.3)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        inside.pop().close()
        waiting.settimeout(10)
        assert waiting.recv(1)
        assert answered(inside[0])
