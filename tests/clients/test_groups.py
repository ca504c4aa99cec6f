"""Consumer groups of third-party clients: one owner per partition, no lost commit, no stall, under churn.

The brokers here have short intervals so that seconds are enough. OTTLA_CHURN_SECONDS=120 sets the churn duration.
OTTLA_TEST_BOOTSTRAP=host:port runs all tests without a restart against that broker instead, to check them with Apache
Kafka.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from group_history import History
from group_members import (
    AioKafkaMember,
    ConfluentMember,
    Feeder,
    GroupWatch,
    KafkaPythonMember,
    Member,
    committed,
)

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import ConfigOperation, ResourceType
from ottla.testing import Broker

CHURN_S = float(os.environ.get("OTTLA_CHURN_SECONDS", "8"))
WAIT_S = 120.0
SESSION_S = 6.0
GHOST_LIMIT_S = SESSION_S + 15
STALL_LIMIT_S = 45.0
"""Beside the time for which the group waits for members that went without a word: librdkafka 2.16 sends no LeaveGroup
when it is closed while it waits for JoinGroup or SyncGroup. The rebalance then has to wait for its session, and those
that are closed meanwhile go in the same way. Under Apache Kafka 4.3.1 that adds up to as much: 36 s in two minutes.
"""
LONG_SESSION_MS = 60_000
"""Session timeout of members that are away for a moment and must not expire, even on a busy machine."""
PARTITIONS = 8
CONFIGS = {
    "group.initial.rebalance.delay.ms": 100,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.session.timeout.ms": 3000,
}
CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
RANGE = {**CLASSIC, "partition.assignment.strategy": "range"}
COOPERATIVE = {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"}
CONSUMER = {"group.protocol": "consumer"}
PYTHON = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 300}
PROTOCOLS: dict[str, dict[str, Any]] = {"eager": RANGE, "cooperative": COOPERATIVE, "consumer": CONSUMER}
NUMBERS = itertools.count(int(time.time()) % 100_000 * 100)

MakeMember = Callable[[str], Member]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    other = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    if other:
        yield other
        return
    with Broker(configs=CONFIGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def name() -> str:
    """A topic and group name that no other test uses."""
    return f"groups-{next(NUMBERS)}"


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture(params=list(PROTOCOLS))
def protocol(request) -> str:
    return request.param


def wait_for(condition: Callable[[], object], what: str, limit_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit_s:g} s for {what}"
        time.sleep(0.02)


def admin(servers: str):
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def create_topic(servers: str, topic: str, partitions: int = PARTITIONS) -> None:
    from confluent_kafka.admin import NewTopic

    client = admin(servers)  # a client that is collected drops its requests
    client.create_topics([NewTopic(topic, partitions, 1)], request_timeout=20)[topic].result(30)


def produce(servers: str, topic: str, count: int, partitions: int = PARTITIONS) -> dict[int, int]:
    """`count` records, evenly; returns how many went to each partition."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(30) == 0
    return {partition: len(range(partition, count, partitions)) for partition in range(partitions)}


def group_state(servers: str, group: str) -> str:
    client = admin(servers)
    state: str = client.describe_consumer_groups([group])[group].result(20).state.name
    return state


def everything_read(history: History, ends: dict[int, int]) -> bool:
    read = history.read_ends()
    return all(read.get(partition, 0) >= end for partition, end in ends.items())


def owns_all(history: History, members: int, partitions: int = PARTITIONS) -> bool:
    """So many members share all partitions."""
    owned = history.owned()
    return len(owned) == members and sorted(itertools.chain(*owned.values())) == list(range(partitions))


def family_members(servers: str, group: str, topic: str, history: History) -> dict[str, MakeMember]:
    """All libraries of this process, with the assignor that every one of them has."""
    common = (servers, group, topic, history)
    return {
        "confluent": lambda name: ConfluentMember(name, *common, RANGE),
        "kafka-python": lambda name: KafkaPythonMember(name, *common, PYTHON),
        "aiokafka": lambda name: AioKafkaMember(name, *common, PYTHON),
    }


