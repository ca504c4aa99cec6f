"""An ensemble of three ZooKeeper servers as processes: each can be killed and restarted with its data.

The caller provides the class path (`compat/java/zookeeper.xml`); the servers log to files beside their configurations.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.app.ports import HOST, free_ports

from .logged_process import LoggedProcess
from .nodes import eventually

START_TIMEOUT_S = 180.0
PROBE_S = 5.0
SERVERS = 3
JAVA = ("java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dzookeeper.admin.enableServer=false")
SMALL_FILES = "-Dzookeeper.preAllocSize=1024"
"""KiB of a transaction log, instead of 64 MiB: each start creates one."""
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
PATIENT_TICKS = 10
"""Ticks without contact after which a server leaves the ensemble, or a leader without majority resigns."""

_MODE = re.compile(rb"^Mode: (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Seat:
    """Address of a server."""

    host: str
    ports: Sequence[int]
    """Ports for clients, for the leader's followers, for elections."""
    data_dir: Path
    """Address as the server sees it."""
    outside: Path
    """Address by which this process reaches it."""
    enter: Sequence[str] = ()
    """Prefix of commands that run there."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.ports[0]}"


def on_loopback(folder: Path) -> list[Seat]:
    """Return places for servers that share this machine's network."""
    ports = free_ports(3 * SERVERS)
    homes = [folder / f"zookeeper-{number}" for number in range(SERVERS)]
    return [Seat(HOST, ports[number::SERVERS], home, home) for number, home in enumerate(homes)]


class Server(LoggedProcess):
    """One server, killed and started like a `Node`."""

    def __init__(self, config: Path, seat: Seat, java: Sequence[str]) -> None:
        super().__init__(config.with_suffix(".log"))
        self.seat = seat
        self._command = [*seat.enter, *java, MAIN, str(config)]

    def start(self, *, wait: bool = False) -> None:
        """Start it for the first time or again."""
        self.run(self._command)
        if wait:
            eventually(lambda: self.ready, f"{self.log} reports a serving server", START_TIMEOUT_S)

    @property
    def mode(self) -> str:
        """Its role in the ensemble, `leader` or `follower`; "" if it accepts no sessions."""
        try:
            with socket.create_connection((self.seat.host, self.seat.ports[0]), PROBE_S) as probe:
                probe.sendall(b"srvr")
                found = _MODE.search(b"".join(iter(lambda: probe.recv(4096), b"")))
        except OSError:
            return ""
        return "" if found is None else found[1].decode()

    @property
    def ready(self) -> bool:
        """Whether it accepts sessions, as a member of the majority."""
        return bool(self.mode)


class Ensemble:
    """All servers; as a context manager they are started, and removed afterwards."""

    def __init__(
        self, classpath: str, folder: Path, seats: Sequence[Seat] = (), *, sync_ticks: int = PATIENT_TICKS
    ) -> None:
        """On loopback, unless `seats` are given; `folder` is for configurations and logs."""
        seats = seats or on_loopback(folder)
        members = [
            f"server.{number}={seat.host}:{seat.ports[1]}:{seat.ports[2]}" for number, seat in enumerate(seats, 1)
        ]
        common = ["tickTime=1000", "initLimit=30", f"syncLimit={sync_ticks}", *members]
        self.servers = []
        for number, seat in enumerate(seats, 1):
            seat.outside.mkdir()
            (seat.outside / "myid").write_text(str(number))
            config = folder / f"server-{number}.cfg"
            own = [f"dataDir={seat.data_dir}", f"clientPort={seat.ports[0]}", f"clientPortAddress={seat.host}"]
            config.write_text("\n".join([*common, *own, ""]))
            self.servers.append(Server(config, seat, [*JAVA, SMALL_FILES, "-cp", classpath]))
        self.address = ",".join(seat.address for seat in seats)

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.start()
            eventually(lambda: all(server.ready for server in self.servers), "all serve", START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop all of them; the data stays."""
        for server in self.servers:
            if server.process is not None:
                server.kill()
