"""kcat -G, librdkafka's balanced consumer: two members share a topic, one leaves, each record is read exactly once."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from group_members import committed, produce_evenly

from ottla.testing import Broker

PARTITIONS = 4
RECORDS = 40
WAIT_S = 60.0

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed on this machine")


class KcatMember(threading.Thread):
    """`kcat -G` as a context manager; it prints records, and its assignment on stderr, unbuffered and in order."""

    _RECORD = re.compile(r"(\d+) (\d+)\n")
    _REBALANCED = re.compile(r"% Group .* rebalanced.*: (?:incremental )?(assign|revoke).*: (.*)\n")

    def __init__(self, name: str, servers: str, topic: str, strategy: str) -> None:
        super().__init__(name=name, daemon=True)
        settings = {
            "client.id": name,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "300",
            "partition.assignment.strategy": strategy,
        }
        self.command = ["kcat", "-b", servers, "-u", "-f", "%p %o\\n"]
        for key, value in settings.items():
            self.command += ["-X", f"{key}={value}"]
        self.command += ["-G", topic, topic]
        self.owned: set[int] = set()
        self.read: list[tuple[int, int]] = []
        self.strays: list[str] = []

    def __enter__(self) -> KcatMember:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(WAIT_S)
        finally:
            self.process.kill()
            self.process.wait()
        self.join(WAIT_S)
        assert self.strays == [], self.name

    def run(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if record := self._RECORD.fullmatch(line):
                partition, offset = map(int, record.groups())
                self.read.append((partition, offset))
                if partition not in self.owned:
                    self.strays.append(f"read {partition}@{offset} without having it")
            elif rebalanced := self._REBALANCED.fullmatch(line):
                partitions = {int(each) for each in re.findall(r"\[(\d+)\]", rebalanced[2])}
                if rebalanced[1] == "assign":
                    self.owned |= partitions
                else:
                    self.owned -= partitions
            elif not line.startswith("%"):
                self.strays.append(line)


def wait_until(condition: Callable[[], object], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def described(client: Any, group: str) -> tuple[str, dict[str, set[int]]]:
    """Returns the group's state, and the partitions by client id."""
    found = client.describe_consumer_groups([group])[group].result(20)
    return found.state.name, {
        each.client_id: {owned.partition for owned in each.assignment.topic_partitions} for each in found.members
    }


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_members_share_and_one_leaves(group_broker: Broker, strategy: str) -> None:
    from confluent_kafka.admin import AdminClient

    servers = group_broker.bootstrap_servers
    client = AdminClient({"bootstrap.servers": servers})
    name = f"kcat-group-{strategy}-{time.time_ns() // 1_000_000}"
    ends = produce_evenly(servers, name, PARTITIONS, RECORDS)
    everything = set(range(PARTITIONS))

    def settled(*members: KcatMember) -> bool:
        """Returns whether members and coordinator agree on the assignment and it covers all partitions."""
        owned = {member.name: set(member.owned) for member in members}
        return set().union(*owned.values()) == everything and described(client, name) == ("STABLE", owned)

    def share(*members: KcatMember) -> None:
        """Check that each member reads the next records of its partitions once."""
        nonlocal ends
        known = {member.name: len(member.read) for member in members}
        before, ends = ends, produce_evenly(servers, name, PARTITIONS, RECORDS, already=ends)
        wanted = {
            member.name: [(each, offset) for each in sorted(member.owned) for offset in range(before[each], ends[each])]
            for member in members
        }
        wait_until(
            lambda: sum(len(member.read) - known[member.name] for member in members) >= RECORDS,
            lambda: [(member.name, len(member.read)) for member in members],
        )
        assert {member.name: sorted(member.read[known[member.name] :]) for member in members} == wanted

    with KcatMember("first", servers, name, strategy) as first:
        wait_until(lambda: len(first.read) >= RECORDS, lambda: len(first.read))
        assert sorted(first.read) == [(each, offset) for each in sorted(ends) for offset in range(ends[each])]
        with KcatMember("second", servers, name, strategy) as second:
            wait_until(lambda: second.owned and settled(first, second), lambda: (first.owned, second.owned))
            assert len(first.owned) == len(second.owned) == PARTITIONS // 2
            share(first, second)
        wait_until(lambda: settled(first), lambda: first.owned)
        share(first)
    assert described(client, name) == ("EMPTY", {})
    assert committed(servers, name, name) == ends