def test_three_libraries_in_one_group(servers, name, history):
    create_topic(servers, name)
    ends = produce(servers, name, 800)
    make = family_members(servers, name, name, history)
    members = [make[library](library) for library in make]
    for member in members:
        member.start()
    wait_for(lambda: owns_all(history, 3), "three owners")
    wait_for(lambda: everything_read(history, ends), "all records")
    assert group_state(servers, name) == "STABLE"
    members[1].stop()
    wait_for(lambda: owns_all(history, 2), "two owners after one left")
    members[0].stop()
    wait_for(lambda: owns_all(history, 1), "one owner after two left")
    members[2].stop()
    assert history.violations(ends) == []
    assert committed(servers, name, name) == ends
    assert group_state(servers, name) == "EMPTY"


def churn(make: dict[str, MakeMember], seconds: float, least: int = 1, most: int = 5) -> None:
    """Members come and go, about one a second; all are gone at the end."""
    rng = random.Random(1)
    members: list[Member] = []
    numbers = itertools.count()
    libraries = itertools.cycle(make)

    def add() -> None:
        library = next(libraries)
        member = make[library](f"{library}-{next(numbers)}")
        members.append(member)
        member.start()

    for _ in range(least + 1):
        add()
    leaving: list[threading.Thread] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if len(members) <= least or (len(members) < most and rng.random() < 0.5):
            add()
        else:
            member = members.pop(rng.randrange(len(members)))
            member.stopping.set()
            leaving.append(member)
        time.sleep(1.0)
    for member in [*leaving, *members]:
        member.stop()


def run_churn(servers: str, topic: str, history: History, make: dict[str, MakeMember]) -> None:
    """Records flow while members come and go; a last member reads the rest; then the history is judged."""
    create_topic(servers, topic)
    feeder = Feeder(servers, topic, PARTITIONS)
    feeder.start()
    with GroupWatch(servers, topic, history):
        churn(make, CHURN_S)
        last = next(iter(make.values()))("last")
        last.start()
        ends = feeder.finish()
        wait_for(lambda: everything_read(history, ends), "the rest of the records")
        last.stop()
    assert history.violations(ends) == []
    assert history.longest_stall_s() < STALL_LIMIT_S
    assert history.longest_wait_for_ghosts_s() < GHOST_LIMIT_S
    assert committed(servers, topic, topic) == {partition: end for partition, end in ends.items() if end}


@pytest.mark.timeout(300 + 2 * CHURN_S)
def test_churn_of_three_libraries(servers, name, history):
    run_churn(servers, name, history, family_members(servers, name, name, history))


@pytest.mark.timeout(300 + 2 * CHURN_S)
def test_churn(servers, name, history, protocol):
    settings = PROTOCOLS[protocol]
    make = {protocol: lambda member: ConfluentMember(member, servers, name, name, history, settings)}
    run_churn(servers, name, history, make)


def test_partitions_are_added(servers, name, history, protocol):
    """A topic that grows gets its new partitions assigned."""
    from confluent_kafka.admin import NewPartitions

    create_topic(servers, name, 2)
    members = [ConfluentMember(f"m{i}", servers, name, name, history, PROTOCOLS[protocol]) for i in range(2)]
    for member in members:
        member.start()
    wait_for(lambda: owns_all(history, 2, 2), "two owners")
    client = admin(servers)
    client.create_partitions([NewPartitions(name, 6)])[name].result(30)
    wait_for(lambda: owns_all(history, 2, 6), "six partitions")
    ends = produce(servers, name, 60, 6)
    wait_for(lambda: everything_read(history, ends), "the records of old and new partitions")
    for member in members:
        member.stop()
    assert history.violations(ends) == []


