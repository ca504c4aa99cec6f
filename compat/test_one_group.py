"""Clients of six families in one group, while members join and leave and while the broker is killed.

In the new protocol the group has the clients that support it: Java's and librdkafka's.

The tests check that the owner of a partition reads each of its records, that a partition has one owner at a time, that
reading does not stall, and that all records are committed at the end. OTTLA_CHURN_SECONDS sets the duration (two
minutes on demand).
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from group_history import History
from group_members import AioKafkaMember, ConfluentMember, Feeder, GroupWatch, KafkaPythonMember, committed
from group_processes import SESSION_MS, ConsoleMember, KafkaJsMember, ProcessMember, VerifiableMember
from tools import JavaTools

from ottla.testing import Broker

CHURN_S = float(os.environ.get("OTTLA_CHURN_SECONDS", "15"))
WAIT_S = 180.0
GHOST_LIMIT_S = SESSION_MS / 1000 + 24
STALL_LIMIT_S = 60.0
"""Excludes waits for members that left without LeaveGroup. A starting JVM takes seconds on a small machine, and several
times longer on a busy one. A member that misses an event waits for minutes: as long as a poll may take.
"""
PATIENT_MS = 20_000
"""A session longer than a broker's downtime plus the retry backoff of a client."""
PARTITIONS = 12
MOST_PROCESSES = 2
CLASSIC = {"heartbeat.interval.ms": 300, "partition.assignment.strategy": "range"}
RANGE_ASSIGNOR = "org.apache.kafka.clients.consumer.RangeAssignor"
LOST_BROKER = (
    *("ECONNREFUSED", "Connection error", "Closed connection", "DisconnectException"),
    *("No broker available", "Restarting the consumer"),
    *("The coordinator is loading", "The group coordinator is not available", "NotAvailableException"),
    *("This is not the correct coordinator", "NotCoordinatorException", "LoadInProgressException"),
    *("leadership election", "This server is not the leader", "timed out", "Connection timeout", "TimeoutException"),
)
"""Messages of members while a broker is down and until it has loaded its groups; the members retry these errors."""
PROCESSES = frozenset({"kafkajs", "console", "verifiable"})

Make = dict[str, Callable[[str], Any]]
Members = Callable[..., Make]
"""All families of a protocol: (bootstrap address, history, session_ms)."""


@pytest.fixture
def name() -> str:
    return f"one-group-{time.time_ns() // 1_000_000}"


@pytest.fixture
def logging_tools(java_logging_classpath: str, java_tools_classpath: str) -> JavaTools:
    logger = "-Dorg.slf4j.simpleLogger"
    options = (f"{logger}.showDateTime=true", f"{logger}.dateTimeFormat={ConsoleMember.DATE_FORMAT}")
    return JavaTools(java_logging_classpath, java_tools_classpath, options)


@pytest.fixture
def tools(java_classpath: str, java_tools_classpath: str) -> JavaTools:
    return JavaTools(java_classpath, java_tools_classpath)


def java_members(
    tools: JavaTools,
    logging: JavaTools,
    servers: str,
    group: str,
    history: History,
    protocol: str,
    home: Path,
    session_ms: int,
) -> Make:
    lines = ["fetch.max.wait.ms=50", "metadata.max.age.ms=1000", f"group.protocol={protocol}"]
    verifiable = ["--group-protocol", protocol]
    if protocol == "classic":
        lines += [f"session.timeout.ms={session_ms}", "heartbeat.interval.ms=300"]
        verifiable += ["--assignment-strategy", RANGE_ASSIGNOR, "--session-timeout", str(session_ms)]
    at = ["--bootstrap-server", servers, "--topic", group]
    console = [*at, "--group", group, "--from-beginning"]
    for shown in ("print.partition", "print.offset"):
        console += ["--formatter-property", f"{shown}=true"]
    verifiable += [*at, "--group-id", group, "--reset-policy", "earliest"]

    def configured(name: str) -> list[str]:
        settings = home / f"{name}.properties"
        settings.write_text("\n".join([*lines, f"client.id={name}"]) + "\n")
        return ["--command-config", str(settings)]

    return {
        "console": lambda name: ConsoleMember(
            name, logging.command("kafka-console-consumer", *console, *configured(name)), history
        ),
        "verifiable": lambda name: VerifiableMember(
            name, tools.command("kafka-verifiable-consumer", *verifiable, *configured(name)), history
        ),
    }


