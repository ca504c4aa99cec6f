"""Latency of a small request beside bulk traffic: how long one client's work keeps another client waiting.

ping is ApiVersions on a connection of its own, 500 times a second as an open loop, so that a request which could not be
sent in time counts from its due time. Beside it run:

alone    nothing
produce  eight connections that write batches of 100 KB as fast as they are acknowledged, four unanswered each
consume  eight connections that read cached batches of 1 MB one by one, as fast as they arrive
large    one connection that writes batches of 900 KB, four unanswered
cold     four connections that read a backlog of 2 GB from the disk, and 5,000 records a second with acks=all
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial

from harness.cells import Cell, Figure, Profile, cpu_figures, memory_figures
from harness.peers import API_VERSIONS, Server
from replayer import ENDLESS_S, Load, Replay, measure
from replayer.frames import Wire, batch

from workloads.catch_up import GIGABYTE, backlog_load, drop_pages

TOPIC, LIVE = "bulk", "live"
PARTITIONS = 8
PING_RATE = 500
BATCHES = {"produce": 100, "consume": 1000, "large": 900}
"""Records of 1,000 bytes in a batch, by kind of bulk traffic."""
CACHED_BATCHES = 20
LIVE_RATE = 5000
LIVE_CONNECTIONS = 8
COLD_GB = 2.0
PING = Load([API_VERSIONS], rate=PING_RATE)


def bulk_load(kind: str, wire: Wire) -> Load:
    """Builds the traffic beside the pings."""
    records = batch(1000, BATCHES[kind])
    wire.create_topic(TOPIC, PARTITIONS)
    if kind == "consume":
        wire.write(TOPIC, PARTITIONS, records, CACHED_BATCHES)
        places = [(index, number * 1000) for index in range(PARTITIONS) for number in range(CACHED_BATCHES)]
        frames = [wire.fetch(TOPIC, [place]) for place in places]
        return Load(frames, connections=PARTITIONS, stagger=CACHED_BATCHES, error_at=wire.fetch_error_at())
    frames = [wire.produce(TOPIC, index, records) for index in range(PARTITIONS)]
    connections = 1 if kind == "large" else PARTITIONS
    return Load(frames, connections, window=4, stagger=1, error_at=wire.produce_error_at(TOPIC))


def cold_loads(wire: Wire, gigabytes: float) -> list[Load]:
    """Writes the backlog; returns its readers, and the producers of single records."""
    reading = backlog_load(wire, int(gigabytes * GIGABYTE / 4 / 1e6))
    wire.create_topic(LIVE, PARTITIONS)
    records = batch(1000)
    frames = [wire.produce(LIVE, index, records, acks=-1) for index in range(PARTITIONS)]
    error_at = wire.produce_error_at(LIVE)
    producing = Load(frames, LIVE_CONNECTIONS, window=64, rate=LIVE_RATE, stagger=1, error_at=error_at)
    return [producing, reading]


def run(kind: str, server: Server, profile: Profile) -> Sequence[Figure]:
    with Wire(server) as wire, contextlib.ExitStack() as stack:
        loads = cold_loads(wire, COLD_GB) if kind == "cold" else [] if kind == "alone" else [bulk_load(kind, wire)]
        if kind == "cold":
            measure(server, PING, 0.1, profile.warm_up_s)
            drop_pages(server.data)
        running = [stack.enter_context(Replay(server.port, load, seconds=ENDLESS_S)) for load in loads]
        for each in running:
            each.wait_for("begin")
        if kind == "cold":
            with Replay(server.port, PING, seconds=ENDLESS_S) as pings:
                pings.wait_for("begin")
                before = server.usage()
                running[-1].wait_for("end")  # the backlog is read
                used, pinged, beside = server.usage() - before, pings.end(), running[-1].result()
        else:
            used, pinged = measure(server, PING, profile.seconds, profile.warm_up_s)
            beside = running[-1].end() if running else pinged
    return [
        *pinged.latency_figures("ping"),
        Figure("ping max", pinged.latency_us["max"], "us", yardstick=True),
        Figure("bulk requests", beside.all_requests / beside.seconds, "/s", better="more"),
        *cpu_figures(used),
        *memory_figures(server),
    ]


def cells() -> list[Cell]:
    names = [f"loop_lag/{kind}" for kind in ("alone", *BATCHES, "cold")]
    return [Cell(name, partial(run, name.split("/")[1])) for name in names]
