"""Latency at a fixed rate, one producer and one consumer in one process: until acknowledged, and end to end.

OpenMessaging Benchmark's 1-topic-1-partition-1kb and 1-topic-16-partitions-1kb at 1,000 and 20,000 records a second,
with its linger of 1 ms and with none; acks=1. A latency counts from the time at which the record was due (see load.c).
At 1,000 records a second a JVM would be cold for minutes, so every peer first gets 20,000 a second for the time of the
warm-up. NATS uses its Python client, which adds its own time and supports only 1,000 a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from harness.cells import Cell, Figure, Profile, cpu_figures, memory_figures, profiles, quantile_figures
from harness.load import create_topic, load
from harness.peers import Server

SIZE = 1024
RATES = (1_000, 20_000)
WARM_UP_RATE = 20_000
SUBSET = {"latency/1000/1/linger=0", "latency/20000/1/linger=1"}
QUICK = {"latency/1000/1/linger=0"}
FOR_NATS = "latency/1000/1/linger=0"


def latencies(name: str, quantiles: Mapping[str, float]) -> list[Figure]:
    """Returns latencies; the maximum is reported but not compared, as a single record on a shared machine."""
    largest = Figure(f"{name} max", quantiles["1"] * 1e6, "us")
    return [*quantile_figures(name, {float(q): s for q, s in quantiles.items() if q != "1"}), largest]


def run(
    rate: int, partitions: int, linger_ms: int, server: Server, profile: Profile, *, acks: str = "1"
) -> Sequence[Figure]:
    properties = {"producer.linger.ms": linger_ms, "producer.acks": acks}
    shape = {"partitions": partitions, "size": SIZE}
    if server.protocol == "kafka":
        create_topic(server, "warm", partitions)
        warm = {**properties, "producer.linger.ms": 1}
        load("stream", server, warm, topic="warm", rate=WARM_UP_RATE, warm_up_s=0, seconds=profile.warm_up_s, **shape)
    create_topic(server, "load", partitions)
    window = {"warm_up_s": profile.warm_up_s, "seconds": profile.seconds}
    loaded = load("latency", server, properties, topic="load", rate=rate, **window, **shape)
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
            for linger_ms in (0, 1):
                name = f"latency/{rate}/{partitions}/linger={linger_ms}"
                peers = ("ottla", "kafka", "nats") if name == FOR_NATS else ("ottla", "kafka")
                shape = f"1-topic-{partitions}-partition{'s' if partitions > 1 else ''}-1kb, {rate} records/s"
                run_it = partial(run, rate, partitions, linger_ms)
                found.append(Cell(name, run_it, profiles(name, SUBSET, QUICK), peers, shape=shape))
    return found
