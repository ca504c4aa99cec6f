"""Foreign, misnamed or unreadable files in a data directory.

Either the start repairs it and serves every record, or it is refused with the path, in one sentence.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.client.admin.cluster import Cluster
from ottla.testing import Broker, BrokerFailure

from .refusals import refusal
from .test_corruption import BATCHES, TOPIC, check_that_nothing_is_lost, produce_batches
from .test_operator_mistakes import NOBODY_UID, WITHOUT_RIGHTS, needs_setpriv

PARTITION = f"{TOPIC}-0"
FILES = ("*.log", "*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint", "partition.metadata")
BY_ID = f"{TOPIC}-by-id"
STRANGERS = ("README", "notes.txt", "lost+found/x", ".hidden", "00000000000000000000.log.bak", "core.1234", "t/u/v")


@pytest.fixture(params=["after-a-crash", "after-a-clean-stop"])
def ended(request) -> Iterator[Broker]:
    """A broker that has ended, with records in a partition, and of an idempotent producer in another."""
    with Broker() as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create(TOPIC, 1, configs={"index.interval.bytes": "100"})
        produce_batches(broker, BATCHES)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
        producer.produce(BY_ID, b"v")
        assert producer.flush(20) == 0
        broker.restart()  # the file of producers comes with a stop
        if request.param == "after-a-crash":
            broker.kill()
        else:
            broker.stop()
        yield broker


def file_of(broker: Broker, pattern: str) -> Path:
    return next(broker.data_dir.glob(f"{TOPIC}*-0/{pattern}"))


def check(broker: Broker) -> None:
    """Also checks that the idempotent producer's record exists."""
    check_that_nothing_is_lost(broker)
    with Cluster(broker.bootstrap_servers) as cluster:
        assert cluster.records.list_offsets({(BY_ID, 0): -1})[BY_ID, 0].offset == 1


def start_or_refusal(broker: Broker) -> str | None:
    """None where it serves; else its one sentence."""
    before = len(broker.logs())
    try:
        broker.start()
    except BrokerFailure:
        assert broker.exit_code == 2, broker.logs()[before:]
        refused = [line for line in broker.logs()[before:].splitlines() if line.startswith("ottla: ")]
        assert len(refused) == 1
        return refused[0]
    finally:
        assert "Traceback" not in broker.logs()
    return None


@pytest.mark.parametrize("place", ["", PARTITION], ids=["in-log-dirs", "in-a-partition"])
def test_strangers_are_left_alone(ended, place):
    added = {ended.data_dir / place / name: name.encode() for name in STRANGERS}
    for path, content in added.items():
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content)
    assert start_or_refusal(ended) is None
    check(ended)
    ended.restart()
    assert {path: path.read_bytes() for path in added} == added


@pytest.mark.parametrize("pattern", FILES)
def test_a_directory_in_the_place_of_a_file(ended, pattern):
    path = file_of(ended, pattern)
    content = path.read_bytes()
    path.unlink()
    path.mkdir()
    sentence = start_or_refusal(ended)
    if sentence is not None:
        assert str(path) in sentence
        path.rmdir()
        path.write_bytes(content)
        ended.start()
    check(ended)


def test_half_a_snapshot_of_producers(ended):
    path = file_of(ended, "*.snapshot")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert start_or_refusal(ended) is None
    check(ended)


@pytest.mark.promise("D7")
@pytest.mark.root
@needs_setpriv
@pytest.mark.parametrize("pattern", FILES)
def test_a_file_of_a_partition_that_may_not_be_read(ended, pattern):
    """Nothing is taken for damaged that is only not to be seen."""
    path = file_of(ended, pattern)
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    os.chown(path, NOBODY_UID, NOBODY_UID)
    path.chmod(0o000)
    sentence = refusal("--port", "0", "--data-dir", str(ended.data_dir), prefix=WITHOUT_RIGHTS)
    assert str(path) in sentence
    assert path.read_bytes() == copy.read_bytes()
    os.chown(path, 0, 0)
    path.chmod(0o644)
    copy.unlink()
    ended.start()
    check(ended)
