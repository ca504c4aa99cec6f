"""`ottla mirror` between two brokers: equal content under read_committed, with kills at any time."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from ottla.app.main import cli
from ottla.client.admin.acls import AclFilter
from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.batch_producer import BatchProducer
from ottla.client.librdkafka.consumer import RecordConsumer
from ottla.client.librdkafka.membership import Membership
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ResourceType
from ottla.client.wire.security import PLAINTEXT
from ottla.common.errors import KafkaError, OperatorError
from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission
from ottla.common.kafka.key_hash import hash_partition
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.mirror import driver, opening
from ottla.mirror.opening import COMPACT, POLICY, PROGRESS, Endpoint, ProgressTopic
from ottla.mirror.routes import PROGRESS_TOPIC, Route
from ottla.record.batch import HEADER_SIZE, BatchView, iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.testing import Broker

from .mirror_process import SESSION_TIMEOUT_MS, copy

PROGRAM = Path(__file__).with_name("mirror_process.py")
PARTITIONS = 2
TIME = 1_700_000_000_000
NUMBERS = itertools.count()
Row = tuple[bytes | None, bytes | None, int | None, tuple[tuple[str, bytes | None], ...]]


CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.min.session.timeout.ms": SESSION_TIMEOUT_MS,
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with Broker(configs=CONFIGS) as source, Broker(configs=CONFIGS) as target:
        yield source, target


@pytest.fixture
def servers(brokers: tuple[Broker, Broker]) -> tuple[str, str]:
    return brokers[0].bootstrap_servers, brokers[1].bootstrap_servers


@pytest.fixture
def topic() -> str:
    return f"mirrored-{next(NUMBERS)}"


def batch(name: str, number: int, count: int = 8) -> BatchView:
    """Random-looking keys, some null, so that records go everywhere."""
    rows = [
        RecordData(
            TIME + number,
            None if n % 5 == 4 else b"%s-%d" % (name.encode(), n % 7),
            b"%d.%d" % (number, n) * 9,
            [("n", b"%d" % n)],
        )
        for n in range(count)
    ]
    return BatchView(build_batch(rows, compression=("none", "lz4", "zstd")[number % 3]))


def fill(servers: str, topic: str, numbers: range) -> None:
    """Transactions in every partition; each third is aborted, after another that overlaps it was committed."""
    with Cluster(servers) as cluster:
        first, second = BatchProducer(cluster, f"{topic}-a"), BatchProducer(cluster, f"{topic}-b")
        first.initialize()
        second.initialize()
        for number in numbers:
            positions = [(topic, index) for index in range(PARTITIONS)]
            for producer in (first, second):
                producer.begin(positions)
                for position in positions:
                    producer.send(position, [batch(topic, number * 2 + (producer is first))] * 2)
            second.commit()
            if number % 3 == 0:
                first.initialize()
            else:
                first.commit()


def content(servers: str, topic: str, *, with_offsets: bool = False) -> dict[int, list[Any]]:
    """The records of each partition for a read_committed consumer, up to an open transaction."""
    with Cluster(servers) as cluster:
        keys = [(topic, index) for index in range(len(cluster.topics.get(topic).partitions))]
        starts, ends = (
            {
                key: info.offset
                for key, info in cluster.records.list_offsets(
                    dict.fromkeys(keys, limit), isolation="read_committed"
                ).items()
            }
            for limit in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
        )
    found: dict[int, list[Any]] = {index: [] for _, index in keys}
    with RecordConsumer(servers, starts, ends=ends) as consumer:
        for records in consumer.batches():
            for record in records:
                row = record.key, record.value, record.timestamp_ms, record.headers
                found[record.partition].append((record.offset, row) if with_offsets else row)
    return found


def bodies_of(cluster: Cluster, topic: str) -> Iterator[bytes]:
    """The records of partition 0 as they are stored, batch by batch."""
    offset, end = 0, cluster.records.list_offsets({(topic, 0): LATEST_TIMESTAMP})[topic, 0].offset
    while offset < end:
        for batch in iter_batches(cluster.records.fetch(topic, 0, offset).records):
            offset = batch.next_offset
            if not batch.is_control:
                yield bytes(batch.to_bytes()[HEADER_SIZE:])


def in_order_of_values(found: dict[int, list[Row]]) -> list[Row]:
    return sorted((row for rows in found.values() for row in rows), key=lambda row: (row[1] or b"", row[0] or b""))


def test_batches_are_copied_unchanged_and_only_once(servers, topic) -> None:
    source, target = servers
    with Cluster(source) as cluster:
        cluster.topics.create(topic, PARTITIONS, configs={"retention.ms": "-1", "min.insync.replicas": "1"})
    fill(source, topic, range(3))
    command = ["mirror", "--from", source, "--to", target, "--topics", topic, "--once"]
    done = CliRunner().invoke(cli, [*command, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["records"], report["lag"]) == (5 * 2 * 8 * PARTITIONS, 0)
    assert content(source, topic) == content(target, topic)
    assert any(content(source, topic)[0])
    with Cluster(target) as there, Cluster(source) as here:
        settings = {entry.name: entry for entry in there.configs.describe(ResourceType.TOPIC, topic)}
        assert settings["retention.ms"].source == "topic"
        assert settings["min.insync.replicas"].source != "topic"
        bodies = [set(bodies_of(cluster, topic)) for cluster in (here, there)]
    assert bodies[1] <= bodies[0]
    assert len(bodies[1]) >= 5

    fill(source, topic, range(3, 5))
    done = CliRunner().invoke(cli, command, catch_exceptions=False)
    columns, line = done.stdout.splitlines()
    assert columns.split()[:2] == ["SECONDS", "RECORDS"]
    assert line.split()[1] == "96"
    assert content(source, topic) == content(target, topic)

    with Cluster(source) as cluster:
        cluster.topics.create_partitions(topic, PARTITIONS + 1)
    copy(source, target, topic)
    with Cluster(target) as cluster:
        assert len(cluster.topics.get(topic).partitions) == PARTITIONS + 1


def test_fewer_partitions_get_records_by_their_keys(servers, topic) -> None:
    source, target = servers
    with Cluster(source) as cluster, Cluster(target) as there:
        cluster.topics.create(topic, PARTITIONS)
        there.topics.create(f"eu.{topic}", 3)
    fill(source, topic, range(4))
    copy(source, target, topic, "eu.{topic}")
    found = content(target, f"eu.{topic}")
    assert in_order_of_values(found) == in_order_of_values(content(source, topic))
    for partition, rows in found.items():
        assert {hash_partition(key, 3) for key, *_ in rows if key is not None} <= {partition}


KILLS = {
    PARTITIONS: ("before init 2", "after send 2", "before commit 4", "after commit 4"),
    3: ("after send 2",),
}
"""By the partitions of the target."""


@pytest.mark.promise("M1")
@pytest.mark.parametrize("count", [PARTITIONS, 3], ids=["as they are", "by keys"])
def test_kill_at_any_point_loses_and_duplicates_nothing(servers, topic, count) -> None:
    source, target = servers
    with Cluster(source) as cluster, Cluster(target) as there:
        cluster.topics.create(topic, PARTITIONS)
        there.topics.create(topic, count)
    fill(source, topic, range(9))
    copied = []
    for point in KILLS[count]:
        when, number = point.rsplit(" ", 1)
        command = [sys.executable, str(PROGRAM), source, target, topic, "--at", when, "--number", number]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == -9, done.stdout + done.stderr
        copied.append(sum(len(rows) for rows in content(target, topic).values()))
    assert copied[-1] < sum(len(rows) for rows in content(source, topic).values()), "all were killed too late"
    copy(source, target, topic)
    if count == PARTITIONS:
        assert content(source, topic) == content(target, topic)
    assert in_order_of_values(content(source, topic)) == in_order_of_values(content(target, topic))


@pytest.mark.promise("M2")
@pytest.mark.parametrize("count", [PARTITIONS, 3], ids=["as they are", "by keys"])
def test_groups_continue_at_their_offsets(servers, topic, count) -> None:
    source, target = servers
    with Cluster(source) as cluster, Cluster(target) as there:
        cluster.topics.create(topic, PARTITIONS)
        there.topics.create(topic, count)
        fill(source, topic, range(4))
        end = cluster.records.list_offsets({(topic, 0): LATEST_TIMESTAMP})[topic, 0].offset
        groups = {f"{topic}-{offset}": offset for offset in range(0, end + 1, 11)} | {f"{topic}-{end}": end}
        for group, offset in groups.items():
            cluster.groups.commit_offsets(group, {(topic, index): offset for index in range(PARTITIONS)})
        if count == PARTITIONS:
            command = [sys.executable, str(PROGRAM), source, target, topic, "--at", "after commit", "--number", "9"]
            subprocess.run(command, check=False)
        copy(source, target, topic, groups=f"{topic}-.*")
        fill(source, topic, range(4, 5))
        copy(source, target, topic, groups=f"{topic}-.*")
        wanted, found = content(source, topic, with_offsets=True), content(target, topic, with_offsets=True)
        for group, offset in groups.items():
            carried = {index: each.offset for (_, index), each in there.groups.offsets(group).items()}
            left = {index: [row for at, row in rows if at >= offset] for index, rows in wanted.items()}
            read = {index: [row for at, row in rows if at >= carried[index]] for index, rows in found.items()}
            if count == PARTITIONS:
                assert read == left, (group, carried)
            assert not set(in_order_of_values(left)) - set(in_order_of_values(read)), (group, carried)

        first = f"{topic}-0"
        there.groups.commit_offsets(first, {(topic, 0): found[0][-1][0]})
        copy(source, target, topic, groups=f"{topic}-.*")
        assert there.groups.offsets(first)[topic, 0].offset == found[0][-1][0], "a group never goes back"


def test_brokers_may_go_while_it_runs(brokers, servers, topic) -> None:
    source, target = servers
    with Cluster(source) as cluster:
        cluster.topics.create(topic, PARTITIONS)
    command = [sys.executable, "-m", "ottla", "mirror", "--from", source, "--to", target, "--topics", topic]
    process = subprocess.Popen(
        [*command, "--interval", "0.1", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None

    def copied(count: int) -> None:
        """Wait until that many records are copied and nothing is left; each report is a line."""
        for line in process.stdout or ():
            report = json.loads(line)
            if report["records"] >= count and report["lag"] == 0:
                return
        raise AssertionError("the mirror ended")

    try:
        fill(source, topic, range(1, 3))
        copied(4 * 16 * PARTITIONS)
        for number, broker in enumerate(brokers):
            broker.restart(crash=True)
            fill(source, topic, range(4 + 3 * number, 6 + 3 * number))
            copied((8 + 4 * number) * 16 * PARTITIONS)
    finally:
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    assert content(source, topic) == content(target, topic)


class Members:
    """Mirrors that share the work under one group; all end with it."""

    def __init__(self, source: str, target: str, topic: str) -> None:
        self._command = [sys.executable, str(PROGRAM), source, target, topic, "--share", topic]
        self._source, self._group = source, topic
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        self.processes.append(subprocess.Popen([*self._command, *map(str, arguments)]))
        return self.processes[-1]

    def wait_for(self, count: int) -> None:
        """Until so many members have a partition each."""
        with Cluster(self._source) as cluster:
            while True:
                assert all(process.poll() in (None, -signal.SIGKILL) for process in self.processes), "a mirror ended"
                with contextlib.suppress(KafkaError):
                    found = cluster.groups.describe(self._group)
                    shares = [sum(map(len, member.assignment.values())) for member in found.members]
                    if found.state == "Stable" and shares == [PARTITIONS // count] * count:
                        return
                time.sleep(0.05)


def until_equal(source: str, target: str, topic: str) -> None:
    """Wait for it; pytest's own limit ends it."""
    wanted = content(source, topic)
    while content(target, topic) != wanted:
        time.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_mirrors_share_work_and_take_over_from_a_dead_one(servers, topic, number) -> None:
    """Within a transaction; one that stands still for a while comes back as a zombie, and has to do no harm."""
    source, target = servers
    with Cluster(source) as cluster:
        cluster.topics.create(topic, PARTITIONS)
    with Members(source, target, topic) as members:
        members.start()
        members.wait_for(1)
        gone = members.start("--at", "after send", "--number", 3, "--signal", int(number))
        members.wait_for(2)
        fill(source, topic, range(5))
        until_equal(source, target, topic)
        members.wait_for(1)
        if number == signal.SIGSTOP:
            gone.send_signal(signal.SIGCONT)
            members.wait_for(2)
            fill(source, topic, range(5, 8))
            until_equal(source, target, topic)
            assert gone.poll() is None
        members.processes[0].send_signal(signal.SIGINT)
        members.processes[0].wait(60)
        fill(source, topic, range(8, 9))
        if number == signal.SIGSTOP:
            until_equal(source, target, topic)
    copy(source, target, topic)
    assert content(source, topic) == content(target, topic)


