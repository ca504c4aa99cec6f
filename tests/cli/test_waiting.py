"""Long-running commands: signals, and messages during an outage."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import IO

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.testing import Broker

WAIT_S = 60
GONE = "ottla: the cluster does not respond, retrying: "
BACK = "ottla: the cluster responds again after "


class Running:
    """A command in its own process; its output is read line by line."""

    def __init__(self, broker: Broker, *arguments: str) -> None:
        environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVER": broker.bootstrap_servers}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdin is not None
        self.input: IO[str] = self.process.stdin
        self._output = self._lines(self.process.stdout)
        self._errors = self._lines(self.process.stderr)

    @staticmethod
    def _lines(stream: IO[str] | None) -> queue.Queue[str]:
        lines: queue.Queue[str] = queue.Queue()
        assert stream is not None

        def read() -> None:
            with stream:
                for line in stream:
                    lines.put(line)

        threading.Thread(target=read, daemon=True).start()
        return lines

    def output(self) -> str:
        return self._output.get(timeout=WAIT_S)

    def error(self) -> str:
        return self._errors.get(timeout=WAIT_S)

    def type(self, text: str) -> None:
        self.input.write(text)
        self.input.flush()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def run(broker: Broker, *arguments: str) -> Running:
        started.append(Running(broker, *arguments))
        return started[-1]

    yield run
    for each in started:
        each.process.kill()
        each.process.wait()
        each.input.close()


@pytest.fixture
def broker(ottla_broker_factory: Callable[..., Broker]) -> Broker:
    made = ottla_broker_factory(configs={"group.initial.rebalance.delay.ms": 0})
    with Cluster(made.bootstrap_servers) as cluster:
        cluster.topics.create("t", 2)
    return made


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_terminated_member_leaves_its_group(
    broker: Broker, start: Callable[..., Running], protocol: str, number: signal.Signals
) -> None:
    producer = start(broker, "produce", "t")
    producer.type("one\n")
    consumer = start(broker, "consume", "t", "-g", "g", "--from-beginning", "-X", f"group.protocol={protocol}")
    assert consumer.output() == "one\n"
    producer.type("two\n")
    assert consumer.output() == "two\n"  # so it is through with the first; of the second only it knows
    with Cluster(broker.bootstrap_servers) as cluster:
        assert len(cluster.groups.describe("g").members) == 1
        assert consumer.end(number) == (0 if number is signal.SIGTERM else 128 + number)
        assert not cluster.groups.describe("g").members
        assert sum(each.offset for each in cluster.groups.offsets("g").values()) >= 1


def test_outage_start_and_end_are_reported(broker: Broker, start: Callable[..., Running]) -> None:
    producer = start(broker, "produce", "t")
    producer.type("one\n")
    commands = {
        "consume": start(broker, "consume", "t", "--from-beginning"),
        "group": start(broker, "consume", "t", "-g", "g", "--from-beginning"),
    }
    for each in commands.values():
        assert each.output() == "one\n"
    broker.kill()
    for each in (*commands.values(), producer):
        assert each.error().startswith(GONE)
    producer.type("two\n")
    broker.start()
    for each in (*commands.values(), producer):
        assert each.error().startswith(BACK)
    for each in commands.values():
        assert each.output() == "two\n"
        assert each.end(signal.SIGINT) == 128 + signal.SIGINT


def test_signal_interrupts_wait_for_silent_broker(broker: Broker, start: Callable[..., Running]) -> None:
    """The connections are open, so the library would wait for responses to OffsetCommit and LeaveGroup."""
    producer = start(broker, "produce", "t")
    member = start(broker, "consume", "t", "-g", "g", "--from-beginning")
    producer.type("one\n")
    assert member.output() == "one\n"
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        producer.type("two\n")
        assert producer.end(signal.SIGTERM) == 128 + signal.SIGTERM
        assert member.end(signal.SIGTERM) == 0
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def test_signal_interrupts_wait_for_unreachable_cluster(broker: Broker, start: Callable[..., Running]) -> None:
    """Undelivered records and uncommitted offsets do not delay the exit."""
    producer = start(broker, "produce", "t")
    consumer = start(broker, "consume", "t", "--from-beginning")
    member = start(broker, "consume", "t", "-g", "g", "--from-beginning")
    producer.type("one\n")
    assert consumer.output() == "one\n"
    assert member.output() == "one\n"
    broker.kill()
    producer.type("two\n")
    for each in (producer, consumer, member):
        assert each.error().startswith(GONE)
        each.process.send_signal(signal.SIGTERM)
    for each in (producer, consumer, member):
        assert each.process.wait(60) == (128 + signal.SIGTERM if each is producer else 0)


def test_consume_without_group_creates_no_offsets_topic(broker: Broker, start: Callable[..., Running]) -> None:
    consumer = start(broker, "consume", "t", "--from-beginning")
    start(broker, "produce", "t").type("one\n")
    assert consumer.output() == "one\n"
    assert consumer.end(signal.SIGTERM) == 0
    with Cluster(broker.bootstrap_servers) as cluster:
        assert set(cluster.topics.all()) == {"t"}