@pytest.mark.parametrize("protocol", ["eager", "consumer"])
def test_a_pattern_finds_topics_that_come_later(servers, name, protocol):
    from confluent_kafka import Consumer

    create_topic(servers, f"{name}-a", 1)
    produce(servers, f"{name}-a", 1, 1)
    settings: dict[str, Any] = {"bootstrap.servers": servers, "group.id": name, "auto.offset.reset": "earliest"}
    settings["log_level"] = 0
    settings["topic.metadata.refresh.interval.ms"] = 500
    consumer = Consumer({**settings, **PROTOCOLS[protocol]})
    consumer.subscribe([f"^{name}-[ab]$"])
    topics: set[str] = set()

    def seen(topic: str) -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            topics.add(message.topic())
        return topic in topics

    try:
        wait_for(lambda: seen(f"{name}-a"), "the first topic")
        create_topic(servers, f"{name}-c", 1)
        create_topic(servers, f"{name}-b", 1)
        produce(servers, f"{name}-c", 1, 1)
        produce(servers, f"{name}-b", 1, 1)
        wait_for(lambda: seen(f"{name}-b"), "the topic that came later")
    finally:
        consumer.close()
    assert topics == {f"{name}-a", f"{name}-b"}


@pytest.mark.parametrize("protocol", ["eager", "consumer"])
def test_a_static_member_returns_to_its_partitions(servers, name, history, protocol):
    """No other member sees a rebalance when it returns within the session timeout (KIP-345)."""
    create_topic(servers, name)
    with Cluster(servers) as cluster:
        change = ("consumer.session.timeout.ms", ConfigOperation.SET, str(LONG_SESSION_MS))
        cluster.configs.alter(ResourceType.GROUP, name, [change])
    settings = {**PROTOCOLS[protocol]}
    if protocol == "eager":
        settings["session.timeout.ms"] = LONG_SESSION_MS

    def make(instance: str, incarnation: int) -> ConfluentMember:
        return ConfluentMember(
            f"{instance}.{incarnation}", servers, name, name, history, {**settings, "group.instance.id": instance}
        )

    other, restarted = make("other", 0), make("restarted", 0)
    other.start()
    restarted.start()
    wait_for(lambda: owns_all(history, 2), "two owners")
    before = history.owned()
    rebalances = history.rebalances["other.0"]
    restarted.stop()
    again = make("restarted", 1)
    again.start()
    wait_for(lambda: owns_all(history, 2), "the member to be back")
    ends = produce(servers, name, 80)
    wait_for(lambda: everything_read(history, ends), "all records")
    assert history.owned() == {"other.0": before["other.0"], "restarted.1": before["restarted.0"]}
    assert history.rebalances["other.0"] == rebalances
    again.stop()
    other.stop()
    assert history.violations(ends) == []


def instance_error(servers: str, name: str, settings: dict, *, newcomer: bool) -> str:
    """The error that one of two members of the same instance id gets, the other one being served."""
    from confluent_kafka import Consumer, KafkaException

    common = {"bootstrap.servers": servers, "group.id": name, "group.instance.id": "one", "log_level": 0, **settings}
    consumers = [Consumer(common) for _ in range(2)]
    errors: list[str] = []

    def poll(consumer) -> str | None:
        try:
            message = consumer.poll(0.05)
        except KafkaException as error:
            return error.args[0].name()
        return message.error().name() if message is not None and message.error() is not None else None

    try:
        first, second = consumers
        first.subscribe([name])
        wait_for(lambda: poll(first) or first.assignment(), "the first to get its partitions")
        second.subscribe([name])
        judged, served = (second, first) if newcomer else (first, second)

        def failed() -> bool:
            served_error, error = poll(served), poll(judged)
            assert served_error is None, f"the other one got {served_error}"
            if error is not None and error not in ("_ALL_BROKERS_DOWN",):
                errors.append(error)
            return bool(errors)

        wait_for(failed, "an error")
    finally:
        for consumer in consumers:
            consumer.close()
    return errors[0]


def test_an_older_classic_member_of_the_same_instance_is_fenced(servers, name):
    create_topic(servers, name)
    assert instance_error(servers, name, RANGE, newcomer=False) in ("FENCED_INSTANCE_ID", "_FATAL")


def test_second_member_of_an_instance_waits_in_kip848(servers, name):
    create_topic(servers, name)
    assert instance_error(servers, name, CONSUMER, newcomer=True) in ("UNRELEASED_INSTANCE_ID", "_FATAL")


