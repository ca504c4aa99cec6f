"""Connect storms: many clients that connect in the same instant, and each send one request.

storm/N measures the time from the first connect until each of N clients has the response to its ApiVersions request,
and the connection attempts that the system dropped because the accept backlog was full: such a client retries after a
second. The clients share one thread. unpipelined/N measures N connections that always have one unanswered request: how
long the unluckiest waits shows whether all are served in turn.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.cells import Cell, Figure, Profile, cpu_figures, memory_figures, quantile_figures
from harness.peers import API_VERSIONS, Server
from replayer import measure
from replayer.frames import Wire

from workloads import requests

CLIENTS = 2000
TIMEOUT_S = 60.0
RECEIVE_BYTES = 1 << 16


def dropped_attempts() -> int:
    """Returns the connection attempts that this machine dropped so far because a backlog was full."""
    rows = [line.split() for line in Path("/proc/net/netstat").read_text().splitlines() if line.startswith("TcpExt:")]
    return int(dict(zip(*rows, strict=True))["ListenDrops"])


def storm(port: int, clients: int) -> list[float]:
    """Connects all clients at once; returns the seconds until each had its response, in ascending order."""
    poll, sockets = select.epoll(), []
    began = time.perf_counter()
    try:
        for _ in range(clients):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
            poll.register(client, select.EPOLLOUT)
            sockets.append(client)
        by_number = {each.fileno(): each for each in sockets}
        served: list[float] = []
        while len(served) < clients and time.perf_counter() < began + TIMEOUT_S:
            for number, events in poll.poll(1.0):
                client = by_number[number]
                if events & select.EPOLLOUT:
                    client.send(API_VERSIONS)
                    poll.modify(number, select.EPOLLIN)
                elif client.recv(RECEIVE_BYTES):
                    served.append(time.perf_counter() - began)
                    poll.unregister(number)
                else:
                    raise RuntimeError("the server closed a connection")
        if len(served) < clients:
            raise RuntimeError(f"{clients - len(served)} clients had no response after {TIMEOUT_S:.0f} s")
        return served
    finally:
        poll.close()
        for each in sockets:
            each.close()


def run_storm(clients: int, server: Server, profile: Profile) -> Sequence[Figure]:
    storm(server.port, clients)  # warms the server up
    time.sleep(1)
    before, dropped = server.usage(), dropped_attempts()
    served = storm(server.port, clients)
    used = server.usage() - before
    return [
        *quantile_figures("served", {0.5: served[clients // 2], 0.99: served[clients * 99 // 100]}),
        Figure("all served", served[-1], "s", yardstick=True),
        Figure("dropped connection attempts", dropped_attempts() - dropped, "", better="neither"),
        *cpu_figures(used),
        *memory_figures(server),
    ]


def run_unpipelined(clients: int, server: Server, profile: Profile) -> Sequence[Figure]:
    with Wire(server) as wire:
        prepared = requests.load(wire, clients, 1)
    used, replayed = measure(server, prepared, profile.seconds, profile.warm_up_s)
    return [
        *cpu_figures(used, requests=replayed.requests),
        *replayed.latency_figures(),
        Figure("latency max", replayed.latency_us["max"], "us", yardstick=True),
        *memory_figures(server),
    ]


def cells() -> list[Cell]:
    name = f"storm/{CLIENTS}"
    return [
        Cell(name, partial(run_storm, CLIENTS)),
        Cell(f"unpipelined/{CLIENTS}", partial(run_unpipelined, CLIENTS)),
    ]
