"""Cost of idle partitions and connections, for the broker and for active clients.

A topic with this many partitions is created, and that is timed. Then come three windows: without connections; with this
many open and silent connections; and with 1,000 single-record requests a second over these connections, to all
partitions in turn. The lines of a plot should be flat in latency and in idle CPU, and rise little in memory.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from harness.cells import Axis, Cell, Figure, Profile, cpu_figures, memory_figures, profiles
from harness.peers import API_VERSIONS, Server
from replayer import Load, measure
from replayer.frames import Wire, batch

TOPIC = "scale"
RECORD_BYTES = 100
RATE = 1000
CONNECTIONS = (1, 8, 64, 1000)
PARTITIONS = (1, 100, 1000, 10_000)
BOTH = (10_000, 1000)
"""Two minutes per run, mostly to create the topic: not in the subset, which is limited to forty minutes."""
SUBSET = {"connections/1x1000"}
IDLE_WINDOWS = 2
"""Idle windows are this many times longer than others: the periodic steps of a broker are seconds apart."""
SETTLE_S = 2.0


def open_connection(port: int) -> socket.socket:
    """Opens a connection that has sent ApiVersions, as clients do, and is silent afterwards."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(API_VERSIONS)
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    connection.recv(size, socket.MSG_WAITALL)
    return connection


def idle_percent(server: Server, seconds: float) -> float:
    """Returns the share of one core that the server uses."""
    time.sleep(SETTLE_S)
    before = server.usage()
    time.sleep(seconds)
    used = server.usage() - before
    return 100 * used.cpu_s / used.seconds


def run(partitions: int, connections: int, server: Server, profile: Profile) -> Sequence[Figure]:
    with Wire(server) as wire:
        began = time.perf_counter()
        wire.create_topic(TOPIC, partitions)
        created_s = time.perf_counter() - began
        wire.fill(TOPIC, range(partitions), batch(RECORD_BYTES))
        records = batch(RECORD_BYTES)
        load = Load(
            [wire.produce(TOPIC, index, records) for index in range(partitions)],
            connections=connections,
            window=4,
            rate=RATE,
            stagger=1,
            error_at=wire.produce_error_at(TOPIC),
        )
    idle_s = IDLE_WINDOWS * profile.seconds
    idle_without = idle_percent(server, idle_s)
    memory_without_mb = server.memory_mb()
    with ExitStack() as stack:
        for _ in range(connections):
            stack.enter_context(open_connection(server.port))
        idle_with = idle_percent(server, idle_s)
        memory_with_mb = server.memory_mb()
    used, replayed = measure(server, load, profile.seconds, profile.warm_up_s)
    return [
        Figure("creation of the topic", created_s, "s"),
        Figure("memory with partitions", memory_without_mb, "MiB", yardstick=True),
        Figure("memory with connections", memory_with_mb, "MiB", yardstick=True),
        Figure("idle CPU with partitions", idle_without, "% of a core", yardstick=True),
        Figure("idle CPU with connections", idle_with, "% of a core", yardstick=True),
        *cpu_figures(used, requests=replayed.requests),
        *replayed.latency_figures(),
        *memory_figures(server),
    ]


def cells() -> list[Cell]:
    found = [
        Cell(
            (name := f"connections/1x{connections}"),
            partial(run, 1, connections),
            profiles(name, SUBSET),
            axis=Axis("One partition, more connections", "1 partition", connections, "connections"),
        )
        for connections in CONNECTIONS
    ]
    found += [
        Cell(
            f"connections/{partitions}x1",
            partial(run, partitions, 1),
            axis=Axis("One connection, more partitions", "1 connection", partitions, "partitions"),
        )
        for partitions in PARTITIONS
        if partitions > 1
    ]
    partitions, connections = BOTH
    found.append(Cell(f"connections/{partitions}x{connections}", partial(run, partitions, connections)))
    return found
