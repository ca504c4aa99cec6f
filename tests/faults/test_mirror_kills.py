"""Two mirrors share the work of two topics while source, target and mirrors are killed: one topic unchanged, the other
into half as many partitions. In the end both sides have the same records, and each group continues at its offset.

OTTLA_MIRROR_KILLS=30 OTTLA_MIRROR_RECORDS=2000000 OTTLA_MIRROR_PARTITIONS=24 is the long form; `make mirror-kills`.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.batch_producer import BatchProducer
from ottla.client.librdkafka.consumer import RecordConsumer
from ottla.client.wire.connection import BrokerUnreachable
from ottla.client.wire.model import LATEST_TIMESTAMP
from ottla.common.errors import KafkaError
from ottla.common.kafka.key_hash import hash_partition
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.record.batch import BatchView
from ottla.record.builder import RecordData, build_batch
from ottla.testing import Broker

from .mirror_process import SESSION_TIMEOUT_MS, UNREACHABLE

PROGRAM = Path(__file__).with_name("mirror_process.py")
KILLS = int(os.environ.get("OTTLA_MIRROR_KILLS", "3"))
RECORDS = int(os.environ.get("OTTLA_MIRROR_RECORDS", "5000"))
PARTITIONS = int(os.environ.get("OTTLA_MIRROR_PARTITIONS", "4"))
SEED = int(os.environ.get("OTTLA_MIRROR_SEED", "1"))
FEWER = PARTITIONS // 2
AS_THEY_ARE, MERGED = "as-they-are", "merged"
TOPICS = (AS_THEY_ARE, MERGED)
TIME = 1_700_000_000_000
RECORDS_IN_BATCH = 100
POSITIONS_IN_TRANSACTION = 4
BATCHES_IN_TRANSACTION = 3
"""Of each position."""
FETCH_BYTES = 1 << 13 if RECORDS < 100_000 else 1 << 22
PAUSE_S = 0.2
TRIES_S = 60.0
CONFIGS = {"group.min.session.timeout.ms": SESSION_TIMEOUT_MS}
KEYS = [None, *(b"key-%d" % number for number in range(50))]
FAILURES = (KafkaError, BrokerUnreachable)


class Feeder(threading.Thread):
    """Transactions over some partitions, each fifth of them aborted, until so many records are committed."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._rng = random.Random(SEED)
        self.committed = 0
        self.failure: Exception | None = None

    def run(self) -> None:
        number = 0
        while self.committed < RECORDS and self.failure is None:
            try:
                with Cluster(self._servers, timeout_s=TRIES_S) as cluster:
                    producer = BatchProducer(cluster, "feeder")
                    producer.initialize()
                    while self.committed < RECORDS:
                        number += 1
                        self._feed(producer, number)
            except FAILURES:  # the source was killed, and what became of the transaction does not matter
                time.sleep(PAUSE_S)
            except Exception as error:
                self.failure = error

    def _feed(self, producer: BatchProducer, number: int) -> None:
        everywhere = [(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
        positions = self._rng.sample(everywhere, POSITIONS_IN_TRANSACTION)
        producer.begin(positions)
        for position in positions:
            first = number * RECORDS_IN_BATCH * BATCHES_IN_TRANSACTION
            batches = [
                self._batch(position[1], first + RECORDS_IN_BATCH * count) for count in range(BATCHES_IN_TRANSACTION)
            ]
            producer.send(position, batches)
        if number % 5 == 0:
            producer.initialize()
        else:
            producer.commit()
            self.committed += POSITIONS_IN_TRANSACTION * RECORDS_IN_BATCH * BATCHES_IN_TRANSACTION

    def _batch(self, partition: int, first: int) -> BatchView:
        """Values contain the source's partition, and numbers that rise in it."""
        keys = self._rng.choices(KEYS, k=RECORDS_IN_BATCH)
        rows = [
            RecordData(TIME + first + n, key, b"%d %d %s" % (partition, first + n, b"x" * 40))
            for n, key in enumerate(keys)
        ]
        return BatchView(build_batch(rows, compression=self._rng.choice(("none", "lz4", "zstd"))))


class Rows:
    """Of one partition: offsets, digests, and the two numbers of the values."""

    def __init__(self) -> None:
        self.offsets, self.digests, self.origins, self.numbers = array("q"), array("q"), array("h"), array("q")

    def index(self, offset: int) -> int:
        return bisect.bisect_left(self.offsets, offset)


def read(servers: str, topic: str) -> list[Rows]:
    """The records of a read_committed consumer, once no transaction is open."""
    with Cluster(servers) as cluster:
        keys = [(topic, index) for index in range(len(cluster.topics.get(topic).partitions))]
        found = cluster.records.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP), isolation="read_committed")
    rows = [Rows() for _ in keys]
    ends = {key: info.offset for key, info in found.items()}
    with RecordConsumer(servers, dict.fromkeys(keys, 0), ends=ends) as consumer:
        for records in consumer.batches():
            into = rows[records[0].partition]
            for record in records:
                into.offsets.append(record.offset)
                into.digests.append(hash((record.key, record.value, record.timestamp_ms, record.headers)))
                origin, number, _ = (record.value or b"").split(b" ")
                into.origins.append(int(origin))
                into.numbers.append(int(number))
                if len(rows) < PARTITIONS and record.key is not None:
                    assert hash_partition(record.key, len(rows)) == record.partition
    return rows


