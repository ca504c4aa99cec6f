"""Work for tests of the local engine, which its worker processes import."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.client.admin.cluster import Cluster
from ottla.client.admin.records import RecordService
from ottla.client.wire.model import FetchResult
from ottla.pipeline.local.pool import open_local


@dataclass(frozen=True)
class Flaky:
    """Fails at one task, by an exception or by SIGKILL, as often as given; returns the number and the process id."""

    graves: Path
    failing: int
    failures: int
    signal: bool = False

    def __call__(self, number: int) -> tuple[int, int]:
        if number == self.failing and len(list(self.graves.iterdir())) < self.failures:
            (self.graves / f"{time.monotonic_ns()}").touch()
            if self.signal:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ConnectionResetError(f"task {number} failed")
        return number, os.getpid()


@dataclass(frozen=True)
class Endless:
    """Writes its process id into a file, and removes the file when it is unwound."""

    folder: Path

    def __call__(self, number: int) -> None:
        path = self.folder / f"task-{number}"
        try:
            path.write_text(str(os.getpid()))
            signal.pause()
        finally:
            path.unlink()


class DeadlyRecords(RecordService):
    """Kills its process in a fetch of partition 1, as often as given."""

    graves: Path
    deaths: int

    def fetch(self, topic: str, partition: int, offset: int, **named: Any) -> FetchResult:
        died = len(list(self.graves.iterdir()))
        if partition == 1 and died < self.deaths:
            (self.graves / str(died)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fetch(topic, partition, offset, **named)


class DeadlyCluster(Cluster):
    """A cluster with `DeadlyRecords`."""

    def __init__(self, bootstrap_servers: str, graves: Path, deaths: int) -> None:
        super().__init__(bootstrap_servers)
        records = DeadlyRecords(self._router)
        records.graves, records.deaths = graves, deaths
        self.records = records


def living(pids: Mapping[str, int]) -> list[int]:
    """Those processes that still run."""
    found = []
    for pid in pids.values():
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                found.append(pid)
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.pipeline import local_work  # the workers can't import `__main__`

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets background processes ignore it
    with open_local(2, 1) as session:
        session.run(2, local_work.Endless(Path(sys.argv[1])))
