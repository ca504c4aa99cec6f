"""`ottla backup` of a broker under load, and `ottla restore`: acknowledged data is there, once, and usable."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.app.clock import SystemRng
from ottla.client.admin.cluster import Cluster
from ottla.storage.files.meta_properties import random_id
from ottla.testing import Broker

from .ledger import Ledger
from .small_disk import MEGABYTE, SmallDisk, needs_root

TOPIC, PAIRS, COMPACTED = "ledger", "pairs", "compacted"
PARTITIONS = 3
GROUP, TRANSACTIONAL_ID = "readers", "pairs"
CONFIGS = {"log.cleaner.backoff.ms": 50, "log.retention.check.interval.ms": 200}
TIMEOUT_S = 60.0


def ottla(*arguments: str | Path, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


class Load:
    """Producers and commits that do not stop during the backup, and their acknowledgements."""

    def __init__(self, bootstrap_servers: str, replicas: int) -> None:
        self._servers = bootstrap_servers
        self._done = threading.Event()
        with Cluster(bootstrap_servers) as cluster:
            segments = {"segment.bytes": "1048576"}
            cluster.topics.create(TOPIC, PARTITIONS, replicas, configs=segments)
            cluster.topics.create(PAIRS, 2, replicas)
            cluster.topics.create(
                COMPACTED,
                1,
                replicas,
                configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"},
            )
        self.ledger = Ledger(bootstrap_servers, TOPIC, PARTITIONS, value_bytes=300)
        self.pairs = 0
        self.committed_offset = 0
        self.compacted = 0
        """The last round of all keys of the compacted topic."""

    @contextmanager
    def running(self) -> Iterator[Load]:
        failures: list[BaseException] = []

        def guarded(work: Any) -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        works = (lambda: self.ledger.send_until(self._done), self._transactions, self._rounds, self._commits)
        threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._done.set()
            for thread in threads:
                thread.join()
        assert not failures, failures

    def await_progress(self) -> None:
        """Wait for some more of everything."""
        goals = (len(self.ledger.acknowledged) + 3000, self.pairs + 20, self.compacted + 3, self.committed_offset + 1)
        waiting = threading.Event()
        for _ in range(int(TIMEOUT_S / 0.02)):
            now = (len(self.ledger.acknowledged), self.pairs, self.compacted, self.committed_offset)
            if all(have >= goal for have, goal in zip(now, goals, strict=True)):
                return
            waiting.wait(0.02)
        raise AssertionError("the load makes no progress")

    def _transactions(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "transactional.id": TRANSACTIONAL_ID})
        producer.init_transactions(TIMEOUT_S)
        for number in itertools.count():
            if self._done.is_set():
                return
            producer.begin_transaction()
            for partition in (0, 1):
                producer.produce(PAIRS, b"%d" % number, partition=partition)
            producer.commit_transaction(TIMEOUT_S)
            self.pairs = number + 1

    def _rounds(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 2})
        for number in itertools.count(1):
            if self._done.is_set():
                return
            for key in range(50):
                producer.produce(COMPACTED, b"%d" % number + b"." * 2000, b"%d" % key)
            assert producer.flush(TIMEOUT_S) == 0
            self.compacted = number

    def _commits(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": GROUP, "enable.auto.commit": False})
        try:
            while not self._done.is_set():
                _, position = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=TIMEOUT_S)
                consumer.commit(offsets=[TopicPartition(TOPIC, 0, position)], asynchronous=False)
                self.committed_offset = position
        finally:
            consumer.close()


class Acknowledged:
    """A copy of everything that was acknowledged up to now, to be found in the restored data."""

    def __init__(self, load: Load) -> None:
        self._ledger = load.ledger
        self.records = dict(load.ledger.acknowledged)
        self.pairs = load.pairs
        self.committed_offset = load.committed_offset
        self.compacted = load.compacted

    def verify(self, bootstrap_servers: str) -> None:
        """All of it is there, and nothing twice; the cluster accepts more."""
        self._ledger.acknowledged = dict(self.records)
        self._ledger.verify(bootstrap_servers, exactly=False)
        producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": TRANSACTIONAL_ID})
        producer.init_transactions(TIMEOUT_S)  # ends the transaction that was open at the backup
        pairs = [Counter(_values(bootstrap_servers, PAIRS, partition)) for partition in (0, 1)]
        assert pairs[0] == pairs[1]
        assert set(pairs[0].values()) == {1}
        assert {b"%d" % number for number in range(self.pairs)} <= pairs[0].keys()
        producer.begin_transaction()
        producer.produce(PAIRS, b"after", partition=0)
        producer.commit_transaction(TIMEOUT_S)
        assert _values(bootstrap_servers, PAIRS, 0)[-1] == b"after"
        latest = dict(_records(bootstrap_servers, COMPACTED, 0))
        assert len(latest) == 50
        assert min(int(value.rstrip(b".")) for value in latest.values()) >= self.compacted
        consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": GROUP})
        (committed,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=TIMEOUT_S)
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=TIMEOUT_S)
        consumer.close()
        assert self.committed_offset <= committed.offset <= end


def _records(bootstrap_servers: str, topic: str, partition: int) -> list[tuple[bytes | None, bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "verify",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[tuple[bytes | None, bytes]] = []
    try:
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            if message.error() is not None:
                return found
            found.append((message.key(), message.value() or b""))
    finally:
        consumer.close()


def _values(bootstrap_servers: str, topic: str, partition: int) -> list[bytes]:
    return [value for _, value in _records(bootstrap_servers, topic, partition)]


def _back_up(load: Load, data_dir: Path, backup: Path) -> Acknowledged:
    """Back up under load; returns the data that was acknowledged before."""
    with load.running():
        load.await_progress()
        acknowledged = Acknowledged(load)
        document = json.loads(ottla("backup", backup, "--data-dir", data_dir, "--json"))
    assert not document["split_transactions"], document
    return acknowledged


@pytest.mark.promise("D16")
@pytest.mark.timeout(400)
def test_backup_under_load_has_all_acknowledged_once(tmp_path: Path) -> None:
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    with Broker(configs=CONFIGS) as broker:
        acknowledged = _back_up(Load(broker.bootstrap_servers, 1), broker.data_dir, backup)
    new_id = random_id(SystemRng())
    ottla("restore", backup, "--data-dir", restored, "--cluster-id", new_id)
    with Broker(data_dir=restored) as broker:
        assert broker.ready["cluster_id"] == new_id
        acknowledged.verify(broker.bootstrap_servers)
        log = broker.logs()
    assert "truncated at position" not in log
    assert "records were lost" not in log
    ottla("log", "scrub", restored)


@pytest.mark.promise("D16")
@pytest.mark.timeout(400)
def test_backup_of_cluster_has_all_acknowledged_once(tmp_path: Path) -> None:
    configs = {**CONFIGS, "min.insync.replicas": 2, "offsets.topic.num.partitions": 3}
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    with Broker(brokers=3, configs=configs) as broker:
        acknowledged = _back_up(Load(broker.bootstrap_servers, 3), broker.data_dir, backup)
        cluster_id = broker.ready["cluster_id"]
        # A copy of one of the nodes could rejoin the others.
        refused = ottla("backup", tmp_path / "one", "--data-dir", broker.data_dir / "broker-1", code=2)
        assert "is a part of a cluster" in refused
        assert not list((tmp_path / "one").iterdir())
    ottla("restore", backup, "--data-dir", restored)
    with Broker(brokers=3, data_dir=restored, configs=configs) as broker:
        assert broker.ready["cluster_id"] == cluster_id
        acknowledged.verify(broker.bootstrap_servers)
        log = broker.logs()
    assert "truncated at position" not in log
    assert "records were lost" not in log
    directories = sorted(restored.glob("broker-?"))
    assert all((directory / f"{TOPIC}-0").is_dir() for directory in directories)
    ottla("log", "scrub", *directories)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with 200 partitions and 4 MB in one of them."""
    with Broker() as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create(TOPIC, 200)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for _ in range(64):
            producer.produce(TOPIC, bytes(MEGABYTE // 16), partition=199)
        assert producer.flush(TIMEOUT_S) == 0
        yield broker


@pytest.mark.promise("D17")
def test_backup_that_was_killed_is_refused(broker: Broker, tmp_path: Path) -> None:
    backup, target = tmp_path / "backup", tmp_path / "restored"
    command = [sys.executable, "-m", "ottla", "backup", str(backup), "--data-dir", str(broker.data_dir)]
    with subprocess.Popen(command) as process:
        while not (backup / "partitions" / f"{TOPIC}-0").exists():
            assert process.poll() is None
        process.kill()
    assert not (backup / "manifest.json").exists()
    assert "not a complete backup" in ottla("restore", backup, "--data-dir", target, code=2)
    assert not target.exists()
    assert "exists and is not empty" in ottla("backup", backup, "--data-dir", broker.data_dir, code=2)
    # And no broker takes the copy for its data directory.
    assert "has no meta.properties" in ottla("start", "--port", "0", "--data-dir", backup / "partitions", code=2)


@pytest.mark.promise("D17")
@needs_root
def test_backup_on_a_full_disk_is_refused(broker: Broker, tmp_path: Path) -> None:
    with SmallDisk(tmp_path, 2 * MEGABYTE) as disk:
        backup = disk.path / "backup"
        command = [*disk.enter, sys.executable, "-m", "ottla"]
        made = [*command, "backup", str(backup), "--data-dir", str(broker.data_dir)]
        done = subprocess.run(made, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, f"the disk of {backup} is full" in done.stderr) == (2, True), done.stderr
        restored = [*command, "restore", str(backup), "--data-dir", str(disk.path / "restored")]
        done = subprocess.run(restored, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, "not a complete backup" in done.stderr) == (2, True), done.stderr
