"""A full disk: appends fail with an error code, reads continue, and the broker recovers once there is space again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.batch import iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.testing import Broker, BrokerFailure

from .small_disk import MEGABYTE, SmallDisk, needs_root

pytestmark = [pytest.mark.root, needs_root]

TOPIC = "filling"
VALUE = b"v" * 50_000
RECOVERY_S = 20.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path, 24 * MEGABYTE) as small:
        yield small


@pytest.fixture
def broker(disk: SmallDisk) -> Iterator[Broker]:
    running = Broker(data_dir=disk.path / "data", python=disk.python)
    running.start()
    with Cluster(running.bootstrap_servers) as cluster:
        cluster.topics.create(TOPIC, 2)
    yield running
    running.close(check=False)


class Writer:
    """Sends one record per request and stores acknowledged ones: offset to number, for each partition."""

    def __init__(self, broker: Broker, topic: str = TOPIC) -> None:
        self._broker = broker
        self._number = 0
        self.acknowledged: list[dict[int, int]] = [{}, {}]
        with Cluster(broker.bootstrap_servers) as cluster:
            self._topic_id = cluster.topics.get(topic).topic_id

    def send(self, partition: int = 0) -> ErrorCode:
        self._number += 1
        batch = build_batch([RecordData(1_700_000_000_000, b"%d" % self._number, VALUE)])
        data = TopicProduceData(
            topic_id=self._topic_id, partition_data=[PartitionProduceData(index=partition, records=bytes(batch))]
        )
        connection = Connection("127.0.0.1", self._broker.port, client_id="t", timeout_s=20, software_version="0")
        try:
            response = connection.request(ApiKey.PRODUCE, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]))
        finally:
            connection.close()
        result = response.responses[0].partition_responses[0]
        if result.error_code == ErrorCode.NONE:
            assert result.base_offset not in self.acknowledged[partition]
            self.acknowledged[partition][result.base_offset] = self._number
        return ErrorCode(result.error_code)

    def check(self) -> None:
        """All acknowledged records exist, and no others."""
        with Cluster(self._broker.bootstrap_servers) as cluster:
            for partition, promised in enumerate(self.acknowledged):
                end = cluster.records.list_offsets({(TOPIC, partition): -1})[TOPIC, partition].offset
                found: dict[int, int] = {}
                while len(found) < end:
                    for batch in iter_batches(cluster.records.fetch(TOPIC, partition, len(found)).records):
                        assert batch.crc_matches()
                        for record in batch.records():
                            assert record.value == VALUE
                            found[record.offset] = int(record.key or b"")
                assert found == promised


def fill_up(disk: SmallDisk, writer: Writer) -> None:
    """From half full to full, the last bytes by the broker itself."""
    while disk.free_bytes > 12 * MEGABYTE:
        assert writer.send() == ErrorCode.NONE
    disk.fill()
    refusals = 0
    while refusals < 20:
        code = writer.send(refusals % 2)
        assert code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        refusals += code != ErrorCode.NONE


def create_topic(broker: Broker, name: str) -> ErrorCode:
    connection = Connection("127.0.0.1", broker.port, client_id="t", timeout_s=20, software_version="0")
    try:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        response = connection.request(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        return ErrorCode(response.topics[0].error_code)
    finally:
        connection.close()


def until_served(attempt) -> None:
    """`attempt` answers NONE within the time of a recovery."""
    deadline = time.monotonic() + RECOVERY_S
    code = attempt()
    while code != ErrorCode.NONE:
        assert time.monotonic() < deadline, f"still {code.name} after {RECOVERY_S} s with space on the disk"
        code = attempt()


@pytest.mark.promise("D8")
def test_full_disk_fails_appends_and_serves_reads(disk, broker):
    writer = Writer(broker)
    fill_up(disk, writer)
    # Reads, metadata and refusals continue.
    writer.check()
    assert writer.send() == ErrorCode.KAFKA_STORAGE_ERROR
    with Cluster(broker.bootstrap_servers) as cluster:
        assert TOPIC in cluster.topics.all()
    disk.free()
    for partition in (0, 1):
        until_served(lambda partition=partition: writer.send(partition))
    for number in range(10):
        assert writer.send(number % 2) == ErrorCode.NONE
    writer.check()
    log = broker.logs()
    assert "Traceback" not in log
    assert len(log) < 50_000
    assert f"failed in {disk.path / 'data'}: No space left on device; free space there" in log
    assert broker.stop() == 0
    broker.start()
    writer.check()


def test_topic_creation_fails_only_while_the_disk_is_full(disk, broker):
    writer = Writer(broker)
    disk.fill()
    codes = [create_topic(broker, f"on-full-disk-{number}") for number in range(20)]
    assert codes[-1] != ErrorCode.NONE
    assert broker.running
    with Cluster(broker.bootstrap_servers) as cluster:
        for name, info in cluster.topics.all().items():
            assert info.partitions, name
    disk.free()
    until_served(lambda: create_topic(broker, f"afterwards-{time.monotonic_ns()}"))
    until_served(writer.send)
    writer.check()
    # A topic is removed again when its files could not be created.
    with Cluster(broker.bootstrap_servers) as cluster:
        names = [name for name in cluster.topics.all() if name != TOPIC]
    assert names
    for name in names:
        until_served(Writer(broker, name).send)
    assert "Traceback" not in broker.logs()
    assert len(broker.logs()) < 20_000
    broker.restart()
    writer.check()
    assert create_topic(broker, "after-a-restart") == ErrorCode.NONE


@pytest.mark.promise("D8")
@pytest.mark.parametrize("crash", [True, False], ids=["after-a-crash", "after-a-clean-stop"])
def test_a_start_on_a_full_disk_serves_or_says_why_not(disk, broker, crash):
    writer = Writer(broker)
    fill_up(disk, writer)
    if crash:
        broker.kill()
    else:
        broker.stop()
    disk.fill()
    before = len(broker.logs())
    try:
        broker.start()
    except BrokerFailure:
        assert broker.exit_code == 2
        *_, sentence = broker.logs()[before:].strip().splitlines()
        assert sentence.startswith("ottla: ")
        assert str(disk.path / "data") in sentence
        assert "full" in sentence
        assert "free space" in sentence
    else:
        writer.check()
    assert "Traceback" not in broker.logs()
    disk.free()
    broker.restart()
    writer.check()
    until_served(writer.send)
    writer.check()


def test_a_first_start_on_a_full_disk_says_why_not(disk):
    disk.fill()
    broker = Broker(data_dir=disk.path / "new", python=disk.python)
    with pytest.raises(BrokerFailure):
        broker.start()
    assert broker.exit_code == 2
    (sentence,) = broker.logs().strip().splitlines()
    assert sentence.startswith("ottla: ")
    assert str(disk.path / "new") in sentence
    assert "full" in sentence
    disk.free()
    broker.start()
    with Cluster(broker.bootstrap_servers) as cluster:
        cluster.topics.create(TOPIC, 1)
    broker.close()


def test_a_client_that_retries_gets_through(disk, broker):
    """The code is retriable: a stock client waits out a full disk."""
    fill_up(disk, Writer(broker))
    outcomes: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "linger.ms": 0})
    for number in range(10):
        producer.produce(TOPIC, VALUE, b"%d" % number, 1, on_delivery=lambda error, _: outcomes.append(error))
    producer.poll(2)
    assert outcomes == []
    disk.free()
    producer.flush(60)
    assert outcomes == [None] * 10


def test_produce_counts_refusals_of_a_full_disk(broker, tmp_path):
    """The queue is full when the first record fails, so most records fail in the flush after it."""
    lines = tmp_path / "lines"
    lines.write_bytes(b"".join(b"%05d %s\n" % (number, VALUE[:1000]) for number in range(60_000)))
    options = ["--timeout", "4", "-X", "queue.buffering.max.kbytes=16384"]
    command = [sys.executable, "-m", "ottla", "produce", TOPIC, "--file", str(lines), *options]
    environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVER": broker.bootstrap_servers}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    found = re.match(r"ottla: ([0-9,]+) of ([0-9,]+) records were not delivered: ", done.stderr.splitlines()[-1])
    assert found is not None, done.stderr
    failed, sent = (int(number.replace(",", "")) for number in found.groups())
    assert 5_000 < failed < sent < 60_000
    stored = numbers_in_log(broker)
    assert len(set(stored)) == len(stored) == sent - failed
    assert max(stored) < sent


def numbers_in_log(broker: Broker) -> list[int]:
    """The number at the start of each value, in the order of the log."""
    found: list[int] = []
    with Cluster(broker.bootstrap_servers) as cluster:
        for partition in (0, 1):
            end = cluster.records.list_offsets({(TOPIC, partition): -1})[TOPIC, partition].offset
            offset = 0
            while offset < end:
                for batch in iter_batches(cluster.records.fetch(TOPIC, partition, offset).records):
                    for record in batch.records():
                        assert record.offset == offset
                        found.append(int(bytes(record.value or b"")[:5]))
                        offset += 1
    return found


def test_full_directory_refuses_and_the_other_continues(disk, tmp_path):
    first, second = tmp_path / "first", disk.path / "second"
    with Broker(data_dir=f"{first},{second}", python=disk.python) as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create(TOPIC, 2)
        (full,) = (number for number in (0, 1) if (disk.outside / "second" / f"{TOPIC}-{number}").exists())
        writer = Writer(broker)
        assert writer.send(full) == ErrorCode.NONE
        disk.fill()
        code = writer.send(full)
        while code == ErrorCode.NONE:  # into the space that the log had reserved
            code = writer.send(full)
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        for number in range(10):
            assert writer.send(1 - full) == ErrorCode.NONE
            assert create_topic(broker, f"new-{number}") == ErrorCode.NONE
        assert len(list(first.glob("new-*"))) == 10
        writer.check()
        disk.free()
        until_served(lambda: writer.send(full))
        writer.check()
        assert "Traceback" not in broker.logs()
        assert "offline" not in broker.logs()
        broker.restart()
        writer.check()
        for partition in (0, 1):
            assert writer.send(partition) == ErrorCode.NONE
