"""Runs `ottla start` in its own process."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

READY_TIMEOUT_S = 60


class Started:
    """A broker process that is ready."""

    def __init__(self, process: subprocess.Popen[bytes], ready: dict[str, Any], log: Path) -> None:
        self.process = process
        self.ready = ready
        self.log = log

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.ready["bootstrap_servers"].rpartition(":")
        return host, int(port)

    def api_versions(self) -> bytes:
        """The answer to ApiVersions version 0, without its size."""
        with socket.create_connection(self.address, timeout=60) as client:
            client.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
            with client.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                return stream.read(size)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(READY_TIMEOUT_S)


class Ottla:
    """Starts brokers below one directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, data_dir: str = "data", command: tuple[str, ...] = ("-m", "ottla")) -> Started:
        ready_file = self.folder / "ready.json"
        log = self.folder / "log"
        places = ["--port", "0", "--data-dir", str(self.folder / data_dir), "--ready-file", str(ready_file)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *command, "start", *places, *arguments], stderr=output, cwd=self.folder
            )
        self.processes.append(process)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not ready_file.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.005)
        ready = json.loads(ready_file.read_text())
        ready_file.unlink()
        return Started(process, ready, log)

    def refuse(self, *arguments: str, code: str = "", env: dict[str, str] | None = None) -> str:
        """The only line on standard error of a start that must exit with code 2."""
        command = ["-c", code] if code else ["-m", "ottla"]
        done = subprocess.run(
            [sys.executable, *command, "start", *arguments],
            capture_output=True,
            text=True,
            timeout=READY_TIMEOUT_S,
            cwd=self.folder,
            env=None if env is None else os.environ | env,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr


@pytest.fixture(scope="session")
def code_for_zookeeper() -> Callable[[Iterable[str]], list[str]]:
    """Selects the modules that an import contract reserves for ZooKeeper and consumers of Kafka 0.9."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    (contract,) = (each for each in project["tool"]["importlinter"]["contracts"] if each["type"] == "protected")
    rooms = contract["protected_modules"]
    return lambda loaded: [name for name in loaded if any(f"{name}.".startswith(f"{room}.") for room in rooms)]


@pytest.fixture
def ottla(tmp_path: Path) -> Iterator[Ottla]:
    runner = Ottla(tmp_path)
    yield runner
    for process in runner.processes:
        if process.poll() is None:
            process.kill()
        process.wait()