def test_a_member_that_dies_is_replaced(servers, name, history, protocol):
    """SIGKILL: no LeaveGroup, so its partitions move when the session is over."""
    import signal
    import subprocess

    create_topic(servers, name)
    settings = {"bootstrap.servers": servers, "group.id": name, "log_level": 0, **PROTOCOLS[protocol]}
    script = (
        "import sys, confluent_kafka\n"
        f"consumer = confluent_kafka.Consumer({settings!r})\n"
        f"consumer.subscribe([{name!r}], on_assign=lambda c, p: print(len(p), flush=True))\n"
        "while True: consumer.poll(0.2)\n"
    )
    doomed = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    survivor = ConfluentMember("survivor", servers, name, name, history, PROTOCOLS[protocol])
    try:
        assert doomed.stdout is not None
        assert doomed.stdout.readline().strip() == str(PARTITIONS)
        survivor.start()
        wait_for(lambda: len(history.owned().get("survivor", ())) == PARTITIONS // 2, "half of the partitions")
        doomed.send_signal(signal.SIGKILL)
        wait_for(lambda: owns_all(history, 1), "the partitions of the dead")
    finally:
        doomed.kill()
        doomed.wait()
    survivor.stop()


@pytest.mark.promise("G1")
def test_killed_broker_keeps_offsets_and_members_resume(name, history, protocol, ottla_broker_factory):
    if os.environ.get("OTTLA_TEST_BOOTSTRAP"):
        pytest.skip("the broker under test cannot be killed from here")
    broker = ottla_broker_factory(configs=CONFIGS)
    servers = broker.bootstrap_servers
    create_topic(servers, name)
    feeder = Feeder(servers, name, PARTITIONS)
    feeder.start()
    if protocol == "eager":
        make = family_members(servers, name, name, history)
        members = [make[library](library) for library in make]
    else:
        members = [ConfluentMember(f"m{i}", servers, name, name, history, PROTOCOLS[protocol]) for i in range(3)]
    for member in members:
        member.start()
    wait_for(lambda: owns_all(history, 3), "three owners")

    def progress() -> None:
        aim = history.read_count() + 200
        wait_for(lambda: history.read_count() > aim, "progress")

    for _ in range(3):
        progress()
        broker.restart(crash=True)
    progress()
    ends = feeder.finish()
    wait_for(lambda: everything_read(history, ends), "all records")
    for member in members:
        member.stop()
    assert history.violations(ends) == []
    assert committed(servers, name, name) == ends
    broker.restart(crash=True)
    assert committed(servers, name, name) == ends


def test_the_consumer_protocol_takes_a_classic_group_over(servers, name, history):
    """Members of both protocols side by side, then only the new one, then only the old one (KIP-848, online)."""
    create_topic(servers, name)
    feeder = Feeder(servers, name, PARTITIONS)
    feeder.start()

    def start(member: str, settings: dict) -> ConfluentMember:
        started = ConfluentMember(member, servers, name, name, history, settings)
        started.start()
        return started

    old = [start(f"classic{i}", COOPERATIVE) for i in range(2)]
    wait_for(lambda: owns_all(history, 2), "two classic owners")
    new = [start("consumer0", CONSUMER)]
    wait_for(lambda: owns_all(history, 3), "three owners of two protocols")
    new.append(start("consumer1", CONSUMER))
    old.pop().stop()
    wait_for(lambda: owns_all(history, 3), "three owners after a classic one left")
    old.pop().stop()
    wait_for(lambda: owns_all(history, 2), "two owners of the consumer protocol")
    back = start("classic9", COOPERATIVE)
    wait_for(lambda: owns_all(history, 3), "a classic member among the new ones")
    for member in new:
        member.stop()
    wait_for(lambda: owns_all(history, 1), "the classic member alone")
    ends = feeder.finish()
    wait_for(lambda: everything_read(history, ends), "all records")
    back.stop()
    assert history.violations(ends) == []
    assert history.longest_stall_s() < STALL_LIMIT_S
