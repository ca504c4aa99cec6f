"""`ottla mirror` and records that the target refuses: settings that prevent it, and what stop and skip do."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import pytest
from click.testing import CliRunner, Result

from ottla.app.main import cli
from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka import batch_producer
from ottla.client.librdkafka.batch_producer import BatchProducer, BatchRefused
from ottla.client.wire.model import LATEST_TIMESTAMP, ResourceType
from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission
from ottla.common.kafka.acl import ResourceType as AclResource
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.mirror.option_values import SKIP
from ottla.mirror.routes import PROGRESS_TOPIC, Route
from ottla.record.batch import BatchView
from ottla.record.builder import RecordData, build_batch
from ottla.testing import Broker

from .test_mirror import PROGRAM, bodies_of, content

NUMBERS = itertools.count()
DAY_MS = 86_400_000
WIDE = {
    "message.max.bytes": "4000000",
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
}
NARROW = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "compression.type": "uncompressed",
    "log.cleanup.policy": "compact",
    "log.message.timestamp.before.max.ms": "3600000",
    "log.message.timestamp.type": "LogAppendTime",
    "max.decompressed.message.bytes": "5000",
    "message.max.bytes": "5000",
    "socket.request.max.bytes": "1000000",
}


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, str]]:
    with Broker(configs=WIDE) as source, Broker(configs=NARROW) as target:
        yield source.bootstrap_servers, target.bootstrap_servers


@pytest.fixture
def topic() -> str:
    return f"refused-{next(NUMBERS)}"


def good(value: bytes = b"good" * 9) -> RecordData:
    return RecordData(int(time.time() * 1000), b"k", value, [("h", b"1")])


def batch(*records: RecordData, codec: str = "lz4") -> BatchView:
    return BatchView(build_batch(records, compression=codec))


def fill(servers: str, topic: str, batches: list[BatchView], settings: Mapping[str, str] | None = None) -> None:
    """A topic of one partition with a transaction."""
    with Cluster(servers) as cluster:
        cluster.topics.create(topic, 1, configs=settings)
        producer = BatchProducer(cluster, topic)
        producer.initialize()
        producer.begin([(topic, 0)])
        producer.send((topic, 0), batches)
        producer.commit()


def mirrored(servers: tuple[str, str], topic: str, *options: str) -> Result:
    source, target = servers
    command = ["mirror", "--from", source, "--to", target, "--topics", topic, "--rename", "eu.{topic}", "--once"]
    return CliRunner().invoke(cli, [*command, "--json", *options], catch_exceptions=False)


NOW = int(time.time() * 1000)
LARGE = good(os.urandom(20_000))
KINDS: dict[str, tuple[dict[str, str], RecordData]] = {
    "cleanup.policy": ({}, good()._replace(key=None)),
    "max.decompressed.message.bytes": ({"max.message.bytes": "900000"}, good(bytes(20_000))),
    "max.message.bytes": ({}, LARGE),
    "message.timestamp.after.max.ms": ({}, good()._replace(timestamp_ms=NOW + DAY_MS)),
    "message.timestamp.before.max.ms": ({}, good()._replace(timestamp_ms=NOW - DAY_MS)),
    "socket.request.max.bytes": (
        {"max.message.bytes": "9000000", "max.decompressed.message.bytes": "9000000"},
        good(os.urandom(1_500_000)),
    ),
}
"""The setting that refuses a record: settings of the target's topic in addition to NARROW, and the record."""
TIMES = {"message.timestamp.type": "CreateTime"}


def test_new_topics_accept_all_records_of_the_source(servers, topic) -> None:
    """By its broker's settings, not its own; records are older in the target than they were in the source."""
    source, target = servers
    kept = [record for setting, (_, record) in KINDS.items() if setting != "socket.request.max.bytes"]
    kept.append(good()._replace(timestamp_ms=-DAY_MS))
    fill(source, topic, [batch(record, good(), good(), codec="zstd") for record in kept])
    done = mirrored(servers, topic)
    assert done.exit_code == 0, done.stderr
    assert content(source, topic) == content(target, f"eu.{topic}")
    with Cluster(source) as here, Cluster(target) as there:
        assert set(bodies_of(there, f"eu.{topic}")) == set(bodies_of(here, topic)), "nothing was compressed again"
        (size,) = there.configs.describe(ResourceType.TOPIC, PROGRESS_TOPIC, ["max.message.bytes"])
        assert size.value == "1048588", "progress of many runs is larger than the broker's default"