class Given:
    """A membership that gives always the same."""

    def __init__(self, *positions: TopicPartition) -> None:
        self.assignment = frozenset(positions)

    def join(self, topics: Iterable[str]) -> None:
        """At once."""

    def poll(self, wait_s: float) -> None:
        """Nothing changes."""


@pytest.mark.promise("M2")
def test_no_group_goes_beyond_what_another_mirror_has_open(servers, topic) -> None:
    """It writes to the same partition; its future commits are before the records of this one."""
    source, target = servers
    ends = Endpoint(source, PLAINTEXT), Endpoint(target, PLAINTEXT)
    settings = driver.Settings(re.compile(topic), "{topic}", True, 3600.0, re.compile(topic))
    with Cluster(source) as cluster, Cluster(target) as there:
        cluster.topics.create(topic, PARTITIONS)
        there.topics.create(topic, 1)
        copy(source, target, topic, groups=topic)
        fill(source, topic, range(1, 2))
        route = Route(cluster.describe().cluster_id or "", topic, 1, topic)
        other = BatchProducer(there, route.transactional_id)
        other.initialize()
        other.begin([(topic, 0)])
        (first,) = other.send((topic, 0), [batch(topic, 0)])
        positions = {(topic, index): LATEST_TIMESTAMP for index in range(PARTITIONS)}
        here = {key: info.offset for key, info in cluster.records.list_offsets(positions).items()}
        cluster.groups.commit_offsets(topic, {**here, (topic, 1): 0})
        members = cast(Membership, Given((topic, 0)))
        session = driver.Session(cluster, there, ends, settings, members, ProgressTopic(), print)
        session.open({})
        session.copy(driver.Totals(), lambda totals: None)
        assert there.groups.offsets(topic)[topic, 0].offset == first
        other.initialize()
        copy(source, target, topic, groups=topic)
        skipped = [row for at, row in content(target, topic, with_offsets=True)[0] if at < first]
        assert skipped == []
        assert in_order_of_values(content(target, topic)) == in_order_of_values(content(source, topic))


