"""Latency at a fixed rate, one producer and one consumer in one process: until acknowledged, and end to end.

OpenMessaging Benchmark's 1-topic-1-partition-1kb at 1,000 and 20,000 records a second, and 1-topic-16-partitions-1kb.
No linger, acks=1; a latency counts from the moment at which the record was due (see load.c). NATS through its Python
client is measured at 1,000 a second only, where that client keeps up; its own time is in the figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from harness.cells import Cell, Figure, Profile, cpu_figures, memory_figures, quantile_figures
from harness.load import create_topic, load
from harness.peers import Server

PROPERTIES = {"producer.linger.ms": 0, "producer.acks": 1}
SIZE = 1024
RATES = (1_000, 20_000)


def latencies(name: str, quantiles: Mapping[str, float]) -> list[Figure]:
    """The largest is told, but is no yardstick: it is one record of a shared machine."""
    largest = Figure(f"{name} max", quantiles["1"] * 1e6, "us")
    return [*quantile_figures(name, {float(q): s for q, s in quantiles.items() if q != "1"}), largest]


def run(rate: int, partitions: int, server: Server, profile: Profile) -> Sequence[Figure]:
    create_topic(server, "load", partitions)
    window = {"warm_up_s": profile.warm_up_s, "seconds": profile.seconds}
    loaded = load("latency", server, PROPERTIES, topic="load", partitions=partitions, size=SIZE, rate=rate, **window)
    return [
        *latencies("end to end", loaded.counts["end_to_end"]),
        *latencies("acknowledged", loaded.counts["ack"]),
        *cpu_figures(loaded.used, records=loaded.counts["produced"]),
        *memory_figures(server),
    ]


def cells() -> list[Cell]:
    found = []
    for partitions in (1, 16):
        for rate in RATES:
            profiles = frozenset({"full", "subset", "quick"} if partitions == 1 else {"full"})
            peers = ("ottla", "kafka", "nats") if (rate, partitions) == (1_000, 1) else ("ottla", "kafka")
            shape = f"1-topic-{partitions}-partition{'s' if partitions > 1 else ''}-1kb, {rate} records/s"
            found.append(
                Cell(f"latency/{rate}/{partitions}", partial(run, rate, partitions), profiles, peers, shape=shape)
            )
    return found
