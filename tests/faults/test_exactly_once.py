"""Consume, transform, produce: copiers and brokers are killed at random points of transactions, and for read_committed
consumers the output equals the input, once and in order.

OTTLA_EXACTLY_ONCE_KILLS=50 sets the number of killed copiers and brokers in each test, as `make exactly-once` does.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import LATEST_TIMESTAMP
from ottla.common.errors import OttlaError

from ..cluster.nodes import Nodes, eventually
from .copier import EXIT_FATAL, STEPS
from .proxy import HOST, Proxy

KILLS = int(os.environ.get("OTTLA_EXACTLY_ONCE_KILLS", "1"))
TRIALS = [(1, "classic"), (1, "consumer"), (3, "classic"), (3, "consumer")]
"""All of them where there is more than one kill."""
PARTITIONS = 4
COPIERS = 2
LOST_ANSWERS = 15
PAUSE_S = 0.1
"""Delay between batches of ten records: a busy machine can copy at this rate too."""
STEPS_APART = 60
"""The most steps of copiers from one kill to the next."""
WAIT_S = 90.0
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}
ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"session.timeout.ms": 3000, "heartbeat.interval.ms": 300},
    "consumer": {"group.protocol": "consumer"},
}


class Feeder(threading.Thread):
    """An idempotent producer of 0, 1, 2, ... to the partitions in turn, at a pace that copiers can follow."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._ended = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._ended.wait(PAUSE_S):
            for _ in range(10):
                self._producer.produce(self._topic, b"%d" % self.count, partition=self.count % PARTITIONS)
                self.count += 1
            self._producer.poll(0)

    def end(self) -> None:
        self._ended.set()

    def finish(self) -> int:
        """The number of records, all acknowledged."""
        self.end()
        self.join()
        assert self._producer.flush(WAIT_S) == 0
        return self.count


class CopierProcess:
    """A copier that is started again whenever it ended."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._errors = (folder / f"{settings['name']}.err").open("ab")
        self._steps = (folder / f"{settings['name']}.out").open("ab")
        self.fatal = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("copier.py")), json.dumps(self._settings)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._steps, stderr=self._errors, start_new_session=True
        )

    def steps(self) -> int:
        """Steps reported so far, over all processes."""
        return Path(self._steps.name).read_bytes().count(b"\n")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def look_after(self) -> None:
        """Restart it if it ended, as a supervisor would; only a fatal error may end it."""
        code = self._process.poll()
        if code is not None:
            assert code == EXIT_FATAL, Path(self._errors.name).read_text()[-2000:]
            self.fatal += 1
            self.start()

    def finish(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(WAIT_S) in (0, EXIT_FATAL)

    def close(self) -> None:
        self.kill()
        self._errors.close()
        self._steps.close()


class Course:
    """One run: a feeder, copiers, and the schedule of kills."""

    def __init__(self, nodes: Nodes, folder: Path, protocol: str) -> None:
        self.nodes = nodes
        self._random = random.Random()
        servers = nodes.bootstrap_servers
        self._servers = servers
        replicas = len(nodes.nodes)
        configs = {"min.insync.replicas": str(min(2, replicas))}
        admin = AdminClient({"bootstrap.servers": servers})
        topics = [NewTopic(name, PARTITIONS, replicas, config=configs) for name in ("source", "target")]
        for made in admin.create_topics(topics).values():
            made.result(WAIT_S)
        self._feeder = Feeder(servers, "source")
        settings = {"servers": servers, "source": "source", "target": "target", "group": "copiers"}
        self._copiers = [
            CopierProcess(folder, {**settings, "name": f"copier-{number}", "consumer": PROTOCOLS[protocol]})
            for number in range(COPIERS)
        ]

    def run(self, kills: int) -> None:
        """Kill `kills` copiers and as many brokers, then compare."""
        self._feeder.start()
        self._progress(len(STEPS) * 3)
        victims = ["copier", "broker"] * kills
        self._random.shuffle(victims)
        for victim in victims:
            self._progress(self._random.randrange(STEPS_APART))
            if victim == "copier":
                copier = self._random.choice(self._copiers)
                copier.kill()
                copier.start()
            else:
                node = self._random.choice(self.nodes.nodes)
                node.kill()
                self._progress(0 if len(self.nodes.nodes) == 1 else self._random.randrange(STEPS_APART // 4))
                node.start()
        self._compare()
        restarted = sum(copier.fatal for copier in self._copiers)
        print(f"{self._feeder.count} records; {kills} copiers and brokers killed, {restarted} fatal errors")

    def run_behind(self, proxy: Proxy, lost: int) -> None:
        """Until so many answers were lost, then compare."""
        proxy.troubled = True
        self._feeder.start()
        self._until(lambda: proxy.lost >= lost, f"{lost} answers are lost")
        proxy.troubled = False
        self._compare()
        print(f"{self._feeder.count} records; {proxy.lost} answers lost, {proxy.late} late")

    def run_beside(self, changes: Iterable[Callable[[], None]]) -> None:
        """Make each change of the cluster after some steps of the copiers, then compare."""
        self._feeder.start()
        for change in changes:
            self._progress(len(STEPS) * 3)
            change()
        self._progress(len(STEPS) * 3)
        self._compare()
        print(f"{self._feeder.count} records")

    def _compare(self) -> None:
        """Wait until all is copied; the output is the input."""
        count = self._feeder.finish()
        copied = self._copied()
        while copied < count:  # however many are left after all the kills, some more come in time
            self._until(partial(self._copied_beyond, copied), f"more than {copied} of {count} are copied")
            copied = self._copied()
        for copier in self._copiers:
            copier.finish()
        self._until_settled()
        check(read(self._servers, "source"), count)
        check(read(self._servers, "target"), count)
        for node in self.nodes.nodes:
            assert "Traceback" not in node.log_text()

    def _until_settled(self) -> None:
        """Wait for the markers: the end of a transaction is answered before they are in every partition."""
        places = dict.fromkeys((("target", partition) for partition in range(PARTITIONS)), LATEST_TIMESTAMP)

        def settled() -> bool:
            with suppress(OttlaError), Cluster(self._servers) as cluster:
                stable = cluster.records.list_offsets(places, isolation="read_committed")
                ends = cluster.records.list_offsets(places)
                return all(stable[place].offset == ends[place].offset for place in places)
            return False

        eventually(settled, "every transaction has ended", WAIT_S)

    def close(self) -> None:
        self._feeder.end()
        for copier in self._copiers:
            copier.close()

    def _progress(self, steps: int) -> None:
        """Wait until the copiers reported this many more steps."""
        before = self._steps()
        self._until(lambda: self._steps() >= before + steps, f"{steps} steps of copiers")

    def _steps(self) -> int:
        return sum(copier.steps() for copier in self._copiers)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def looked_after() -> bool:
            for copier in self._copiers:
                copier.look_after()
            return condition()

        eventually(looked_after, what, WAIT_S)

    def _copied_beyond(self, count: int) -> bool:
        return self._copied() > count

    def _copied(self) -> int:
        """The committed offsets of the group."""
        consumer = Consumer(
            {"bootstrap.servers": self._servers, "group.id": "copiers", "isolation.level": "read_committed"}
        )
        places = [TopicPartition("source", partition) for partition in range(PARTITIONS)]
        found = consumer.committed(places, WAIT_S)
        consumer.close()
        return sum(max(each.offset, 0) for each in found)


def read(servers: str, topic: str) -> dict[int, list[int]]:
    """The records of a read_committed consumer, by partition; the end is where a first read finds no open
    transaction."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    found: dict[int, list[int]] = defaultdict(list)
    ended: set[int] = set()
    deadline = time.monotonic() + WAIT_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"{topic} was not read to its end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            ended.add(message.partition())
        else:
            found[message.partition()].append(int(message.value()))
    consumer.close()
    return found