def test_acls_of_the_topics_go_along(servers, topic) -> None:
    source, target = servers
    fields = (ResourceType.TOPIC, topic, PatternType.LITERAL, "User:a", "*")
    given = [Acl(*fields, operation, Permission.ALLOW) for operation in (AclOperation.WRITE, AclOperation.ALL)]
    with Cluster(source) as cluster, Cluster(target) as there:
        cluster.topics.create(topic, 1)
        cluster.acls.create(given)
        command = ["mirror", "--from", source, "--to", target, "--topics", topic, "--rename", "eu.{topic}", "--once"]
        for arguments, operations in (([], []), (["--acls"], [AclOperation.READ])):
            done = CliRunner().invoke(cli, [*command, *arguments], catch_exceptions=False)
            assert done.exit_code == 0, done.stderr
            found = there.acls.find(AclFilter(principal="User:a"))
            assert found == [
                Acl(*fields, each, Permission.ALLOW)._replace(resource_name=f"eu.{topic}") for each in operations
            ]


def test_operator_mistakes_are_reported_at_once(servers, topic) -> None:
    source, target = servers
    with Cluster(source) as cluster:
        cluster.topics.create(topic, 1)
        cluster.topics.create("progress", 1)
    for arguments, words in (
        (("--from", source, "--to", target, "--topics", "nothing"), "matches --topics 'nothing'"),
        (("--from", "127.0.0.1:1", "--to", target, "--topics", ".*"), "cannot connect to 127.0.0.1:1"),
        (("--from", source, "--to", target, "--topics", "("), "is not a regular expression"),
        (("--from", source, "--to", target, "--topics", ".*", "--rename", "x"), "lacks the topic name placeholder"),
        (("--from", source, "--to", target, "--topics", topic, "--rename", "a b{topic}"), "choose another --rename"),
        (("--from", source, "--to", target, "--topics", topic, "--rename", "a" * 240 + "{topic}"), "another --rename"),
        (("--from", source, "--to", target, "--topics", "progress", "--rename", "ottla-mirror-{topic}"), "--rename"),
        (("--from", source, "--to", target, "--topics", ".*", "--share", ""), "--share"),
        (("--from", source, "--to", target, "--topics", ".*", "--to-config", "/none"), "--to-config"),
        (
            ("--from", source, "--to", target, "--topics", ".*", "--share", "g", "--once"),
            "a mirror that stops leaves",
        ),
    ):
        done = CliRunner().invoke(cli, ["mirror", *arguments])
        assert done.exit_code == 2, done.output
        assert words in done.stderr


