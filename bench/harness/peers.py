"""The measured servers: start, stop, and resource usage.

A peer is started on a fresh directory on the same file system, one at a time, pinned to the declared CPUs, and read
from /proc. To add one: a subclass of `Server` with a `command`, and its name in `PEERS` (see README.md).
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from harness.processes import Usage, memory_mb, pinned, usage
from ottla.app.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
JARS = [ROOT / ".cache" / "compat" / f"java-{name}" for name in ("kafka", "tools")]
"""Apache Kafka's broker and clients, then its tools, which are of an older version."""
CLASS_PATH = ":".join(f"{folder}/*" for folder in JARS)
START_TIMEOUT_S = 600.0  # an unclean restart of 10 GB is a start too
STOP_TIMEOUT_S = 120.0
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
ONE_REPLICA = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
"""Configs of a single Apache Kafka node."""


def free_port() -> int:
    """Returns a free port outside the ephemeral range: outgoing connections cannot take it while a peer is down."""
    return free_ports(1)[0]


def split(cpus: Collection[int]) -> tuple[frozenset[int], frozenset[int]]:
    """Returns the CPUs of the broker and of the load: half each; with fewer than four both share all of them."""
    if len(cpus) < 4:
        return frozenset(cpus), frozenset(cpus)
    ordered, half = sorted(cpus), len(cpus) // 2
    return frozenset(ordered[:half]), frozenset(ordered[half:])


