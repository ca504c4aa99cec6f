"""`ottla mirror` from an Ottla to an Apache Kafka and back: records, transactions, offsets of groups."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from apache import Kafka

from ottla.client.batch_producer import BatchProducer
from ottla.client.cluster import Cluster
from ottla.client.consumer import RecordConsumer
from ottla.client.model import LATEST_TIMESTAMP
from ottla.record.batch import BatchView
from ottla.record.builder import RecordData, build_batch
from ottla.testing import Broker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIGS = {
    "node.id": "1",
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
TIME = 1_700_000_000_000
TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def servers(java_classpath: str) -> Iterator[dict[str, str]]:
    with Broker() as ottla, Kafka(java_classpath, CONFIGS, voters_in_log=True) as apache:
        apache.format()
        apache.start()
        yield {"ottla": ottla.bootstrap_servers, "apache": apache.bootstrap_servers}


def fill(servers: str, topic: str) -> None:
    """Ten transactions of all codecs, each third aborted."""
    with Cluster(servers) as cluster:
        cluster.create_topic(topic, 2, configs={"retention.ms": "-1"})
        cluster.list_offsets({(topic, 0): LATEST_TIMESTAMP, (topic, 1): LATEST_TIMESTAMP})  # waits until both serve
        producer = BatchProducer(cluster, f"filler-{topic}")
        producer.initialize()
        for number in range(10):
            rows = [
                RecordData(TIME + n, b"k%d" % (n % 5), b"%d.%d" % (number, n) * 20, [("h", None)]) for n in range(9)
            ]
            batch = BatchView(build_batch(rows, compression=CODECS[number % 5]))
            producer.begin([(topic, 0), (topic, 1)])
            for partition in (0, 1):
                producer.send((topic, partition), [batch] * 2)
            if number % 3 == 2:
                producer.initialize()
            else:
                producer.commit()


def content(servers: str, topic: str) -> dict[int, list[tuple[int, object]]]:
    """Offsets and records of each partition, as a reader of read_committed sees them."""
    with Cluster(servers) as cluster:
        keys = [(topic, index) for index in range(len(cluster.topic(topic).partitions))]
        ends = cluster.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP))
    found: dict[int, list[tuple[int, object]]] = {index: [] for _, index in keys}
    with RecordConsumer(
        servers, dict.fromkeys(keys, 0), ends={key: info.offset for key, info in ends.items()}
    ) as consumer:
        for records in consumer.batches():
            for record in records:
                found[record.partition].append(
                    (record.offset, (record.key, record.value, record.timestamp_ms, record.headers))
                )
    return found


def mirrored(source: str, target: str, topic: str) -> int:
    """How many records it says it copied."""
    command = [sys.executable, "-m", "ottla", "mirror", "--from", source, "--to", target, "--once", "--json"]
    command += ["--topics", topic, "--groups", f"{topic}-.*"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["records"])


@pytest.mark.parametrize(("source", "target"), [("ottla", "apache"), ("apache", "ottla")])
def test_content_and_groups_are_equal(servers: dict[str, str], source: str, target: str) -> None:
    topic = f"from-{source}"
    fill(servers[source], topic)
    wanted = content(servers[source], topic)
    with Cluster(servers[source]) as cluster:
        offsets = {f"{topic}-{at}": at for at, _ in wanted[0][::7]}
        for group, offset in offsets.items():
            cluster.commit_group_offsets(group, {(topic, 0): offset})
    assert mirrored(servers[source], servers[target], topic) == 7 * 18 * 2
    found = content(servers[target], topic)
    assert {index: [row for _, row in rows] for index, rows in found.items()} == {
        index: [row for _, row in rows] for index, rows in wanted.items()
    }
    with Cluster(servers[target]) as cluster:
        for group, offset in offsets.items():
            carried = cluster.group_offsets(group)[topic, 0].offset
            left = [row for at, row in wanted[0] if at >= offset]
            assert [row for at, row in found[0] if at >= carried] == left
    assert mirrored(servers[source], servers[target], topic) == 0
