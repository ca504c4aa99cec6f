"""Coordination of the brokers: a quorum, or three ZooKeeper servers, each on its own host.

With ZooKeeper the brokers' logs show the start and epoch of each controller term.
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from ..cluster.ensemble import SERVERS, Ensemble, Seat, Server
from ..faults.small_disk import MEGABYTE, SmallDisk
from .network import address

KINDS = ("quorum", "zookeeper")
JARS = Path(__file__).resolve().parents[2] / ".cache" / "compat" / "java-zookeeper"
HOSTS = range(11, 11 + SERVERS)
"""Of the servers; brokers have their node id."""
PORTS = (2181, 2888, 3888)
DISK_BYTES = 1024 * MEGABYTE
"""More than they write: no fault of a run fills these."""
SYNC_TICKS = 3
"""In seconds: less than most network cuts last, so that servers elect another leader meanwhile."""
ENDS_BY_SIGTERM = 143
"""The exit code of Java."""

_REIGN = re.compile(r"broker (\d+) is the controller in epoch (\d+)")

Reigns = Mapping[int, Sequence[int]]
"""The controller of each controller epoch."""


def obstacle(kind: str) -> str | None:
    """Why this machine can't do it."""
    if kind != "zookeeper":
        return None
    if shutil.which("java") is None:
        return "needs Java for the servers of ZooKeeper (Debian: default-jre-headless)"
    if not any(JARS.glob("zookeeper-*.jar")):
        return "needs the jars of ZooKeeper, which `make chaos COORDINATION=zookeeper` has Maven fetch (Debian: maven)"
    return None


def reigns_in(logs: Iterable[str]) -> Reigns:
    """The controller terms in the logs of brokers."""
    found: dict[int, list[int]] = defaultdict(list)
    for log in logs:
        for broker_id, epoch in _REIGN.findall(log):
            found[int(epoch)].append(int(broker_id))
    return found


def shared(reigns: Reigns) -> list[str]:
    """Epochs that began more than once."""
    return [
        f"controller epoch {epoch} is of brokers {', '.join(map(str, brokers))}"
        for epoch, brokers in sorted(reigns.items())
        if len(brokers) > 1
    ]


class Quorum:
    """The brokers' own: nothing beside them. A context manager."""

    holders: Mapping[int, int] = {}
    """A process in the namespace of each host, by its id."""
    servers: Mapping[int, Server] = {}
    """By the id of their host."""
    node_settings: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def start(self) -> str | None:
        """On the network; the servers' addresses, where there are some."""
        return None


class ZooKeepers(Quorum):
    """Three servers. On the way out they are gone."""

    node_settings: Mapping[str, str] = {"zookeeper.connection.timeout.ms": "120000"}
    """A start outlasts all faults; by the default it would end with the session's timeout, where no server answers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._disks: dict[int, SmallDisk] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for host in HOSTS:
                home = self._folder / f"host-{host}"
                home.mkdir(parents=True)
                self._disks[host] = stack.enter_context(SmallDisk(home, DISK_BYTES, own_network=True))
            self._stack = stack.pop_all()
        self.holders = {host: disk.holder for host, disk in self._disks.items()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self) -> str:
        seats = [
            Seat(address(host), PORTS, disk.path / "data", disk.outside / "data", disk.enter)
            for host, disk in self._disks.items()
        ]
        ensemble = self._stack.enter_context(Ensemble(str(JARS / "*"), self._folder, seats, sync_ticks=SYNC_TICKS))
        self.servers = dict(zip(self._disks, ensemble.servers, strict=True))
        return ensemble.address


def make_coordination(kind: str, folder: Path) -> Quorum:
    """One of KINDS."""
    return ZooKeepers(folder) if kind == "zookeeper" else Quorum()