def test_what_comes_back_is_refused(servers, topic) -> None:
    source, target = servers
    with Cluster(source) as cluster:
        cluster.topics.create(topic, 1)
    copy(source, target, topic, "eu.{topic}")
    command = ["mirror", "--once", "--topics", f"eu.{topic}", "--from", target, "--to", source]
    done = CliRunner().invoke(cli, command)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "records would be copied forever" in done.stderr
    with Cluster(source) as cluster:
        assert f"eu.{topic}" not in cluster.topics.all()
    done = CliRunner().invoke(cli, ["mirror", "--once", "--topics", topic, "--from", source, "--to", source])
    assert "are the same cluster" in done.stderr


def test_progress_behind_an_open_transaction_is_waited_for(servers, topic, monkeypatch) -> None:
    """Of another mirror: until it ends, readers of committed records don't see what this one committed behind it."""
    source, target = servers
    with Cluster(source) as cluster:
        cluster.topics.create(topic, PARTITIONS)
    copy(source, target, topic)
    fill(source, topic, range(1, 2))
    with Cluster(target) as there:
        other = BatchProducer(there, f"other-{topic}")
        other.initialize()
        begin = BatchProducer.begin

        def begin_behind(self: BatchProducer, positions: Iterable[TopicPartition]) -> None:
            if not other.is_open:
                begin(other, [PROGRESS])
                other.send(PROGRESS, [BatchView(build_batch([RecordData(TIME, b'["later","A","t",0,"t"]', b"{}")]))])
            begin(self, positions)

        class Reader(RecordConsumer):
            """Made once the end is known."""

            def __init__(self, *arguments: Any, **named: Any) -> None:
                super().__init__(*arguments, **named)
                other.commit()

        with monkeypatch.context() as patched:
            patched.setattr(BatchProducer, "begin", begin_behind)
            copy(source, target, topic)
        with monkeypatch.context() as patched:
            patched.setattr(opening, "RecordConsumer", Reader)
            copy(source, target, topic)
    assert content(source, topic) == content(target, topic)


