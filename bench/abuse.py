"""The worst delay of an honest client while one connection pipelines the most expensive legal request of each API.

python bench/abuse.py [--elements 19000] [--groups 1000] [--topics 100] [--only PATTERN] [--clients open,unprivileged]

The honest client sends ApiVersions on its own connection, one request after the other. Requests are built from the
table of APIs (`harness.expensive`), so that new APIs are included. `open` measures a broker without an authorizer; on
one with an authorizer, `unprivileged` is a client without an ACL, and `privileged` a super user.

It reports the worst wall-clock delay, and the most CPU time of the broker within one delay, which is the steadier
figure on a shared machine. A delay above the limit sets exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import socket
import struct
import threading
import time
from pathlib import Path
from typing import NamedTuple

from harness.expensive import ELEMENTS, Expensive, expensive_requests

from ottla.protocol.header import encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.testing import Broker

PIPELINED = 16
MEASURED_S = 1.5
LIMIT_MS = 50.0
PAUSE_S = 0.002
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLIENTS = {
    "open": {},
    "unprivileged": {"authorizer.class.name": AUTHORIZER, "super.users": "User:admin"},
    "privileged": {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"},
}
HONEST = encode_request(ApiKey.API_VERSIONS, 0, 1, "honest", ApiVersionsRequest())


class Delay(NamedTuple):
    """The worst delays of an honest client."""

    wall_ms: float
    cpu_ms: float


def cpu_s(pid: int) -> float:
    """Returns the CPU seconds of a process so far, at the resolution of kernel ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def receive(client: socket.socket) -> bytes:
    """Returns one response."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        piece = client.recv(1 << 16)
        if not piece:
            raise ConnectionError("the broker closed the connection")
        data += piece
    return data


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    client = socket.create_connection((host, int(port)), timeout=60)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def flood(address: str, frame: bytes, stopped: threading.Event) -> None:
    """Send the request in a pipeline, and read the responses, until it is stopped."""
    while not stopped.is_set():
        with connect(address) as client:
            client.settimeout(0.2)
            reader = threading.Thread(target=drain, args=(client, stopped))
            reader.start()
            with contextlib.suppress(OSError):
                client.sendall(frame * PIPELINED)
            reader.join()


def drain(client: socket.socket, stopped: threading.Event) -> None:
    while not stopped.is_set():
        try:
            if not client.recv(1 << 20):
                return
        except TimeoutError:
            continue
        except OSError:
            return


def measure(address: str, pid: int, expensive: Expensive) -> Delay:
    """Returns the worst delay next to one connection that floods the broker."""
    frame = encode_request(expensive.api_key, expensive.version, 7, "abuse", expensive.message)
    stopped = threading.Event()
    abuser = threading.Thread(target=flood, args=(address, frame, stopped))
    wall = cpu = 0.0
    with connect(address) as honest:
        abuser.start()
        try:
            end = time.monotonic() + MEASURED_S
            while time.monotonic() < end:
                used, began = cpu_s(pid), time.monotonic()
                honest.sendall(HONEST)
                receive(honest)
                wall, cpu = max(wall, time.monotonic() - began), max(cpu, cpu_s(pid) - used)
                time.sleep(PAUSE_S)
        finally:
            stopped.set()
            abuser.join()
    return Delay(wall * 1000, cpu * 1000)


def fill(address: str, topics: int, groups: int) -> None:
    """Create the topics and groups that responses describe."""
    with connect(address) as client:

        def ask(key: ApiKey, version: int, message: object) -> None:
            client.sendall(encode_request(key, version, 1, "fill", message))
            receive(client)

        for start in range(0, topics, 50):
            made = [
                CreatableTopic(name=f"name-{number}", num_partitions=16, replication_factor=1)
                for number in range(start, min(start + 50, topics))
            ]
            ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=made, timeout_ms=60_000))
        ask(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["group-0"]))
        committed = OffsetCommitRequestTopic(
            name="name-0", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
        )
        for number in range(groups):
            ask(ApiKey.OFFSET_COMMIT, 8, OffsetCommitRequest(group_id=f"group-{number}", topics=[committed]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=ELEMENTS)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="such as 'ListGroups/*'")
    parser.add_argument("--clients", default=",".join(CLIENTS))
    options = parser.parse_args()
    failed = 0
    for client in options.clients.split(","):
        with Broker(configs=CLIENTS[client]) as broker:
            pid = int(broker.ready["pid"])
            address = broker.bootstrap_servers
            if client != "unprivileged":
                fill(address, options.topics, options.groups)
            for expensive in expensive_requests(options.elements):
                if not fnmatch.fnmatch(expensive.name, options.only):
                    continue
                delay = measure(address, pid, expensive)
                failed += delay.wall_ms > LIMIT_MS
                print(f"abuse/{client}/{expensive.name}: {delay.wall_ms:.0f} ms, CPU {delay.cpu_ms:.0f} ms", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