def churn(make: Make, history: History, feeder: Feeder) -> dict[int, int]:
    """Members of every kind join and leave; at the end one of each reads the rest. Returns the log ends."""
    rng = random.Random(1)
    members: list[Any] = []
    leaving: list[Any] = []
    numbers = itertools.count()

    def add(kind: str) -> None:
        member = make[kind](f"{kind}-{next(numbers)}")
        members.append(member)
        member.start()

    def processes() -> int:
        return sum(isinstance(member, ProcessMember) for member in members)

    feeder.start()
    for kind in make:
        add(kind)
    deadline = time.monotonic() + WAIT_S
    while silent := set(make) - kinds(set(history.readers)):
        assert time.monotonic() < deadline, (silent, [getattr(each, "errors", each.is_alive()) for each in members])
        time.sleep(0.05)
    order = itertools.cycle(make)
    deadline = time.monotonic() + CHURN_S
    while time.monotonic() < deadline:
        kind = next(order)
        if len(members) < 3 or (rng.random() < 0.5 and (kind not in PROCESSES or processes() <= MOST_PROCESSES)):
            add(kind)
        else:
            member = members.pop(rng.randrange(len(members)))
            member.stopping.set()
            if isinstance(member, ProcessMember):
                member.process.terminate()
            leaving.append(member)
        time.sleep(1.0)
    for member in leaving:
        member.stop()
    ends = feeder.finish()
    wait_until(lambda: all(history.read_ends().get(each, 0) >= end for each, end in ends.items()), "all records")
    for member in members:
        member.stop()
    return ends


def kinds(names: Iterable[str]) -> set[str]:
    return {name.rpartition("-")[0] for name in names}


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S:g} s for {what}"
        time.sleep(0.05)


def create_topic(servers: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    client = AdminClient({"bootstrap.servers": servers})
    client.create_topics([NewTopic(topic, PARTITIONS, 1)], request_timeout=20)[topic].result(30)


@pytest.fixture(params=["classic", "consumer"])
def members(request, tools, logging_tools, name, tmp_path) -> Iterator[Members]:
    """All families that support the protocol, for a broker's address; all their members end with the test."""
    protocol: str = request.param
    made: list[Any] = []

    def noted(factory: Callable[[str], Any]) -> Callable[[str], Any]:
        def make_one(name: str) -> Any:
            made.append(factory(name))
            return made[-1]

        return make_one

    home = request.getfixturevalue("kafkajs") if protocol == "classic" else None

    def families(servers: str, history: History, session_ms: int) -> Make:
        common = (servers, name, name, history)
        java = java_members(tools, logging_tools, servers, name, history, protocol, tmp_path, session_ms)
        if protocol == "consumer":
            return {
                "confluent": lambda member: ConfluentMember(member, *common, {"group.protocol": "consumer"}),
                **java,
            }
        classic = {**CLASSIC, "session.timeout.ms": session_ms}
        python = {"session_timeout_ms": session_ms, "heartbeat_interval_ms": 300}
        return {
            "confluent": lambda member: ConfluentMember(member, *common, classic),
            "kafka-python": lambda member: KafkaPythonMember(member, *common, python),
            "aiokafka": lambda member: AioKafkaMember(member, *common, python),
            "kafkajs": lambda member: KafkaJsMember(member, home, *common, session_ms),
            **java,
        }

    def make_families(servers: str, history: History, session_ms: int = SESSION_MS) -> Make:
        return {kind: noted(make) for kind, make in families(servers, history, session_ms).items()}

    yield make_families
    for member in made:
        member.stopping.set()
        if isinstance(member, ProcessMember):
            member.kill()


@pytest.mark.timeout(900 + 2 * CHURN_S)
def test_members_come_and_go(group_broker, members, name) -> None:
    servers = group_broker.bootstrap_servers
    history = History()
    create_topic(servers, name)
    with GroupWatch(servers, name, history):
        ends = churn(members(servers, history), history, Feeder(servers, name, PARTITIONS))
    assert history.violations(ends, commits_known=False) == []
    assert history.longest_stall_s() < STALL_LIMIT_S
    assert history.longest_wait_for_ghosts_s() < GHOST_LIMIT_S
    assert committed(servers, name, name) == ends


@pytest.mark.timeout(900)
def test_members_resume_after_the_broker_was_killed(group_configs, members, name) -> None:
    """kill -9 three times: every member resumes without intervention, and commits survive."""
    history = History()
    with Broker(configs={**group_configs, "group.consumer.session.timeout.ms": PATIENT_MS}) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, name)
        feeder = Feeder(servers, name, PARTITIONS)
        running = [make(f"{kind}-0") for kind, make in members(servers, history, PATIENT_MS).items()]
        for member in running:
            if isinstance(member, ProcessMember):
                member.tolerated += LOST_BROKER
            member.start()
        feeder.start()

        def wait_until_all_read() -> None:
            before = history.readers.copy()
            wait_until(
                lambda: all(history.readers[member.name] > before[member.name] + 5 for member in running),
                f"all members to read, {[getattr(member, 'errors', None) for member in running]}",
            )

        wait_until_all_read()
        for _ in range(3):
            broker.restart(crash=True)
            wait_until_all_read()
        ends = feeder.finish()
        wait_until(lambda: all(history.read_ends().get(each, 0) >= end for each, end in ends.items()), "all records")
        for member in running:
            member.stop()
        assert history.violations(ends, commits_known=False) == []
        assert committed(servers, name, name) == ends
        broker.restart(crash=True)
        assert committed(servers, name, name) == ends
