"""Iceberg's own REST catalog in a process, with SQLite as its database and tables in a directory."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from pathlib import Path

from ottla.app.ports import free_ports

START_S = 180.0


class CatalogProcess:
    """A catalog that can be stopped and restarted at the same address."""

    def __init__(self, class_path: str, home: Path) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.warehouse = home / "warehouse"
        self._log = home / "catalog.log"
        self._command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", class_path]
        self._settings = {
            "CATALOG_REST_PORT": str(port),
            "CATALOG_URI": f"jdbc:sqlite:{home / 'catalog.db'}",
            "CATALOG_WAREHOUSE": self.warehouse.as_uri(),
        }
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "org.apache.iceberg.rest.RESTCatalogServer"],
                env=os.environ | self._settings,
                stdout=log,
                stderr=log,
            )
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
            with urllib.request.urlopen(f"{self.url}/v1/config", timeout=5):
                return True
        except OSError:
            return False