class Members:
    """Mirrors that share the work; where one was killed, or came while a broker was down, another comes."""

    def __init__(self, source: str, target: str, log: Path) -> None:
        self._command = [sys.executable, str(PROGRAM), source, target, "|".join(TOPICS), "--share", "mirrors"]
        self._command += ["--fetch-bytes", str(FETCH_BYTES)]
        self._log = log
        self._processes = [self._start() for _ in range(2)]

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log)

    def keep_running(self) -> None:
        """Restart ended processes, like a supervisor."""
        for index, process in enumerate(self._processes):
            code = process.poll()
            if code is not None:
                assert code in (UNREACHABLE, -signal.SIGKILL), self._log.read_text()[-3000:]
                self._processes[index] = self._start()

    def kill(self, index: int) -> None:
        self._processes[index].kill()
        self._processes[index].wait()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    with (
        Broker(configs=CONFIGS, data_dir=tmp_path / "source") as source,
        Broker(configs=CONFIGS, data_dir=tmp_path / "target") as target,
    ):
        yield source, target


def ends(cluster: Cluster, count: int = PARTITIONS) -> dict[TopicPartition, int]:
    """Of both topics; `count` partitions has the one that flows together there."""
    keys = [(AS_THEY_ARE, index) for index in range(PARTITIONS)] + [(MERGED, index) for index in range(count)]
    return {
        key: info.offset for key, info in cluster.records.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP)).items()
    }


def commit_offsets(cluster: Cluster, group: str, rng: random.Random) -> dict[TopicPartition, int]:
    """Commit offsets of a group in the source; returns them."""
    offsets = {key: rng.randint(0, end) for key, end in ends(cluster).items()}
    cluster.groups.commit_offsets(group, offsets)
    return offsets


def carried(cluster: Cluster, groups: dict[str, dict[TopicPartition, int]]) -> dict[str, dict[TopicPartition, int]]:
    return {
        group: {key: found.offset for key, found in cluster.groups.offsets(group, stable=True).items()}
        for group in groups
    }


def is_carried(
    wanted: list[Rows], found: list[Rows], here: dict[TopicPartition, int], there: dict[TopicPartition, int]
) -> bool:
    """Whether all offsets are translated; with equal partition counts exactly to the next record."""
    return all((MERGED, index) in there for index in range(FEWER)) and all(
        (AS_THEY_ARE, index) in there
        and wanted[index].index(here[AS_THEY_ARE, index]) == found[index].index(there[AS_THEY_ARE, index])
        for index in range(PARTITIONS)
    )


