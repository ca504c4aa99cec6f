"""The experiment of the three programs: numbers go from one topic to another, and what moves them is killed on the way.

    experiment(work)    # in a program that has a function work(servers, numbers, results)

It starts a broker (or takes --bootstrap-server), writes 1,000 numbers, runs `work` in a process of its own, ends that
with kill -9 in the middle of a batch, runs it again, and counts what arrived: lost, doubled.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker

NUMBERS = 1000
BATCH = 100
KILLED_AFTER = 410
"""In the fifth batch, and long before its end."""
LIMIT_S = 200.0
Work = Callable[[str, str, str], None]


def consumer(servers: str, topic: str) -> Consumer:
    """A member of the group that moves the numbers; each program commits by itself."""
    member = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"movers-of-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6000,  # so long the group waits for one that was killed
        }
    )
    member.subscribe([topic])
    return member


def batches(member: Consumer) -> Iterator[list[Message]]:
    """Batches of messages, until the process is stopped."""
    while True:
        if batch := [message for message in member.consume(BATCH, timeout=5) if message.error() is None]:
            yield batch


def process(message: Message) -> bytes:
    """The work on one number; it takes a moment."""
    time.sleep(0.004)
    return bytes(message.value())


def experiment(work: Work) -> None:
    """Run `work`, kill it, run it again, and print what became of the numbers."""
    parser = argparse.ArgumentParser(description=sys.modules[work.__module__].__doc__)
    parser.add_argument("--bootstrap-server", help="take this broker instead of starting one")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(*arguments.work)
        return
    with nullcontext() if arguments.bootstrap_server else Broker() as broker:
        servers = arguments.bootstrap_server or broker.bootstrap_servers
        run = f"{os.path.basename(sys.argv[0]).removesuffix('.py')}-{os.getpid()}"
        numbers, results = f"{run}-numbers", f"{run}-results"
        _write(servers, numbers, results)
        _move(servers, numbers, results)
        _print_table(servers, results)


def _write(servers: str, numbers: str, results: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(numbers, 1, 1), NewTopic(results, 1, 1)]).values():
        created.result()
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(NUMBERS):
        producer.produce(numbers, str(number).encode())
    producer.flush()


def _move(servers: str, numbers: str, results: str) -> None:
    """Run one mover that is killed, and a second one that continues."""
    command = [sys.executable, sys.argv[0], "--work", servers, numbers, results]
    deadline = time.monotonic() + LIMIT_S
    with _seen(servers, results) as seen, subprocess.Popen(command) as first:
        try:
            while seen() < KILLED_AFTER:
                _check(first, deadline)
        finally:
            os.kill(first.pid, signal.SIGKILL)
    print(f"Process {first.pid} was killed (kill -9) in the middle of a batch; another one continues.", flush=True)
    with (
        _committed(servers, numbers) as committed,
        _seen(servers, results) as seen,
        subprocess.Popen(command) as second,
    ):
        try:
            while committed() < NUMBERS:
                _check(second, deadline)
            before = -1
            while seen() != before:  # an offset may be committed before its work is done
                before = seen()
                time.sleep(1)
        finally:
            second.terminate()


def _check(process: subprocess.Popen[bytes], deadline: float) -> None:
    if process.poll() is not None or time.monotonic() > deadline:
        raise SystemExit(f"the process that moves numbers ended with {process.poll()}, or takes too long")
    time.sleep(0.005)


@contextmanager
def _seen(servers: str, topic: str) -> Iterator[Callable[[], int]]:
    """How many records there are so far, those of open and aborted transactions too."""
    reader = Consumer({"bootstrap.servers": servers, "group.id": "none", "isolation.level": "read_uncommitted"})
    reader.assign([TopicPartition(topic, 0, 0)])
    count = 0

    def seen() -> int:
        nonlocal count
        count += sum(message.error() is None for message in reader.consume(NUMBERS, timeout=0.01))
        return count

    try:
        yield seen
    finally:
        reader.close()


@contextmanager
def _committed(servers: str, topic: str) -> Iterator[Callable[[], int]]:
    """How far the group of the movers has committed."""
    asker = Consumer({"bootstrap.servers": servers, "group.id": f"movers-of-{topic}"})
    try:
        yield lambda: asker.committed([TopicPartition(topic, 0)], timeout=10)[0].offset
    finally:
        asker.close()


def _read(servers: str, topic: str, isolation: str) -> Counter[int]:
    """How often each number is there, for a reader of that isolation."""
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    found: Counter[int] = Counter()
    while (message := reader.poll(10)) is not None and message.error() is None:
        found[int(message.value())] += 1
    reader.close()
    return found


def _print_table(servers: str, results: str) -> None:
    found = _read(servers, results, "read_committed")
    stored = _read(servers, results, "read_uncommitted").total()
    rows = {
        "numbers": NUMBERS,
        "results": found.total(),
        "lost": sum(number not in found for number in range(NUMBERS)),
        "doubled": sum(count - 1 for count in found.values()),
        "aborted, invisible to read_committed consumers": stored - found.total(),
    }
    for name, value in rows.items():
        print(f"{value:>6,}  {name}")