BROKER_CPUS, LOAD_CPUS = split(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Member:
    """A node's place among the controllers of a cluster; every node is broker, controller and voter."""

    node_id: int
    controllers: Mapping[int, int]
    """The port of the controller's listener of every node, by node id."""

    def properties(self, listeners: str, data: Path, settings: Mapping[str, object]) -> str:
        """Returns the node's config file with Kafka's setting names, the same for every peer."""
        lines = {
            "process.roles": "broker,controller",
            "node.id": self.node_id,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{each}" for each in self.controllers.values()),
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{self.controllers[self.node_id]}",
            "log.dirs": data,
            **settings,
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())

    def initial_controllers(self) -> str:
        """Returns the voters with their directory ids, in the format of both commands that format a directory."""
        ids = {each: base64.urlsafe_b64encode(bytes([each]) * 16)[:22].decode() for each in self.controllers}
        return ",".join(f"{each}@127.0.0.1:{port}:{ids[each]}" for each, port in self.controllers.items())


@dataclass
class Server:
    """One server process on a temporary directory; a context manager starts it, and stops and deletes it on exit."""

    name: str
    settings: dict[str, object] = field(default_factory=dict)
    """Broker settings by their Kafka names, beyond the defaults."""
    port: int = field(default_factory=free_port)
    home: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="ottla-bench-")))
    cpus: frozenset[int] = BROKER_CPUS
    member: Member | None = None
    """Its place in a cluster (`harness.cluster`); None for a single node."""
    tls_port: int | None = None
    """Port of a second listener with a certificate in the settings; None for none."""
    process: subprocess.Popen[bytes] | None = None
    protocol: ClassVar[str] = "kafka"

    @staticmethod
    def missing() -> str:
        """Returns the packages missing to start the peer, as a sentence; empty if none."""
        return ""

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def listeners(self) -> str:
        """Returns the value of the `listeners` setting for clients."""
        plain = f"PLAINTEXT://127.0.0.1:{self.port}"
        return plain if self.tls_port is None else f"{plain},SSL://127.0.0.1:{self.tls_port}"

    @property
    def pid(self) -> int:
        if self.process is None:
            raise RuntimeError("the server is not running")
        return self.process.pid

    @property
    def data(self) -> Path:
        """The server's data directory; partition 0 of topic t of a Kafka peer is `data/t-0`."""
        return self.home / "data"

    @property
    def properties(self) -> Path:
        """The config file of peers that have one."""
        return self.home / "server.properties"

    def prepare(self) -> None:
        """Prepare a fresh directory before the first start, e.g. format it."""

    def command(self) -> Sequence[str]:
        """Returns the command line."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def start(self) -> float:
        """Start on the existing directory; returns seconds from process start to the first response."""
        started = time.perf_counter()
        self.launch()
        self.wait_until(self.answers)
        return time.perf_counter() - started

    def launch(self) -> None:
        """Start the process without waiting for it."""
        command = pinned(self.command(), self.cpus)
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=self.home, env=self.environment()
            )

    def wait_until(self, reached: Callable[[], bool], pause_s: float = 0.001) -> None:
        """Poll until the condition holds; raises RuntimeError on a timeout or when the process exits."""
        deadline = time.perf_counter() + START_TIMEOUT_S
        while not reached():
            self.check_alive()
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{self.name}: not ready within {START_TIMEOUT_S:.0f} s")
            time.sleep(pause_s)

    def check_alive(self) -> None:
        """Raises RuntimeError with the end of the log when a started process has exited."""
        if self.process is not None and self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}: {self.last_words()}")

    def end(self, number: signal.Signals) -> None:
        """Send a signal without waiting for the process to exit."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the process, cleanly or with SIGKILL; the directory remains."""
        if self.process is not None and self.process.poll() is None:
            self.end(number)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        self.process = None

    def restart(self) -> float:
        """Stop cleanly and start on the same data; returns the start time of the new process (perf_counter)."""
        self.stop()
        seconds = self.start()
        return time.perf_counter() - seconds

    def answers(self) -> bool:
        """Returns whether the server responds to an ApiVersions request on a new connection."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(API_VERSIONS)
                return len(connection.recv(4, socket.MSG_WAITALL)) == 4
        except OSError:
            return False

    def last_words(self) -> str:
        return (self.home / "server.log").read_text(errors="replace")[-500:]

    def remove(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Server:
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self.remove()

    def usage(self) -> Usage:
        """Returns CPU seconds of all threads and children so far, with the time; subtract two for a window."""
        return usage(self.pid)

    def cpu_seconds(self) -> float:
        return self.usage().cpu_s

    def memory_mb(self) -> float:
        """Returns the current resident memory."""
        return memory_mb(self.pid)

    def peak_memory_mb(self) -> float:
        """Returns the maximum resident memory since the start of the process."""
        return memory_mb(self.pid, "VmHWM")


@dataclass
class Ottla(Server):
    """A checkout of Ottla, or a folder with an installation; this checkout by default."""

    source: Path = ROOT / "src"
    supervised: int = 0
    """Number of brokers started by one command, `--brokers`, which also formats their directories; 0 for one process.
    """

    def prepare(self) -> None:
        if self.member is not None:
            self.properties.write_text(self.member.properties(self.listeners, self.data, self.settings))
            command = [sys.executable, "-m", "ottla", "format", "--config", str(self.properties)]
            command += ["--cluster-id", CLUSTER_ID, "--initial-controllers", self.member.initial_controllers()]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=self.environment())

    def command(self) -> Sequence[str]:
        command = [sys.executable, "-m", "ottla", "start", "--log-level", "warning"]
        if self.member is not None:
            return [*command, "--config", str(self.properties)]
        command += ["--data-dir", str(self.data)]
        command += ["--port", str(self.port)] if self.tls_port is None else ["--set", f"listeners={self.listeners}"]
        if self.supervised:
            command += ["--brokers", str(self.supervised)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYTHONPATH": str(self.source)}


@dataclass
class Kafka(Server):
    """Apache Kafka in KRaft combined mode, with the JVM settings of its own start script."""

    JAVA: ClassVar[Sequence[str]] = (
        *("java", "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
        *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"),
        *("-Djava.awt.headless=true", "-cp", CLASS_PATH),
    )

    @staticmethod
    def missing() -> str:
        if shutil.which("java") and all(any(folder.glob("*.jar")) for folder in JARS):
            return ""
        return "Java (Debian: default-jre-headless) or Apache Kafka's jars are missing; make bench fetches the jars"

    def prepare(self) -> None:
        member, settings = self.member, self.settings
        if member is None:
            member, settings = Member(1, {1: free_port()}), {**ONE_REPLICA, **settings}
        self.properties.write_text(member.properties(self.listeners, self.data, settings))
        storage = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self.properties)]
        storage += ["--initial-controllers", member.initial_controllers()]
        subprocess.run([*self.JAVA, *storage], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def command(self) -> Sequence[str]:
        return [*self.JAVA, "kafka.Kafka", str(self.properties)]


@dataclass
class Nats(Server):
    """NATS with JetStream, file storage, its own defaults (nats-server of Debian)."""

    protocol: ClassVar[str] = "nats"

    @staticmethod
    def missing() -> str:
        return "" if shutil.which("nats-server") else "nats-server is missing (Debian: nats-server)"

    def command(self) -> Sequence[str]:
        return ["nats-server", "-a", "127.0.0.1", "-p", str(self.port), "--jetstream", "--store_dir", str(self.data)]

    def answers(self) -> bool:
        """Returns whether INFO arrives and a PING is answered."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
                answer = b""
                while b"PONG" not in answer:
                    more = connection.recv(4096)
                    if not more:
                        return False
                    answer += more
                return True
        except OSError:
            return False


PEERS: dict[str, type[Server]] = {"ottla": Ottla, "kafka": Kafka, "nats": Nats}