def repeated(
    wanted: list[Rows], found: list[Rows], here: dict[TopicPartition, int], there: dict[TopicPartition, int]
) -> int:
    """The number of repeated records of merged partitions; none is skipped."""
    left = sum(len(rows.offsets) - rows.index(here[MERGED, index]) for index, rows in enumerate(wanted))
    again = 0
    for index, rows in enumerate(found):
        cut = rows.index(there[MERGED, index])
        again += len(rows.offsets) - cut
        last = {rows.origins[n]: rows.numbers[n] for n in range(cut)}
        for origin, number in last.items():
            of_source = wanted[origin]
            offset = of_source.offsets[bisect.bisect_left(of_source.numbers, number)]
            assert offset < here[MERGED, origin], f"{MERGED}-{index} continues after an unread record"
    return again - left


def content_is_equal(wanted: list[Rows], found: list[Rows]) -> bool:
    """Unchanged if partition counts are equal, else in the order of each source partition."""
    if len(wanted) == len(found):
        return [rows.digests for rows in wanted] == [rows.digests for rows in found]
    for rows in found:
        latest: dict[int, int] = {}
        for origin, number in zip(rows.origins, rows.numbers, strict=True):
            assert latest.get(origin, -1) < number, "out of order, or twice"
            latest[origin] = number
    both = [sorted(digest for rows in side for digest in rows.digests) for side in (wanted, found)]
    return both[0] == both[1]


@pytest.mark.promise("M1")
@pytest.mark.timeout(200 + 30 * KILLS + RECORDS // 1_000)
def test_kills_of_all_processes_keep_content_and_group_offsets(brokers: tuple[Broker, Broker], tmp_path: Path) -> None:
    rng = random.Random(SEED)
    source, target = (broker.bootstrap_servers for broker in brokers)
    with Cluster(source, timeout_s=TRIES_S) as here, Cluster(target, timeout_s=TRIES_S) as there:
        for topic in TOPICS:
            here.topics.create(topic, PARTITIONS)
        there.topics.create(AS_THEY_ARE, PARTITIONS)
        there.topics.create(MERGED, FEWER)
        feeder = Feeder(source)
        feeder.start()
        log = tmp_path / "mirrors.log"
        members = Members(source, target, log)
        groups: dict[str, dict[TopicPartition, int]] = {}

        def until_copied(share: float) -> None:
            while sum(ends(there, FEWER).values()) < share * RECORDS:
                members.keep_running()
                assert feeder.failure is None, feeder.failure
                time.sleep(PAUSE_S)

        try:
            for number in range(KILLS):
                until_copied((number + 1) / (KILLS + 1))
                groups[f"carried-{number}"] = commit_offsets(here, f"carried-{number}", rng)
                victim = number % 3
                if victim < 2:
                    brokers[victim].restart(crash=True)
                else:
                    members.kill(rng.randrange(2))
            feeder.join()
            assert feeder.failure is None, feeder.failure
            groups["carried-end"] = ends(here)
            here.groups.commit_offsets("carried-end", groups["carried-end"])
            wanted = {topic: read(source, topic) for topic in TOPICS}
            copied = sum(len(rows.offsets) for of_topic in wanted.values() for rows in of_topic)
            found: dict[str, list[Rows]] = {}
            while sum(len(rows.offsets) for of_topic in found.values() for rows in of_topic) < copied:
                members.keep_running()
                time.sleep(PAUSE_S)
                found = {topic: read(target, topic) for topic in TOPICS}
            assert all(content_is_equal(wanted[topic], found[topic]) for topic in TOPICS)
            standing: dict[str, dict[TopicPartition, int]] = {}
            while not all(
                is_carried(wanted[AS_THEY_ARE], found[AS_THEY_ARE], at, standing.get(group, {}))
                for group, at in groups.items()
            ):
                members.keep_running()
                with contextlib.suppress(KafkaError):
                    standing = carried(there, groups)
                time.sleep(PAUSE_S)
        finally:
            members.end()
        again = sum(repeated(wanted[MERGED], found[MERGED], at, standing[group]) for group, at in groups.items())
    fenced = len(re.findall("another mirror has taken over", log.read_text()))
    print(f"{KILLS} kills, {copied} records, {len(groups)} groups, {again} records again, fenced {fenced} times")
