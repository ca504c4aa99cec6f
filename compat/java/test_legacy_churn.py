"""A group of Kafka 0.9's console consumers and Ottla's through churn: one owner per partition, and no lost record.

Members join, leave, are killed by kill -9, or are paused until their session has expired, while records keep arriving
on an Ottla broker with ZooKeeper 3.4.6. After every change the group settles: each partition has a live owner. The
records sent then are read exactly once, and those of a partition by one consumer, unless another session ends
meanwhile. OTTLA_LEGACY_SECONDS=120 OTTLA_LEGACY_SEED=1 is the long form, `make legacy-churn`; otherwise each kind of
change occurs once.

A console consumer counts a record as read on delivery, before it prints the record: a kill between the two within one
interval of automatic commits would lose a record. With an interval of one second this has not been seen.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from old_kafka import WITHIN_S, OldPrograms, ottla_on
from tests.cluster.ensemble import JAVA

from ottla import Admin, Producer

SECONDS = float(os.environ.get("OTTLA_LEGACY_SECONDS", "0"))
SEED = int(os.environ.get("OTTLA_LEGACY_SEED", "1"))
GROUP, TOPIC, PARTITIONS = "churn", "churn", 7
SESSION_MS = 6000
"""The minimum session timeout of this ZooKeeper."""
PAUSE_S = 0.02
"""Pause between two records of the continuous load."""
IN_A_ROUND = 3
"""Records of each partition."""
SETTINGS = {"group.id": GROUP, "zookeeper.session.timeout.ms": SESSION_MS, "rebalance.backoff.ms": 200}
END = ";"
"""End of a value: a killed process may leave half a line."""


class Member:
    """A process of either kind."""

    def __init__(self, command: list[str], out: Path) -> None:
        self._out = out
        with out.open("wb") as printed, out.with_suffix(".log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=printed, stderr=log)
        self.ended = False

    def taken(self) -> list[str]:
        """Returns the values read so far, in order."""
        if not self.ended:
            assert self._process.poll() is None, self._out.with_suffix(".log").read_text()[-2000:]
        return [line for line in self._out.read_text(errors="replace").split() if line.endswith(END)]

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, number: signal.Signals) -> None:
        """Stop the process: it leaves (SIGTERM), or is killed."""
        self.ended = True
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(WITHIN_S)


class Group:
    """The members, their state in ZooKeeper, and the produced records."""

    def __init__(self, zookeeper: KazooClient, address: str, servers: str, classpath: str, folder: Path) -> None:
        self._zookeeper = zookeeper
        self._address = address
        self._classpath, self._folder = classpath, folder
        self._producer = Producer(servers, {"linger.ms": 5})
        self._lock = threading.Lock()
        self._next = [0] * PARTITIONS
        self.members: list[Member] = []
        self.present: list[tuple[str, Member]] = []
        self.rounds = self.disturbed = 0
        self.changes: Counter[str] = Counter()

    # -- records

    def produce(self, partition: int) -> str:
        with self._lock:
            value = f"{partition}:{self._next[partition]}{END}"
            self._next[partition] += 1
            self._producer.send(TOPIC, value, partition=partition)
        return value

    def finish(self) -> set[str]:
        """Stop the load and return all its records."""
        self._producer.close()
        return {
            f"{partition}:{number}{END}" for partition in range(PARTITIONS) for number in range(self._next[partition])
        }

    def read(self) -> Counter[str]:
        return Counter(value for member in self.members for value in member.taken())

    # -- members

    def join(self, kind: str) -> Member:
        out = self._folder / f"{len(self.members)}-{kind}.out"
        if kind == "ours":
            mine = {**SETTINGS, "zookeeper.connect": self._address, "auto.offset.reset": "smallest"}
            settings = json.dumps({**mine, "auto.commit.interval.ms": 200})
            member = Member([sys.executable, str(Path(__file__).with_name("legacy_member.py")), settings, TOPIC], out)
        else:
            # A console consumer gives up for good after this many failed rebalances, and the default of four is too
            # low.
            more = {"rebalance.max.retries": 10_000, "auto.commit.interval.ms": 1000}
            config = OldPrograms(self._classpath, self._folder).properties("console", {**SETTINGS, **more})
            arguments = ["--zookeeper", self._address, "--topic", TOPIC, "--consumer.config", config]
            member = Member([*JAVA, "-cp", self._classpath, "kafka.tools.ConsoleConsumer", *arguments], out)
        self.members.append(member)
        self.present.append((kind, member))
        return member

    def pick(self, kind: str) -> Member:
        """Pick a member of that kind, which no longer counts as present."""
        found = next(each for each in self.present if each[0] == kind)
        self.present.remove(found)
        return found[1]

    def change(self, kind: str, what: str) -> None:
        """Make one change and wait until the group has settled."""
        self.changes[f"{what} {kind}"] += 1
        if what == "join":
            self.join(kind)
        elif what == "leave":
            self.pick(kind).end(signal.SIGTERM)
        elif what == "kill":
            self.pick(kind).end(signal.SIGKILL)
        else:
            member = self.pick(kind)
            member.send(signal.SIGSTOP)
            self.settle()
            member.send(signal.SIGCONT)
            self.present.append((kind, member))
        self.settle()
        self.one_owner_each()

    # -- invariants ----------------------------------------------------------------------------------------------------

    def _children(self, path: str) -> list[str]:
        try:
            return sorted(self._zookeeper.get_children(path))
        except NoNodeError:
            return []

    def owners(self) -> list[str | None]:
        found: list[str | None] = []
        for number in range(PARTITIONS):
            try:
                found.append(self._zookeeper.get(f"/consumers/{GROUP}/owners/{TOPIC}/{number}")[0].decode())
            except NoNodeError:
                found.append(None)
        return found

    def committed(self) -> list[str]:
        return self._children(f"/consumers/{GROUP}/offsets/{TOPIC}")

    def ids(self) -> list[str]:
        return self._children(f"/consumers/{GROUP}/ids")

    def settle(self) -> None:
        """Wait until exactly the present members are registered, and own all partitions."""

        def settled() -> bool:
            threads = {f"{consumer}-0" for consumer in self.ids()}
            return len(threads) == len(self.present) and set(self.owners()) == threads

        until(settled, lambda: f"{len(self.present)} are there, {self.ids()} registered, {self.owners()} own")

    def one_owner_each(self) -> None:
        """Check that new records are read once, those of a partition by one consumer."""
        before = self.ids(), self.owners()
        sent = [self.produce(partition) for partition in range(PARTITIONS) for _ in range(IN_A_ROUND)]
        until(lambda: self.read().keys() >= set(sent), lambda: f"not read: {set(sent) - self.read().keys()}")
        if (self.ids(), self.owners()) != before:
            self.disturbed += 1  # a session expired unexpectedly: its records are read again
            return
        self.rounds += 1
        readers: dict[str, set[int]] = {}
        for index, member in enumerate(self.members):
            for value in set(sent) & set(member.taken()):
                readers.setdefault(value.partition(":")[0], set()).add(index)
        read = self.read()
        assert {read[value] for value in sent} == {1}
        assert all(len(found) == 1 for found in readers.values()), readers


def until(condition: Callable[[], object], otherwise: Callable[[], str]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.05)


def churn(group: Group, rng: random.Random) -> None:
    """Make each kind of change once in a possible order, and more until the time is over."""
    deadline = time.monotonic() + SECONDS
    group.join("ours")
    until(lambda: len(group.read()) > 10 * PARTITIONS, lambda: "nothing is read")
    # A console consumer starts at the end where no offset is committed.
    until(lambda: len(group.committed()) == PARTITIONS, lambda: "something is committed in few partitions")
    group.change("theirs", "join")
    while True:
        kinds = [(kind, what) for kind in ("ours", "theirs") for what in ("leave", "kill", "pause")]
        rng.shuffle(kinds)
        for kind, what in kinds:
            if what != "pause":
                group.change(kind, "join")
            group.change(kind, what)
            if SECONDS and time.monotonic() > deadline:
                return
        if time.monotonic() > deadline:
            return


@pytest.mark.promise("Z6")
def test_mixed_group_survives_churn(kafka_of: Callable[[str], str], tmp_path: Path) -> None:
    classpath = kafka_of("0.9")
    with ottla_on(classpath) as (address, broker):
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=1)
        zookeeper = KazooClient(address)
        zookeeper.start(WITHIN_S)
        group = Group(zookeeper, address, broker.bootstrap_servers, classpath, tmp_path)
        over = threading.Event()

        def keep_coming() -> None:
            partition = 0
            while not over.wait(PAUSE_S):
                group.produce(partition)
                partition = (partition + 1) % PARTITIONS

        source = threading.Thread(target=keep_coming)
        source.start()
        try:
            churn(group, random.Random(SEED))
            over.set()
            source.join()
            sent = group.finish()
            until(lambda: group.read().keys() >= sent, lambda: f"lost: {sorted(sent - group.read().keys())}")
        finally:
            over.set()
            source.join()
            for member in group.members:
                member.end(signal.SIGKILL)
            zookeeper.stop()
            zookeeper.close()
        again = group.read().total() - len(sent)
        print(
            f"\n{len(sent)} records, {again} read again; {dict(group.changes)}; one owner a partition after "
            f"{group.rounds} changes, {group.disturbed} more were followed by the end of a session"
        )
        assert group.rounds > group.disturbed
