"""The network of a run: a namespace per host, and a switch between them that loses, delays and cuts in one direction.

Each host has a TUN device in its own network namespace; a process reads and forwards the packets of all of them. So TCP
sees a bad network (retransmission, half-open connections, reordered packets), and the kernel needs only TUN: netem and
packet filters are often not built in. No address outside these namespaces exists.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import TracebackType

CLIENTS = 100
"""The host of all clients; brokers have their node id."""

DEVICE = "chaos0"
MTU = 9000
MAX_WAIT_S = 0.5
MAX_DELAYED = 20_000
"""Maximum packets in flight on slow links; more are lost, as in a full queue."""

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN_NO_PI = 0x0001 | 0x1000


def address(host: int) -> str:
    """Of the range for tests of networks (RFC 2544)."""
    return f"198.18.0.{host}"


@dataclass(frozen=True)
class Link:
    """Faults of packets in one direction between two hosts."""

    cut: bool = False
    loss: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0

    def also(self, other: Link) -> Link:
        """Both troubles at once."""
        return Link(
            self.cut or other.cut,
            max(self.loss, other.loss),
            self.delay_s + other.delay_s,
            self.jitter_s + other.jitter_s,
        )


Links = Mapping[tuple[int, int], Link]
"""By sender and receiver; a pair that is not named is well."""


def merged(troubles: Iterable[Links]) -> dict[tuple[int, int], Link]:
    """All of them at once."""
    links: dict[tuple[int, int], Link] = {}
    for trouble in troubles:
        for pair, link in trouble.items():
            links[pair] = links[pair].also(link) if pair in links else link
    return links


class Switch:
    """Passes packets between the devices; runs in a process of its own."""

    def __init__(self, ports: Mapping[int, int], rng: random.Random) -> None:
        """`ports` are the devices' descriptors by host."""
        self._ports = dict(ports)
        self._rng = rng
        self._links: dict[tuple[int, int], Link] = {}
        self._delayed: list[tuple[float, int, int, bytes]] = []
        self.passed = self.lost = self.late = 0

    def set_links(self, links: Links) -> None:
        """From now on; packets that are under way arrive."""
        self._links = dict(links)

    def receive(self, sender: int, packet: bytes, now: float) -> None:
        """A packet that host `sender` sent at `now`."""
        receiver = packet[19] if len(packet) >= 20 and packet[0] >> 4 == 4 else None
        if receiver not in self._ports:
            return
        link = self._links.get((sender, receiver))
        if link is None:
            self._deliver(receiver, packet)
        elif link.cut or self._rng.random() < link.loss or len(self._delayed) >= MAX_DELAYED:
            self.lost += 1
        else:
            due = now + link.delay_s + self._rng.random() * link.jitter_s
            self.late += 1
            heapq.heappush(self._delayed, (due, self.late, receiver, packet))

    def deliver_due(self, now: float) -> float:
        """Deliver due packets; returns the seconds until the next one."""
        while self._delayed and self._delayed[0][0] <= now:
            _, _, receiver, packet = heapq.heappop(self._delayed)
            self._deliver(receiver, packet)
        return min(MAX_WAIT_S, self._delayed[0][0] - now) if self._delayed else MAX_WAIT_S

    def _deliver(self, receiver: int, packet: bytes) -> None:
        try:
            os.write(self._ports[receiver], packet)
            self.passed += 1
        except OSError:  # its queue is full
            self.lost += 1

    def serve(self, control: int) -> None:
        """Until `control` is closed: each line there is a new state of the links, answered by the counts so far."""
        senders = {port: host for host, port in self._ports.items()}
        poll = select.epoll()
        for port in (*senders, control):
            poll.register(port, select.EPOLLIN)
        wait_s = MAX_WAIT_S
        while True:
            for descriptor, _ in poll.poll(wait_s):
                if descriptor == control:
                    line = sys.stdin.buffer.readline()
                    if not line:
                        return
                    self.set_links({(each[0], each[1]): Link(**each[2]) for each in json.loads(line)})
                    print(json.dumps([self.passed, self.lost, self.late]), flush=True)
                else:
                    self._drain(senders[descriptor], descriptor)
            wait_s = self.deliver_due(time.monotonic())

    def _drain(self, sender: int, port: int) -> None:
        now = time.monotonic()
        with suppress(BlockingIOError):
            for _ in range(64):  # then the others' turn
                self.receive(sender, os.read(port, 65_536), now)


def open_device(host: int, pid: int) -> int:
    """The descriptor of a TUN device with the address of `host`, in the network namespace of process `pid`."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(namespace: int) -> None:
        if libc.setns(namespace, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    other = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    enter(other)
    try:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN_NO_PI))
        for words in (
            f"address add {address(host)}/24 dev {DEVICE}",
            f"link set {DEVICE} mtu {MTU} txqueuelen 5000 up",
            "link set lo up",
        ):
            subprocess.run(["ip", *words.split()], check=True)
    finally:
        enter(own)
        os.close(own)
        os.close(other)
    return device


class Network:
    """The switch as its user sees it. A context manager; thread-safe."""

    def __init__(self, hosts: Mapping[int, int], seed: int) -> None:
        """`hosts`: a process in the namespace of each host, by its id."""
        self._hosts = hosts
        self._seed = seed
        self._lock = threading.Lock()
        self._troubles: dict[object, Links] = {}

    def __enter__(self) -> Network:
        ports = {host: open_device(host, pid) for host, pid in self._hosts.items()}
        command = [sys.executable, "-m", "tests.chaos.network", json.dumps(ports), str(self._seed)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=tuple(ports.values()), text=True
        )
        for port in ports.values():
            os.close(port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def begin(self, owner: object, trouble: Links) -> None:
        """`trouble` holds until `end(owner)`."""
        with self._lock:
            self._troubles[owner] = trouble
            self._counters()

    def end(self, owner: object) -> None:
        """The trouble of `owner` is over."""
        with self._lock:
            self._troubles.pop(owner, None)
            self._counters()

    def packets(self) -> tuple[int, int, int]:
        """Passed, lost and delayed so far."""
        with self._lock:
            passed, lost, delayed = self._counters()
            return passed, lost, delayed

    def _counters(self) -> list[int]:
        """The state of all links, which is answered by counts."""
        links = merged(self._troubles.values())
        control, answers = self._process.stdin, self._process.stdout
        control.write(json.dumps([[*pair, asdict(link)] for pair, link in links.items()]) + "\n")
        control.flush()
        return json.loads(answers.readline())


if __name__ == "__main__":
    descriptors = {int(host): port for host, port in json.loads(sys.argv[1]).items()}
    Switch(descriptors, random.Random(int(sys.argv[2]))).serve(sys.stdin.fileno())