@pytest.mark.promise("M3")
@pytest.mark.parametrize("count", [1, 2], ids=["as they are", "by keys"])
@pytest.mark.parametrize("setting", KINDS)
def test_refused_record_stops_or_is_skipped_alone(servers, topic, setting, count) -> None:
    source, target = servers
    overrides, bad = KINDS[setting]
    first, last = [good(b"%d" % n * 30) for n in range(5)], [good(b"%d" % n) for n in range(5, 8)]
    fill(source, topic, [batch(*last, codec="none"), batch(*first, bad, *last), batch(bad), batch(*last, codec="none")])
    with Cluster(source) as here, Cluster(target) as there:
        there.topics.create(f"eu.{topic}", count, configs=TIMES | overrides)
        end = here.records.list_offsets({(topic, 0): LATEST_TIMESTAMP})[topic, 0].offset
        for offset in range(end + 1):
            here.groups.commit_offsets(f"{topic}-{offset}", {(topic, 0): offset})

    stopped = mirrored(servers, topic)
    assert (stopped.exit_code, stopped.stderr.count("\n")) == (1, 1), stopped.output
    for words in (f"record at offset 8 of {topic}-0", f"'eu.{topic}'", setting, "--on-refused skip"):
        assert words in stopped.stderr
    assert not any(content(target, f"eu.{topic}").values())

    for wanted in (11 + 3, 0):
        skipped = mirrored(servers, topic, "--on-refused", SKIP, "--groups", f"{topic}-.*")
        assert skipped.exit_code == 0, skipped.stderr
        report = json.loads(skipped.stdout)
        assert (report["records"], report["skipped"], report["skipped_records"]) == (wanted, 2, {f"{topic}-0": 2})
        logged = re.findall(r"ERROR skipped the record at offset (\d+) of (\S+) .*", skipped.stderr)
        assert logged == ([("8", f"{topic}-0"), ("12", f"{topic}-0")] if wanted else [])
    rows = [(at, row) for at, row in content(source, topic, with_offsets=True)[0] if at not in (8, 12)]
    found = content(target, f"eu.{topic}", with_offsets=True)
    assert sorted(row for each in found.values() for _, row in each) == sorted(row for _, row in rows)
    with Cluster(target) as there:
        for offset in range(end + 1) if count == 1 else ():
            carried = there.groups.offsets(f"{topic}-{offset}")[f"eu.{topic}", 0].offset
            left = [row for at, row in rows if at >= offset]
            assert [row for at, row in found[0] if at >= carried] == left, offset


def test_batch_too_large_is_divided(servers, topic) -> None:
    """No record of it is; not even --on-refused stop ends on it."""
    source, target = servers
    fill(source, topic, [batch(*[good(os.urandom(900)) for _ in range(20)])] * 2)
    with Cluster(target) as there:
        there.topics.create(f"eu.{topic}", 1, configs=TIMES)
    done = mirrored(servers, topic)
    assert done.exit_code == 0, done.stderr
    assert content(source, topic) == content(target, f"eu.{topic}")


@pytest.mark.parametrize("count", [1, 2], ids=["as they are", "by keys"])
def test_old_brokers_get_gzip_and_name_no_records(servers, topic, monkeypatch, count) -> None:
    """Produce 6 is of Apache Kafka 2.0: without zstd, and without the records of a refusal."""
    source, target = servers
    bad = good()._replace(timestamp_ms=NOW + DAY_MS)
    rows = [*[good()] * 5, bad, bad, good(), bad]
    fill(source, topic, [batch(*rows, codec="zstd"), batch(*rows, codec="lz4")])
    with Cluster(target) as there:
        there.topics.create(f"eu.{topic}", count, configs=TIMES | {"compression.type": "producer"})
    monkeypatch.setattr(batch_producer, "LAST_WITHOUT_IMPLICIT_ADD", 6)
    done = mirrored(servers, topic, "--on-refused", SKIP)
    assert (done.exit_code, json.loads(done.stdout)["skipped"]) == (0, 6), done.stderr
    offsets = re.findall(r"ERROR skipped the record at offset (\d+) ", done.stderr)
    assert offsets == ["5", "6", "8", "14", "15", "17"]
    assert sum(map(len, content(target, f"eu.{topic}").values())) == 12


