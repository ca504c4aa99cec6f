"""kill -9 and SIGTERM under load: acknowledged records exist, once, in order, and the broker starts again."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.record.batch import BatchView
from ottla.record.errors import CorruptBatch
from ottla.testing import Broker

from .ledger import Ledger

TOPIC = "crash"
PARTITIONS = 4
CRASHES = 8
VALUE_BYTES = 300


def valid_prefix(path: Path) -> bytes:
    """The bytes of a segment before the first invalid batch, found without the broker's loader."""
    data = path.read_bytes()
    position = 0
    while position < len(data):
        try:
            batch = BatchView(data, position)
            if batch.end > len(data) or not batch.crc_matches():
                break
        except CorruptBatch:
            break
        position = batch.end
    return data[:position]


def segments(data_dir: Path) -> list[Path]:
    return sorted(data_dir.glob(f"{TOPIC}-*/*.log"))


def create_topic(broker: Broker) -> None:
    with Cluster(broker.bootstrap_servers) as cluster:
        cluster.topics.create(TOPIC, PARTITIONS, configs={"segment.bytes": "1048576"})


def test_the_ledger_notices():
    """A checker that passes everything proves nothing: each kind of damage is found in a history that has it."""
    with Broker() as broker:
        create_topic(broker)
        ledger = Ledger(broker.bootstrap_servers, TOPIC, PARTITIONS, VALUE_BYTES)
        ledger.acknowledge(200)
        ledger.finish()
        ledger.verify(broker.bootstrap_servers)
        honest = dict(ledger.acknowledged)
        (first, number), (second, other) = list(honest.items())[:2]
        ledger.acknowledged = honest | {first: other, second: number}
        with pytest.raises(AssertionError, match="2 acknowledged records are lost or elsewhere"):
            ledger.verify(broker.bootstrap_servers)
        ledger.acknowledged = honest | {(0, 1 << 20): number}
        with pytest.raises(AssertionError, match="1 acknowledged records are lost or elsewhere"):
            ledger.verify(broker.bootstrap_servers)
        del honest[first]
        ledger.acknowledged = honest
        with pytest.raises(AssertionError, match="were acknowledged"):
            ledger.verify(broker.bootstrap_servers)
        # A second producer that resends the same records simulates broken idempotence.
        again = Ledger(broker.bootstrap_servers, TOPIC, PARTITIONS, VALUE_BYTES)
        again.acknowledge(200)
        again.finish()
        again.acknowledged |= honest
        with pytest.raises(AssertionError, match=r"comes after|more than once"):
            again.verify(broker.bootstrap_servers)


@pytest.mark.promise("D1")
@pytest.mark.timeout(280)
def test_eight_crashes_on_one_data_directory():
    rng = random.Random(20)
    with Broker(configs={"log.flush.offset.checkpoint.interval.ms": 500}) as broker:
        create_topic(broker)
        ledger = Ledger(broker.bootstrap_servers, TOPIC, PARTITIONS, VALUE_BYTES)
        for _ in range(CRASHES):
            ledger.acknowledge(rng.randrange(500, 6000))
            assert ledger.in_flight
            broker.kill()
            before = {path: valid_prefix(path) for path in segments(broker.data_dir)}
            broker.start()
            # Only a torn tail goes: every whole batch stays, byte for byte, in its file.
            for path, prefix in before.items():
                with path.open("rb") as file:
                    assert file.read(len(prefix)) == prefix, path
        ledger.finish()
        ledger.verify(broker.bootstrap_servers)
        assert ledger.sent > CRASHES * 1000
        log = broker.logs()
        # And once more from a clean stop, with the producer ids and sequences that survived all that.
        assert broker.stop() == 0
        broker.start()
        ledger.acknowledge(1000)
        ledger.finish()
        ledger.verify(broker.bootstrap_servers)
    assert "Traceback" not in log


@pytest.mark.promise("D1")
@pytest.mark.timeout(120)
def test_sigterm_under_load_loses_nothing_and_leaves_the_marker():
    with Broker() as broker:
        create_topic(broker)
        ledger = Ledger(broker.bootstrap_servers, TOPIC, PARTITIONS, VALUE_BYTES)
        done = threading.Event()
        sender = threading.Thread(target=ledger.send_until, args=(done,))
        sender.start()
        try:
            for _ in range(3):
                goal = len(ledger.acknowledged) + 5000
                with Cluster(broker.bootstrap_servers) as cluster:
                    while len(ledger.acknowledged) < goal:
                        cluster.describe()
                assert broker.stop() == 0
                assert (broker.data_dir / ".kafka_cleanshutdown").exists()
                for path in segments(broker.data_dir):
                    assert len(valid_prefix(path)) == path.stat().st_size, path
                broker.start()
                assert not (broker.data_dir / ".kafka_cleanshutdown").exists()
        finally:
            done.set()
            sender.join()
        ledger.finish()
        ledger.verify(broker.bootstrap_servers)
        log = broker.logs()
    assert "Traceback" not in log
    assert "truncated at position" not in log