def check(found: dict[int, list[int]], count: int) -> None:
    """Each number below `count` once, in its partition and in order."""
    times = Counter(number for numbers in found.values() for number in numbers)
    twice = sorted(number for number, seen in times.items() if seen > 1)
    missing = sorted(set(range(count)) - set(times))
    assert not twice, f"{len(twice)} records are there more than once, among them {twice[:10]}"
    assert not missing, f"{len(missing)} records are missing, among them {missing[:10]}"
    for partition, numbers in found.items():
        assert numbers == list(range(partition, count, PARTITIONS)), f"partition {partition} is not in order"


def test_the_check_notices() -> None:
    """A check that accepts everything proves nothing."""
    good = {partition: list(range(partition, 40, PARTITIONS)) for partition in range(PARTITIONS)}
    check(good, 40)
    with pytest.raises(AssertionError, match="more than once"):
        check({**good, 1: [*good[1], 37]}, 40)
    with pytest.raises(AssertionError, match="missing"):
        check({**good, 1: good[1][:-1]}, 40)
    with pytest.raises(AssertionError, match="not in order"):
        check({**good, 1: [5, 1, *good[1][2:]]}, 40)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Course]]:
    """Start so many brokers, and begin a course on them."""
    with ExitStack() as stack:

        def begin(brokers: int, protocol: str, proxy: Proxy | None = None) -> Course:
            settings = SETTINGS if brokers > 1 else {**SETTINGS, **ALONE}
            if proxy is not None:
                settings = {**settings, "advertised.listeners": f"PLAINTEXT://{HOST}:{proxy.port}"}
            nodes = Nodes(tmp_path, brokers, settings)
            stack.callback(nodes.close)
            nodes.start()
            if proxy is not None:
                proxy.connect_to(nodes[1].port)
            course = Course(nodes, tmp_path, protocol)
            stack.callback(course.close)
            return course

        yield begin


@pytest.mark.timeout(120 + 120 * KILLS)
@pytest.mark.parametrize(("brokers", "protocol"), TRIALS if KILLS > 1 else TRIALS[::3])
def test_through_kills(begin: Callable[..., Course], brokers: int, protocol: str) -> None:
    begin(brokers, protocol).run(KILLS)


@pytest.mark.timeout(300)
def test_behind_a_proxy_that_delays_and_loses_answers(begin: Callable[..., Course]) -> None:
    with Proxy() as proxy:
        begin(1, "classic", proxy).run_behind(proxy, LOST_ANSWERS)
