"""Transactions of Java clients through kills of clients and broker: producers, groups of copiers, and Streams.

OTTLA_EXACTLY_ONCE_KILLS=50 sets the number of kills of copiers and brokers, as `make exactly-once` does.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tools import JavaTools, java

from ottla.testing import Broker

KILLS = int(os.environ.get("OTTLA_EXACTLY_ONCE_KILLS", "2"))
WAIT_S = 120.0
PARTITIONS = 3
STEPS_APART = 12
CONFIGS: dict[str, object] = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.session.timeout.ms": 3000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
}
COPIED = 5_000 + 500 * KILLS
"""Enough that records remain to be copied at the last kill."""
WORDS = ("apple", "pear", "plum", "fig", "quince")
EVERYTHING_FENCED = ["commit fenced", "send fenced"]

pytestmark = pytest.mark.timeout(240 + 120 * KILLS)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker that may be killed, with few partitions in its internal topics."""
    with Broker(configs=CONFIGS) as running:
        yield running


@pytest.fixture
def name() -> str:
    return f"java-{time.time_ns() // 1_000_000}"


def create(broker: Broker, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        made.result(30)


def fill(broker: Broker, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


def read(broker: Broker, topic: str) -> list[tuple[int, str | None, str]]:
    """Returns partition, key and value of committed records, up to the current last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "log_level": 0,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    found: list[tuple[int, str | None, str]] = []
    ended: set[int] = set()
    deadline = time.monotonic() + WAIT_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"{topic} was not read to its end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            ended.add(message.partition())
            continue
        key = message.key()
        found.append((message.partition(), None if key is None else key.decode(), message.value().decode()))
    consumer.close()
    return found


def committed(broker: Broker, group: str, topic: str) -> int:
    """Returns the number of records that a group has committed."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "log_level": 0})
    found = consumer.committed([TopicPartition(topic, partition) for partition in range(PARTITIONS)], 30)
    consumer.close()
    return sum(max(0, each.offset) for each in found)


class Program:
    """A Java program that is killed and restarted; its output accumulates over restarts."""

    def __init__(self, folder: Path, name: str, command: list[str]) -> None:
        self._command = command
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        self.start()

    def start(self) -> None:
        with self._out.open("ab") as out, self._err.open("ab") as err:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=out, stderr=err)

    def steps(self) -> int:
        return self._out.read_bytes().count(b"\n")

    def lines(self) -> list[str]:
        """Returns its printed lines, without an incomplete last line."""
        return self._out.read_text().rpartition("\n")[0].splitlines()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def finish(self) -> int:
        """Stop it by closing its standard input; returns its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(WAIT_S)

    def errors(self) -> str:
        return self._err.read_text(errors="replace")[-3000:]


class Programs:
    """The programs of one test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.all: list[Program] = []

    def start(self, name: str, command: list[str]) -> Program:
        program = Program(self._folder, name, command)
        self.all.append(program)
        return program

    def until(self, condition: Callable[[], bool], what: str, *, restart: bool = True) -> None:
        """Wait for `condition`, and restart programs that exit meanwhile."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}\n" + "\n".join(each.errors() for each in self.all)
            for each in self.all:
                if restart and each.ended:
                    each.start()
            time.sleep(0.05)

    def progress(self, steps: int) -> None:
        goal = sum(each.steps() for each in self.all) + steps
        self.until(lambda: sum(each.steps() for each in self.all) >= goal, f"{steps} steps more")


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    running = Programs(tmp_path)
    yield running
    for each in running.all:
        each.kill()


def kill_some(broker: Broker, programs: Programs, steps_apart: int = STEPS_APART) -> None:
    """Kill that many programs and the broker as often, each after some progress of the copy."""
    victims = ["program", "broker"] * KILLS
    random.shuffle(victims)
    for victim in victims:
        programs.progress(random.randrange(steps_apart))
        if victim == "broker":
            broker.restart(crash=True)
        else:
            random.choice(programs.all).restart()


def until_copied(broker: Broker, programs: Programs, group: str, source: str) -> None:
    """Wait for progress on the remaining records after all kills."""
    copied = committed(broker, group, source)
    while copied < COPIED:
        programs.until(lambda before=copied: committed(broker, group, source) > before, f"more than {copied} copied")
        copied = committed(broker, group, source)


def settle(broker: Broker, topic: str) -> None:
    """Wait until no transaction is open: a successor or the timeout aborts those of killed programs."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    ends = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}

    def end_offsets(level: IsolationLevel) -> list[int]:
        return [each.result(30).offset for each in admin.list_offsets(ends, isolation_level=level).values()]

    deadline = time.monotonic() + WAIT_S
    while end_offsets(IsolationLevel.READ_COMMITTED) != end_offsets(IsolationLevel.READ_UNCOMMITTED):
        assert time.monotonic() < deadline, "a transaction is still open"
        time.sleep(0.05)


def check_copied(broker: Broker, topic: str) -> None:
    """Check that each number is in its partition once, in order."""
    settle(broker, topic)
    found = read(broker, topic)
    times = Counter(int(value) for _, _, value in found)
    assert [number for number, seen in times.items() if seen > 1] == []
    assert sorted(times) == list(range(COPIED))
    for partition in range(PARTITIONS):
        numbers = [int(value) for place, _, value in found if place == partition]
        assert numbers == list(range(partition, COPIED, PARTITIONS))


@pytest.mark.parametrize("clients", ["4.4.0", "3.7.2"])
def test_commit_abort_and_zombies(
    java_programs: Path, java_classpath: str, java_older_classpath: str, broker: Broker, name: str, clients: str
) -> None:
    create(broker, name)
    libraries = java_classpath if clients == "4.4.0" else java_older_classpath
    command = [*java(f"{libraries}:{java_programs}"), "Transactions"]
    result = subprocess.run(
        [*command, broker.bootstrap_servers, name], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    groups = ["commit0", "commit1", "commit2"] * 3
    assert result.stdout.splitlines() == [
        *EVERYTHING_FENCED,
        "committed offset 5",
        " ".join(["read", *groups, "second", "third"]),
    ]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_copiers_in_a_group_through_kills(
    java_programs: Path, java_classpath: str, broker: Broker, programs: Programs, name: str, protocol: str
) -> None:
    source, target = f"{name}-in", f"{name}-out"
    create(broker, source, target)
    fill(broker, source, [str(number) for number in range(COPIED)])
    command = [*java(f"{java_classpath}:{java_programs}"), "Copier"]
    for number in range(2):
        arguments = [broker.bootstrap_servers, source, target, name, f"{name}-{number}", protocol]
        programs.start(f"copier-{number}", [*command, *arguments])
    kill_some(broker, programs)
    until_copied(broker, programs, name, source)
    for each in programs.all:
        each.finish()
    check_copied(broker, target)


def test_message_copiers_with_random_aborts_through_kills(
    tools: JavaTools, broker: Broker, programs: Programs, name: str
) -> None:
    """Apache Kafka's own program for its system tests, in a classic group; it exits after it has copied everything."""
    source, target = f"{name}-in", f"{name}-out"
    create(broker, source, target)
    fill(broker, source, [str(number) for number in range(COPIED)])
    arguments = ["--broker-list", broker.bootstrap_servers, "--input-topic", source, "--output-topic", target]
    arguments += ["--input-partition", "-1", "--consumer-group", name, "--transaction-size", "50"]
    arguments += ["--transaction-timeout", "10000", "--enable-random-aborts", "--group-mode", "--use-group-metadata"]
    for number in range(2):
        command = tools.command("transactional-message-copier", *arguments, "--transactional-id", f"{name}-{number}")
        programs.start(f"copier-{number}", command)
    kill_some(broker, programs)
    until_copied(broker, programs, name, source)
    for each in programs.all:
        each.kill()
    check_copied_somewhere(broker, target)


def check_copied_somewhere(broker: Broker, topic: str) -> None:
    """Check that each number occurs once; the copier uses any partition."""
    settle(broker, topic)
    times = Counter(int(value) for _, _, value in read(broker, topic))
    assert [number for number, seen in times.items() if seen > 1] == []
    assert sorted(times) == list(range(COPIED))


def test_streams_count_words_through_kills(
    java_programs: Path, java_streams_classpath: str, broker: Broker, programs: Programs, name: str, tmp_path: Path
) -> None:
    """Every count of every word, once and in order, under exactly_once_v2."""
    source, target = f"{name}-in", f"{name}-out"
    create(broker, source, target)
    lines = [f"{random.choice(WORDS)} {random.choice(WORDS)}" for _ in range(2_000)]
    fill(broker, source, lines[:500])
    command = [*java(f"{java_streams_classpath}:{java_programs}"), "WordCount"]
    arguments = [broker.bootstrap_servers, source, target, name, str(tmp_path / "state")]
    app = programs.start("words", [*command, *arguments])
    programs.until(lambda: len(read(broker, target)) > 100, "words are counted")
    for part in range(KILLS):
        some = lines[500 + 1500 * part // KILLS : 500 + 1500 * (part + 1) // KILLS]
        fill(broker, source, some)
        app.restart()
        fill(broker, source, some)
        lines += some
        broker.restart(crash=True)
        goal = 2 * (500 + 2 * (1500 * (part + 1) // KILLS))
        programs.until(lambda goal=goal: len(read(broker, target)) >= goal, "all words are counted")
    wanted = Counter(word for line in lines for word in line.split())
    app.finish()
    settle(broker, target)
    found = read(broker, target)
    for word, count in wanted.items():
        assert [int(value) for _, key, value in found if key == word] == list(range(1, count + 1)), word
