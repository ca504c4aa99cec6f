"""Start to first answered request, and the cost of doing nothing: 1,000 partitions, then 1,000 idle connections.

python bench/start_and_idle.py [--peer kafka] [--rounds 5] [--partitions 1000] [--connections 1000] [--seconds 10]
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import statistics
import struct
import time
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from peers import PEERS, ROOT, Server

API_VERSIONS_V0 = struct.pack(">hhih", 18, 0, 1, -1)


def answered(port: int) -> bool:
    """One ApiVersions request on a connection of its own."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(API_VERSIONS_V0)) + API_VERSIONS_V0)
            return len(connection.recv(4, socket.MSG_WAITALL)) == 4
    except OSError:
        return False


def time_to_first_answer(name: str) -> float:
    """Seconds from starting the process on an empty directory to its first answer."""
    server = PEERS[name](name)
    started = 0.0

    def timed(command: list[str]) -> list[str]:
        nonlocal started
        started = time.perf_counter()
        return command

    prepared = server.command()  # formatting a directory is not part of a start
    server.command = lambda: timed(prepared)  # type: ignore[method-assign]
    with server:
        while not answered(server.port):
            time.sleep(0.001)
        return time.perf_counter() - started


def idle_cpu_percent(server: Server, seconds: float) -> float:
    """Share of one core that the server used in `seconds` without a request."""
    before, started = server.cpu_seconds(), time.perf_counter()
    time.sleep(seconds)
    return 100 * (server.cpu_seconds() - before) / (time.perf_counter() - started)


def idle_cost(name: str, partitions: int, connections: int, seconds: float) -> dict[str, Any]:
    """Memory and CPU empty, with the partitions, and with the connections on top."""
    row: dict[str, Any] = {"server": name, "partitions": partitions, "connections": connections}
    with PEERS[name](name) as server:
        while not answered(server.port):
            time.sleep(0.01)
        row["empty_mb"] = round(server.memory_mb(), 1)
        row["empty_cpu_percent"] = round(idle_cpu_percent(server, seconds), 2)
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        admin.create_topics([NewTopic("idle", partitions, 1)], request_timeout=60)["idle"].result(90)
        time.sleep(2)
        row["partitions_mb"] = round(server.memory_mb(), 1)
        row["partitions_cpu_percent"] = round(idle_cpu_percent(server, seconds), 2)
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(connections)]
        for connection in idle:
            connection.sendall(struct.pack(">i", len(API_VERSIONS_V0)) + API_VERSIONS_V0)
            connection.recv(4096)
        row["connections_mb"] = round(server.memory_mb(), 1)
        row["connections_cpu_percent"] = round(idle_cpu_percent(server, seconds), 2)
        for connection in idle:
            connection.close()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=[name for name in PEERS if name != "ottla"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/start_and_idle.json")
    arguments = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, arguments.connections + 200)), hard))
    rows = []
    names = ["ottla", *([arguments.peer] if arguments.peer else [])]
    starts: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(arguments.rounds):
        for name in names:
            starts[name].append(time_to_first_answer(name))
    for name in names:
        row = idle_cost(name, arguments.partitions, arguments.connections, arguments.seconds)
        row["start_s"] = [round(value, 3) for value in starts[name]]
        row["start_median_s"] = round(statistics.median(starts[name]), 3)
        rows.append(row)
        print(json.dumps(row, indent=1))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
