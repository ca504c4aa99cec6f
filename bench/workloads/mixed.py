"""A mixed load: producers, 20 consumers in four groups, and the end-to-end latency of records meanwhile.

One topic of 16 partitions, records of 1 KiB. There are two producers: 2,000 single-record requests a second by the
replayer over 16 connections, and 1,000 records a second through librdkafka, which yield the latencies. Four groups of
five consumers each read every record (librdkafka; two groups of the classic protocol, two of KIP-848's). They commit
every second; once a second a consumer of one group leaves and rejoins, so that there is always a rebalance.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, Message
from harness.cells import Cell, Figure, Profile, cpu_figures, memory_figures
from harness.load import load
from harness.peers import Server
from replayer import ENDLESS_S, Load, Replay
from replayer.frames import Wire, batch

from workloads.latency import latencies

TOPIC = "mixed"
PARTITIONS = 16
SIZE = 1024
REPLAYED_RATE, RATE = 2000, 1000
CONNECTIONS = 16
GROUPS = {"classic-a": "classic", "classic-b": "classic", "consumer-a": "consumer", "consumer-b": "consumer"}
MEMBERS = 5
CHURN_S = 1.0
JOIN_TIMEOUT_S = 60.0
MIN_WARM_UP_S = 5.0
"""Time for the groups to form and settle."""
EXPECTED_ERRORS = {KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS}


class Member(threading.Thread):
    """One group member; `rejoin` replaces it by another."""

    def __init__(self, server: Server, group: str, protocol: str) -> None:
        super().__init__(daemon=True)
        self._configuration = {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.commit.interval.ms": 1000,
            "auto.offset.reset": "latest",
            "topic.metadata.refresh.interval.ms": 30_000,
        }
        self.rejoin = threading.Event()
        self.stopping = threading.Event()
        self.assigned = threading.Event()
        self.consumed = 0
        self.failure: str | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.rejoin.clear()
                self._life()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"

    def _life(self) -> None:
        consumer = Consumer(self._configuration)
        try:
            consumer.subscribe([TOPIC], on_assign=lambda *_: self.assigned.set())
            while not (self.stopping.is_set() or self.rejoin.is_set()):
                self._count(consumer.consume(500, timeout=0.1))
        finally:
            consumer.close()

    def _count(self, messages: Sequence[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is None:
                self.consumed += 1
            elif error.code() not in EXPECTED_ERRORS:
                raise RuntimeError(str(error))


class Groups:
    """All members, and the churn; the context manager ends them on exit."""

    def __init__(self, server: Server) -> None:
        self.members = [Member(server, *group) for group in GROUPS.items() for _ in range(MEMBERS)]
        self._stopping = threading.Event()
        self._churn = threading.Thread(target=self._keep_moving, daemon=True)

    def __enter__(self) -> Groups:
        for member in self.members:
            member.start()
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        for member in self.members:
            if not member.assigned.wait(max(0.0, deadline - time.monotonic())):
                self.__exit__(None, None, None)
                raise RuntimeError(f"a consumer got no assignment within {JOIN_TIMEOUT_S:.0f} s: {member.failure}")
        self._churn.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for member in self.members:
            member.stopping.set()
        for thread in [*self.members, self._churn]:
            if thread.is_alive():
                thread.join()

    def _keep_moving(self) -> None:
        turn = 0
        while not self._stopping.wait(CHURN_S):
            self.members[turn * MEMBERS % len(self.members)].rejoin.set()
            turn += 1

    def consumed(self) -> int:
        """Returns the number of records read by all members; raises the error of a member."""
        for member in self.members:
            if member.failure:
                raise RuntimeError(f"a consumer failed: {member.failure}")
        return sum(member.consumed for member in self.members)


def run(server: Server, profile: Profile) -> Sequence[Figure]:
    with Wire(server) as wire:
        wire.create_topic(TOPIC, PARTITIONS)
        records = batch(SIZE)
        replayed = Load(
            [wire.produce(TOPIC, index, records) for index in range(PARTITIONS)],
            connections=CONNECTIONS,
            window=64,
            rate=REPLAYED_RATE,
            stagger=1,
            error_at=wire.produce_error_at(TOPIC),
        )
    window = {"warm_up_s": max(MIN_WARM_UP_S, profile.warm_up_s), "seconds": profile.seconds}
    properties = {"producer.linger.ms": 0, "producer.acks": 1}
    with (
        Groups(server) as groups,
        Replay(server.port, replayed, seconds=ENDLESS_S, warm_up_s=window["warm_up_s"]) as producers,
    ):
        before, began = groups.consumed(), time.perf_counter()
        loaded = load("latency", server, properties, topic=TOPIC, partitions=PARTITIONS, size=SIZE, rate=RATE, **window)
        delivered_per_s = (groups.consumed() - before) / (time.perf_counter() - began)
        producers.wait_for("begin")
        requests = producers.end()
    expected_per_s = len(GROUPS) * (RATE + REPLAYED_RATE)
    return [
        *latencies("end to end", loaded.counts["end_to_end"]),
        *requests.latency_figures("request"),
        *cpu_figures(loaded.used),
        Figure("broker CPU", 100 * loaded.used.cpu_s / loaded.used.seconds, "% of a core", yardstick=True),
        Figure("delivered to groups", 100 * delivered_per_s / expected_per_s, "% of the sent records", better="more"),
        *memory_figures(server),
    ]


def cells() -> list[Cell]:
    shape = "1-topic-16-partitions-1kb, 4 subscriptions of 5 consumers, 3,000 records/s"
    return [Cell("mixed/20-consumers", run, frozenset({"full", "subset"}), shape=shape)]