KILLS = ("before send 4", "before commit 2", "after commit 1")


@pytest.mark.promise("M3")
def test_kill_during_skips_neither_loses_nor_duplicates_records(servers, topic) -> None:
    source, target = servers
    bad = good()._replace(key=None)
    fill(source, topic, [batch(good(b"%d" % n), bad, good(b"%d-" % n)) for n in range(20)])
    with Cluster(target) as there:
        there.topics.create(topic, 1, configs=TIMES)
    for point in KILLS:
        when, number = point.rsplit(" ", 1)
        command = [sys.executable, str(PROGRAM), source, target, topic, "--at", when, "--number", number]
        done = subprocess.run([*command, "--on-refused", SKIP], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == -9, done.stdout + done.stderr
    assert 0 < len(content(target, topic)[0]) < 40, "all were killed too early or too late"
    finished = mirrored(servers, topic, "--rename", "{topic}", "--on-refused", SKIP)
    assert json.loads(finished.stdout)["skipped"] == 20, "those of all runs"
    assert content(target, topic)[0] == [row for row in content(source, topic)[0] if row[0] is not None]


@pytest.mark.parametrize("refusals", [1, 2], ids=["together", "alone"])
def test_zombie_leaves_the_transactional_id_to_its_successor(servers, topic, monkeypatch, refusals) -> None:
    """Another mirror takes over while a batch is refused; its transaction must not be aborted."""
    source, target = servers
    fill(source, topic, [batch(good()._replace(key=None))])
    send, refused, successors = BatchProducer.send, [], []

    def send_while_replaced(self: BatchProducer, position: TopicPartition, batches: Sequence[BatchView]) -> list[int]:
        try:
            return send(self, position, batches)
        except BatchRefused as error:
            refused.append(error)
            if len(refused) == refusals:
                with Cluster(source) as here:
                    route = Route(here.describe().cluster_id or "", topic, 0, position[0])
                successor = BatchProducer(Cluster(target), route.transactional_id)
                successor.initialize()
                successor.begin([position])
                successors.append(successor)
            raise

    with Cluster(target) as there:
        there.topics.create(f"eu.{topic}", 1, configs=TIMES)
    with monkeypatch.context() as patched:
        patched.setattr(BatchProducer, "send", send_while_replaced)
        done = mirrored(servers, topic)
    assert "another mirror has taken over" in done.stderr
    successors[0].send((f"eu.{topic}", 0), [batch(good())])
    successors[0].commit()
    assert len(content(target, f"eu.{topic}")[0]) == 1


def allowed(kind: AclResource, name: str, operation: AclOperation, principal: str) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, principal, "*", operation, Permission.ALLOW)


def test_errors_that_concern_a_whole_topic_skip_nothing(servers, topic) -> None:
    source, target = servers
    fill(source, topic, [batch(good())])
    with Cluster(target) as there:
        there.topics.create(f"eu.{topic}", 1, configs=TIMES)
        there.acls.create(
            [
                allowed(AclResource.TOPIC, f"eu.{topic}", AclOperation.WRITE, "User:other"),
                allowed(AclResource.TOPIC, f"eu.{topic}", AclOperation.READ, "User:ANONYMOUS"),
            ]
        )
    done = mirrored(servers, topic, "--on-refused", SKIP)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.output
    assert f"rejects records of {topic}-0 of the source from offset 0" in done.stderr
    assert "allow WRITE on that topic" in done.stderr


def test_uncreatable_topic_is_reported_with_its_configs(servers, topic) -> None:
    source, target = servers
    fill(source, topic, [batch(good())], {"retention.ms": "5000"})
    with Cluster(target) as there:
        there.acls.create(
            [
                allowed(AclResource.CLUSTER, "kafka-cluster", AclOperation.CREATE, "User:other"),
                allowed(AclResource.TOPIC, f"eu.{topic}", AclOperation.CREATE, "User:other"),
            ]
        )
    done = mirrored(servers, topic)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.output
    for words in (
        f"rejected creation of topic 'eu.{topic}' with 1 partitions",
        "retention.ms=5000",
        "CREATE on the topic",
    ):
        assert words in done.stderr
