"""Requests of one record of 100 bytes, acks=1, over 1, 8, 64 and 1,000 connections, unpipelined and pipelined.

By the raw replayer, so that the cost of a request is the broker's alone. One topic of six partitions; each connection
goes over them in turn. Unpipelined, a connection has one request unanswered; pipelined it has 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.cells import Axis, Cell, Figure, Profile, cpu_figures, memory_figures, profiles
from harness.peers import Server
from replayer import Load, measure
from replayer.frames import Wire, batch

PARTITIONS = 6
RECORD_BYTES = 100
WINDOWS = {"unpipelined": 1, "pipelined": 16}
CONNECTIONS = (1, 8, 64, 1000)
SUBSET = {"requests/unpipelined/1", "requests/unpipelined/64", "requests/pipelined/64"}
QUICK = {"requests/unpipelined/1"}


def load(wire: Wire, connections: int, window: int) -> Load:
    """Builds the load; also used by the profile of this workload."""
    wire.create_topic("requests", PARTITIONS)
    records = batch(RECORD_BYTES)
    return Load(
        [wire.produce("requests", index, records) for index in range(PARTITIONS)],
        connections=connections,
        window=window,
        stagger=1,
        error_at=wire.produce_error_at("requests"),
        same_length=True,
    )


def run(connections: int, window: int, server: Server, profile: Profile) -> Sequence[Figure]:
    with Wire(server) as wire:
        prepared = load(wire, connections, window)
    used, replayed = measure(server, prepared, profile.seconds, profile.warm_up_s)
    return [
        *cpu_figures(used, requests=replayed.requests),
        *replayed.latency_figures(),
        *memory_figures(server),
    ]


def cells() -> list[Cell]:
    found = []
    for mode, window in WINDOWS.items():
        for connections in CONNECTIONS:
            name = f"requests/{mode}/{connections}"
            found.append(
                Cell(
                    name,
                    partial(run, connections, window),
                    profiles(name, SUBSET, QUICK),
                    axis=Axis("Broker CPU per request", mode, connections, "connections"),
                )
            )
    return found