def test_new_topics_are_copied_and_a_fenced_mirror_ends(servers, topic, monkeypatch) -> None:
    """In its course another mirror takes over what this one copies."""
    source, target = servers
    monkeypatch.setattr(driver, "REFRESH_S", 0.0)
    with Cluster(source) as cluster:
        cluster.topics.create(topic, PARTITIONS)
    later, others = f"{topic}-later", []

    def report(totals: driver.Totals) -> None:
        if (later, 0) not in totals.lags and not others:
            with Cluster(source) as cluster:
                if later not in cluster.topics.all():
                    cluster.topics.create(later, PARTITIONS)
                    fill(source, later, range(1, 2))
        elif sum(totals.lags.values()) == 0 and totals.records and not others:
            other = BatchProducer(Cluster(target), Route(cluster_id, later, 0, later).transactional_id)
            other.initialize()
            other.begin([(later, 0)])
            others.append(other)
            fill(source, later, range(2, 3))

    with Cluster(source) as cluster:
        cluster_id = cluster.describe().cluster_id or ""
    settings = driver.Settings(re.compile(f"{topic}.*"), "{topic}", False, 0.0)
    ends = Endpoint(source, PLAINTEXT), Endpoint(target, PLAINTEXT)
    with pytest.raises(KafkaError, match="another mirror has taken over"):
        driver.Mirror(*ends, settings, print, report).run()
    others[0].commit()
    copy(source, target, f"{topic}.*")
    assert content(source, later) == content(target, later)


