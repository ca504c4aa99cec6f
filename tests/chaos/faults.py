"""Faults of a run: a schedule drawn from the seed, and its execution on processes and links."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..cluster.ensemble import Server
from ..cluster.logged_process import STOP_TIMEOUT_S
from ..cluster.nodes import Node, Nodes, eventually
from ..faults.small_disk import SmallDisk
from .coordination import reigns_in
from .network import CLIENTS, Link, Links, Network

WEIGHTS = {
    "kill": 5,  # kill -9, started again after a while
    "restart": 4,  # SIGTERM, started again after a while
    "pause": 4,  # SIGSTOP, SIGCONT
    "kill-all": 1,
    "one-way": 3,  # one broker does not receive from another
    "muted": 2,  # no broker receives from one of them
    "isolated": 2,  # one broker and the others can't reach each other, clients reach all
    "unplugged": 2,  # one broker is isolated in both directions
    "bad-link": 4,  # loss and delay on all links of one broker
    "full-disk": 3,
}
ON_ZOOKEEPER = {
    **WEIGHTS,
    "kill-controller": 4,
    "kill-servers": 1,  # of ZooKeeper, all
    "expire": 4,  # a broker stands still for longer than its session lasts
    "alone": 4,  # a broker and the servers can't reach each other; brokers and clients reach it
}
"""Others than those of OF_BROKERS and kill-all are of any host."""
OF_BROKERS = frozenset({"full-disk", "kill-controller", "expire", "alone"})
OF_ALL = frozenset({"kill-all", "kill-servers"})
PROCESS_FAULTS = frozenset({"kill", "restart", "pause", "kill-controller", "expire", *OF_ALL})
SECONDS = (0.3, 8.0)
EXPIRY_S = (4.0, 12.0)
LOSS = (0.01, 0.15)
DELAY_S = (0.005, 0.15)
GAP_S = 3.0
"""Mean between the beginnings of two faults, with three brokers; with more, more often."""

READY_TIMEOUT_S = 60.0
LOCK_TIMEOUT_S = 0.5
"""More than the supervisor takes to start a process; less than a fault that holds it."""
SUPERVISION_S = 0.1


@dataclass(frozen=True)
class Fault:
    """One entry of the schedule; times in seconds, `at_s` from the beginning of the round."""

    at_s: float
    kind: str
    node: int
    other: int
    seconds: float
    link: Link

    def __str__(self) -> str:
        return f"{self.kind} {self.node}" + (f" to {self.other}" if self.kind == "one-way" else "")

    def links(self, nodes: Sequence[int], servers: Sequence[int] = ()) -> Links:
        """The effect on the network of these hosts."""
        others = [host for host in (*nodes, *servers) if host != self.node]
        away = {(self.node, other) for other in others}
        back = {(other, self.node) for other in others}
        clients = {(self.node, CLIENTS), (CLIENTS, self.node)}
        touched = {
            "one-way": {(self.node, self.other)},
            "muted": away,
            "isolated": away | back,
            "unplugged": away | back | clients,
            "bad-link": away | back | clients,
            "alone": {pair for server in servers for pair in ((self.node, server), (server, self.node))},
        }.get(self.kind, set())
        return dict.fromkeys(touched, self.link)


def schedule(rng: random.Random, seconds: float, nodes: Sequence[int], servers: Sequence[int] = ()) -> list[Fault]:
    """The faults of a round of `seconds`, in order of their beginning."""
    faults = []
    choice = ON_ZOOKEEPER if servers else WEIGHTS
    kinds, weights = list(choice), list(choice.values())
    at_s = rng.uniform(0.5, 2.0)
    while at_s < seconds:
        kind = rng.choices(kinds, weights)[0]
        node, other = rng.sample([*nodes, *(() if kind in OF_BROKERS else servers)], 2)
        bad = Link(loss=rng.uniform(*LOSS), delay_s=rng.uniform(*DELAY_S), jitter_s=rng.uniform(*DELAY_S))
        lasting = min(rng.uniform(*(EXPIRY_S if kind == "expire" else SECONDS)), seconds - at_s)
        faults.append(Fault(at_s, kind, node, other, lasting, bad if kind == "bad-link" else Link(cut=True)))
        at_s += rng.expovariate(len(nodes) / 3 / GAP_S)
    return faults


@dataclass
class Done:
    """A fault that was carried out, by the monotonic clock."""

    fault: Fault
    start_s: float
    end_s: float | None = None


class Nemesis:
    """Executes schedules, and restarts processes that ended."""

    def __init__(
        self, nodes: Nodes, disks: Sequence[SmallDisk], network: Network, servers: Mapping[int, Server]
    ) -> None:
        """`disks` in the order of the nodes, `servers` of ZooKeeper by their hosts."""
        self._nodes = nodes
        self._servers = servers
        self._processes: dict[int, Node | Server] = {**{node.node_id: node for node in nodes.nodes}, **servers}
        self._disks = {node.node_id: disk for node, disk in zip(nodes.nodes, disks, strict=True)}
        self._network = network
        self._calm = threading.Event()
        self._note: Callable[[str, str], None] = lambda _fault, _what: None
        self._locks = {host: threading.Lock() for host in self._processes}
        self._filled: Counter[int] = Counter()
        self._had_full_disk: set[int] = set()
        """Nodes that had a full disk since their last start."""
        self._threads: list[threading.Thread] = []
        self.done: list[Done] = []
        self.counts: Counter[str] = Counter()
        self.skipped = 0
        """Faults that met a process already stopped by another one."""
        self.ended_by_itself: list[str] = []
        """Unexpected ends of processes that no full disk explains."""
        self.ended_on_a_full_disk = 0
        self.servers_ended = 0
        """Unexpected ends of ZooKeeper servers; they are restarted like brokers."""

    def begin(self, faults: Sequence[Fault], note: Callable[[str, str], None]) -> None:
        """Execute the schedule in the background; `note` is called at each start and end."""
        self._calm.clear()
        self._note = note
        start_s = time.monotonic()
        self._threads = [threading.Thread(target=self._carry_out, args=(fault, start_s)) for fault in faults]
        self._threads.append(threading.Thread(target=self._supervise))
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """End all faults; on return all processes serve. Raises AssertionError if they don't in time."""
        self._calm.set()
        for thread in self._threads:
            thread.join()
        eventually(self._all_ready, "every node serves again", READY_TIMEOUT_S)

    def _all_ready(self) -> bool:
        self._supervise_once()
        return all(process.ready for process in self._processes.values())

    def active(self, start_s: float, end_s: float) -> list[str]:
        """Faults that were there at some time between the two."""
        return [
            str(each.fault)
            for each in list(self.done)
            if each.start_s < end_s and (each.end_s is None or each.end_s > start_s)
        ]

    def _carry_out(self, fault: Fault, start_s: float) -> None:
        if self._calm.wait(max(0.0, start_s + fault.at_s - time.monotonic())):
            return
        if fault.kind == "kill-controller":
            fault = replace(fault, node=self._controller() or fault.node)
        if fault.kind in PROCESS_FAULTS:
            wanted = self._victims(fault)
            held = [node_id for node_id in wanted if self._locks[node_id].acquire(timeout=LOCK_TIMEOUT_S)]
            try:
                if held == wanted:
                    self._counted(fault, lambda: self._on_processes(fault, wanted))
                else:
                    self.skipped += 1
            finally:
                for node_id in held:
                    self._locks[node_id].release()
        elif fault.kind == "full-disk":
            self._counted(fault, lambda: self._full_disk(fault))
        else:
            self._counted(fault, lambda: self._on_network(fault))

    def _victims(self, fault: Fault) -> list[int]:
        if fault.kind not in OF_ALL:
            return [fault.node]
        return [host for host in self._processes if (host in self._servers) == (fault.kind == "kill-servers")]

    def _controller(self) -> int | None:
        """The controller of the newest epoch."""
        reigns = reigns_in(node.log_text() for node in self._nodes.nodes)
        return reigns[max(reigns)][-1] if reigns else None

    def _counted(self, fault: Fault, carry_out: Callable[[], None]) -> None:
        self.counts[fault.kind] += 1
        entry = Done(fault, time.monotonic())
        self.done.append(entry)
        self._note(str(fault), "begins")
        carry_out()
        self._note(str(fault), "is over")
        entry.end_s = time.monotonic()

    def _on_network(self, fault: Fault) -> None:
        self._network.begin(fault, fault.links([node.node_id for node in self._nodes.nodes], list(self._servers)))
        self._calm.wait(fault.seconds)
        self._network.end(fault)

    def _full_disk(self, fault: Fault) -> None:
        self._filled[fault.node] += 1
        self._had_full_disk.add(fault.node)
        self._disks[fault.node].fill()
        self._calm.wait(fault.seconds)
        self._filled[fault.node] -= 1
        if not self._filled[fault.node]:
            self._disks[fault.node].free()

    def _on_processes(self, fault: Fault, hosts: Sequence[int]) -> None:
        running = [host for host in hosts if self._processes[host].process is not None]
        if fault.kind in ("pause", "expire"):
            for host in running:
                self._signal(host, signal.SIGSTOP)
            self._calm.wait(fault.seconds)
            for host in running:
                self._signal(host, signal.SIGCONT)
            return
        for host in running:
            self._stop(host) if fault.kind == "restart" else self._processes[host].kill()
        self._calm.wait(fault.seconds)
        for host in running:
            self._start(host)

    def _signal(self, host: int, number: int) -> None:
        process = self._processes[host].process
        if process is not None and process.poll() is None:
            os.kill(process.pid, number)

    def _stop(self, host: int) -> None:
        victim = self._processes[host]
        process, served = victim.process, victim.ready
        try:
            code = victim.stop()
        except subprocess.TimeoutExpired:
            self.ended_by_itself.append(f"node {host} did not end within {STOP_TIMEOUT_S:g} s of SIGTERM")
            process.kill()
            process.wait()
            return
        # A process that is still starting ends by the signal itself, as by a kill; a server of ZooKeeper always does.
        if code != 0 and host not in self._servers and (served or code != -signal.SIGTERM):
            self._record_exit(host, code, "at a SIGTERM")

    def _start(self, host: int) -> None:
        if not self._filled[host]:
            self._had_full_disk.discard(host)
        self._processes[host].start(wait=False)

    def _supervise(self) -> None:
        while not self._calm.wait(SUPERVISION_S):
            self._supervise_once()

    def _supervise_once(self) -> None:
        for host, watched in self._processes.items():
            if not self._locks[host].acquire(blocking=False):
                continue
            try:
                if watched.process is not None and (code := watched.process.poll()) is not None:
                    self._record_exit(host, code, "by itself")
                    watched.process = None
                if watched.process is None and not self._filled[host]:
                    self._start(host)
            finally:
                self._locks[host].release()

    def _record_exit(self, host: int, code: int, how: str) -> None:
        self._note(f"node {host}", f"ended {how} with code {code}")
        if host in self._servers:
            self.servers_ended += 1
        elif host in self._had_full_disk:
            self.ended_on_a_full_disk += 1
        else:
            last = "\n".join(self._processes[host].log_text().splitlines()[-3:])
            self.ended_by_itself.append(f"node {host} ended {how} with code {code}:\n{last}")
