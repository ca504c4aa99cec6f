"""Apicurio Registry in a process, by the API of Confluent's registry; its database is a file."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from pathlib import Path

from ottla.app.ports import free_ports

START_S = 180.0
API = "/apis/ccompat/v7"


class RegistryProcess:
    """A registry that can be killed and restarted at the same address with its data."""

    def __init__(self, jar: Path, home: Path) -> None:
        (port,) = free_ports(1)
        self.root = f"http://127.0.0.1:{port}"
        self.url = self.root + API
        self._log = home / "registry.log"
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(port),
            # makes every acknowledged write durable, even if a kill follows immediately
            "apicurio.datasource.url": f"jdbc:h2:file:{home / 'registry'};WRITE_DELAY=0",
        }
        options = [f"-D{name}={value}" for name, value in settings.items()]
        self._command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", *options, "-jar", str(jar)]
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(0.1)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5):
                return True
        except OSError:
            return False
