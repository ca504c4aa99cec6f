"""The servers that are measured: how each one starts, stops, and what it has used.

A peer is started on a fresh directory on the same file system, one at a time, and read from /proc.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[1]
TICKS = os.sysconf("SC_CLK_TCK")
START_TIMEOUT_S = 60.0


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until the port accepts; raises RuntimeError when the process ends first or the time is up."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise RuntimeError(f"no answer on port {port} within {START_TIMEOUT_S:.0f} s")


@dataclass
class Server:
    """One running server process on a temporary directory."""

    name: str
    port: int = field(default_factory=free_port)
    home: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="ottla-bench-")))
    process: subprocess.Popen[bytes] | None = None
    settings: dict[str, object] = field(default_factory=dict)
    """Broker settings by their Kafka names, beyond the defaults."""

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self.process is None:
            raise RuntimeError("the server is not running")
        return self.process.pid

    def command(self) -> list[str]:
        """The command line; subclasses prepare their directory here."""
        raise NotImplementedError

    def __enter__(self) -> Server:
        log = (self.home / "server.log").open("wb")
        self.process = subprocess.Popen(self.command(), stdout=log, stderr=subprocess.STDOUT, cwd=self.home)
        wait_for_port(self.port, self.process)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=60)
        shutil.rmtree(self.home, ignore_errors=True)

    def restart(self) -> float:
        """Stop as SIGTERM does and start again on the same data; returns when the new process was started."""
        if self.process is None:
            raise RuntimeError("the server is not running")
        command: list[str] = list(self.process.args)  # type: ignore[arg-type]
        self.process.terminate()
        self.process.wait(timeout=120)
        started = time.perf_counter()
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=self.home)
        wait_for_port(self.port, self.process)
        return started

    def cpu_seconds(self) -> float:
        """User and system time of all threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_mb(self) -> float:
        """Resident set now."""
        return self._status_mb("VmRSS")

    def peak_memory_mb(self) -> float:
        """Largest resident set so far."""
        return self._status_mb("VmHWM")

    def _status_mb(self, name: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"no {name} in /proc/{self.pid}/status")


class Ottla(Server):
    """This checkout."""

    def command(self) -> list[str]:
        ottla = ROOT / ".venv" / "bin" / "ottla"
        return [
            str(ottla),
            "start",
            "--data-dir",
            str(self.home / "data"),
            "--port",
            str(self.port),
            "--log-level",
            "warning",
            *(argument for name, value in self.settings.items() for argument in ("--set", f"{name}={value}")),
        ]


class Kafka(Server):
    """Apache Kafka in KRaft combined mode, with the JVM settings of its own start script."""

    def command(self) -> list[str]:
        jars = ROOT / ".cache" / "compat" / "java-lib"
        if not jars.exists():
            raise SystemExit("Apache Kafka's jars are missing; fetch them with: make compat")
        controller = free_port()
        properties = self.home / "server.properties"
        properties.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}\n"
            f"log.dirs={self.home / 'data'}\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
            + "".join(f"{name}={value}\n" for name, value in self.settings.items())
        )
        java = ["java", "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        java += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-cp", f"{jars}/*"]
        storage = [*java, "kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(properties)]
        subprocess.run(storage, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return [*java, "kafka.Kafka", str(properties)]


PEERS: dict[str, type[Server]] = {"ottla": Ottla, "kafka": Kafka}