def test_a_topic_that_goes_is_waited_for(servers, topic, monkeypatch) -> None:
    """Recreating it may take longer than the mirror's check interval."""
    source, target = servers
    monkeypatch.setattr(driver, "REFRESH_S", 0.0)
    heard: list[str] = []

    class Copied(Exception):
        pass

    def make(number: int) -> None:
        with Cluster(source) as cluster:
            cluster.topics.create(topic, PARTITIONS)
        fill(source, topic, range(number, number + 1))

    def waits() -> bool:
        return any("waiting for one" in sentence for sentence in heard)

    def log(sentence: str) -> None:
        heard.append(sentence)
        if "waiting for one" in sentence:
            make(2)

    def report(totals: driver.Totals) -> None:
        if waits() and set(in_order_of_values(content(source, topic))) <= set(
            in_order_of_values(content(target, topic))
        ):
            raise Copied
        with Cluster(source) as cluster:
            if totals.records and not waits() and topic in cluster.topics.all():
                cluster.topics.delete([topic])

    make(1)
    settings = driver.Settings(re.compile(topic), "{topic}", False, 0.0)
    with pytest.raises(Copied):
        driver.Mirror(Endpoint(source, PLAINTEXT), Endpoint(target, PLAINTEXT), settings, log, report).run()
    assert sum(waits() and "waiting for one" in sentence for sentence in heard) == 1


@pytest.mark.promise("M4")
def test_progress_that_went_between_two_runs_is_missed(servers, topic) -> None:
    """Also where one partition of two has something, and where the target's topic has another name."""
    source, target = servers
    with Cluster(source) as cluster, Cluster(target) as there:
        cluster.topics.create(topic, PARTITIONS)
        copy(source, target, topic, "eu.{topic}")
        fill(source, topic, range(2))
        copy(source, target, topic, "eu.{topic}")
        copied = content(target, f"eu.{topic}")
        there.topics.delete([PROGRESS_TOPIC])
    command = ["mirror", "--from", source, "--to", target, "--topics", topic, "--rename", "eu.{topic}", "--once"]
    for _ in range(2):
        done = CliRunner().invoke(cli, command)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
        assert f"topic 'eu.{topic}' of the target contains records" in done.stderr
    assert content(target, f"eu.{topic}") == copied == content(source, topic)
    done = CliRunner().invoke(cli, [*command, "--append"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert content(target, f"eu.{topic}") == {index: rows * 2 for index, rows in copied.items()}
    copy(source, target, topic, "eu.{topic}")
    assert content(target, f"eu.{topic}") == {index: rows * 2 for index, rows in copied.items()}


def refused(source: str, target: str, topic: str) -> str:
    done = CliRunner().invoke(cli, ["mirror", "--from", source, "--to", target, "--topics", topic, "--once"])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    return done.stderr


@pytest.mark.promise("M4")
def test_progress_that_was_put_back_is_refused(servers, topic) -> None:
    """Records that the target already has would be duplicated; a recreated topic is filled from the beginning."""
    source, target = servers
    with Cluster(source) as cluster:
        cluster.topics.create(topic, PARTITIONS)
    fill(source, topic, range(2))
    copy(source, target, topic)
    older = progress_of(target, topic)
    fill(source, topic, range(2, 4))
    copy(source, target, topic)
    with Cluster(target) as cluster:
        writer = BatchProducer(cluster, f"{topic}-put-back")
        writer.initialize()
        writer.begin([PROGRESS])
        writer.send(PROGRESS, [BatchView(build_batch(older))])
        writer.commit()
    assert f"topic '{PROGRESS_TOPIC}' only includes those below" in refused(source, target, topic)
    assert content(target, topic) == content(source, topic)
    with Cluster(target) as cluster:
        cluster.topics.delete([topic])
    copy(source, target, topic)
    assert content(target, topic) == content(source, topic)


def progress_of(servers: str, topic: str) -> list[RecordData]:
    """The newest record of each of its routes."""
    with Cluster(servers) as cluster:
        end = cluster.records.list_offsets({PROGRESS: LATEST_TIMESTAMP})[PROGRESS].offset
    found = {}
    with RecordConsumer(servers, {PROGRESS: 0}, ends={PROGRESS: end}) as consumer:
        for records in consumer.batches():
            for one in records:
                if json.loads(one.key or b"")[2] == topic:
                    found[one.key] = RecordData(TIME, one.key, one.value)
    return list(found.values())


@pytest.mark.promise("M4")
def test_target_that_lost_its_end_is_refused(servers, topic) -> None:
    source, _ = servers
    with Cluster(source) as cluster:
        cluster.topics.create(topic, PARTITIONS)
    fill(source, topic, range(2))
    with Broker() as broker:
        copy(source, broker.bootstrap_servers, topic)
        broker.stop()
        for path in (broker.data_dir / f"{topic}-1").iterdir():
            if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
                path.unlink()
        broker.start()
        text = refused(source, broker.bootstrap_servers, topic)
    assert f"{topic}-1 of the target ends at offset 0, but was written up to" in text
    assert f"ottla topic delete {topic}" in text


def test_partitions_that_come_are_not_taken_for_lost_progress(servers, topic) -> None:
    source, target = servers
    with Cluster(source) as cluster:
        cluster.topics.create(topic, 1)
        producer = BatchProducer(cluster, topic)
        producer.initialize()
        for count in (1, 2):
            if count > 1:
                cluster.topics.create_partitions(topic, count)
            producer.begin([(topic, count - 1)])
            producer.send((topic, count - 1), [batch(topic, 0)])
            producer.commit()
            copy(source, target, topic)
    assert content(source, topic) == content(target, topic)


def test_a_second_source_goes_into_the_same_topic(servers, topic) -> None:
    """Records of the first source are not lost progress."""
    source, target = servers
    names = f"{topic}-one", f"{topic}-two"
    with Cluster(source) as cluster:
        for name in names:
            cluster.topics.create(name, PARTITIONS)
            fill(source, name, range(1))
            copy(source, target, name, topic)
    both = [content(source, name) for name in names]
    assert content(target, topic) == {index: both[0][index] + both[1][index] for index in range(PARTITIONS)}


@pytest.mark.parametrize("recreated", [False, True], ids=["gone", "recreated"])
@pytest.mark.parametrize("idle", [False, True], ids=["writing", "idle"])
def test_progress_that_goes_while_it_runs_ends_the_mirror(servers, topic, monkeypatch, recreated, idle) -> None:
    """The one that has nothing to write looks now and then; the other one notices before it commits."""
    source, target = servers
    monkeypatch.setattr(driver, "REFRESH_S", 0.0 if idle else 3600.0)
    with Cluster(source) as cluster:
        cluster.topics.create(topic, PARTITIONS)
    fill(source, topic, range(1, 2))
    deleted = []

    def report(totals: driver.Totals) -> None:
        if deleted or not totals.records or sum(totals.lags.values()):
            return
        with Cluster(target) as there:
            there.topics.delete([PROGRESS_TOPIC])
            if recreated:
                there.topics.create(PROGRESS_TOPIC, 1, configs={POLICY: COMPACT})
        deleted.append(PROGRESS_TOPIC)
        if not idle:
            fill(source, topic, range(2, 3))

    settings = driver.Settings(re.compile(topic), "{topic}", False, 0.0)
    with pytest.raises(OperatorError, match="was deleted or lost records while this mirror ran"):
        driver.Mirror(Endpoint(source, PLAINTEXT), Endpoint(target, PLAINTEXT), settings, print, report).run()
    copied = content(target, topic)
    assert {index: rows[: len(copied[index])] for index, rows in content(source, topic).items()} == copied
    with pytest.raises(OperatorError, match="use --append"):
        copy(source, target, topic)
    assert content(target, topic) == copied


def test_an_interrupt_leaves_nothing_open(servers, topic, monkeypatch) -> None:
    source, target = servers
    with Cluster(source) as cluster:
        cluster.topics.create(topic, 1)
    fill_one = [batch(topic, 0)]
    with Cluster(source) as cluster:
        producer = BatchProducer(cluster, topic)
        producer.initialize()
        producer.begin([(topic, 0)])
        producer.send((topic, 0), fill_one)
        producer.commit()

    def interrupted(self: BatchProducer) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        copy(source, target, f"{topic}-none|{topic}")
        patched.setattr(BatchProducer, "commit", interrupted)
        with Cluster(target) as there:
            there.topics.delete([topic])
        with pytest.raises(KeyboardInterrupt):
            copy(source, target, topic)
    with Cluster(target) as there:
        ends = [
            there.records.list_offsets({(name, 0): LATEST_TIMESTAMP}, isolation=level)[name, 0].offset
            for name in (topic, PROGRESS_TOPIC)
            for level in ("read_committed", "read_uncommitted")
        ]
    assert ends[0::2] == ends[1::2]
    copy(source, target, topic)
    assert content(source, topic) == content(target, topic)
