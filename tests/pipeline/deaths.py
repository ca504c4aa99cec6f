"""Deaths at chosen steps of a process under test: it records its steps, and is killed by SIGKILL at a planned one.

A death is an object with `step` and `victim` ("driver" for the process that created the `Deaths`, "worker" for the one
that reaches the step, which may be a Python worker of Spark). It happens once, even if the step is reached again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMIT_STEPS = {"open", "os.link", "os.rename", "os.remove", "sqlite3.connect"}
"""Audit events of a table's commit, including files that are opened for writing."""
STEP_NUMBERS = 4
"""Numbers for a step that many tasks reach, so that some of them can die there in one run, in their first attempts."""
LOGS = {"delta": "_delta_log", "iceberg": "metadata", "parquet": "_ottla_log"}
"""The directory that a commit of each format changes."""

_WATCHER = """
import os, sys, signal
pid, log = int(sys.argv[1]), sys.argv[2]
def found():
    return set(os.listdir(log)) if os.path.isdir(log) else set()
before = found()
print("ready", flush=True)
while found() == before:
    os.kill(pid, 0)
os.kill(pid, signal.SIGKILL)
"""


class Deaths:
    """Sent to workers. In `folder` (see `make_folder`) each step adds a line "PID STEP" to the file `steps`, and each
    death creates a file in `graves`."""

    def __init__(self, folder: Path, planned: Sequence[Mapping[str, str]]) -> None:
        self._folder = folder
        self._planned = [(death["step"], death["victim"]) for death in planned]
        self._driver = os.getpid()

    def reach(self, step: str) -> None:
        """Record a step of this process, and kill its victim if a death is planned there."""
        with (self._folder / "steps").open("a") as steps:
            steps.write(f"{os.getpid()} {step}\n")
        is_driver = os.getpid() == self._driver
        for planned, victim in self._planned:
            if planned == step and not (is_driver and victim == "worker"):  # the local engine may need no worker
                self._kill(victim, step)

    def reach_numbered(self, step: str, number: int) -> None:
        """Record the step, and the step with its number: "STEP N"."""
        self.reach(step)
        self.reach(f"{step} {number % STEP_NUMBERS}")

    def _kill(self, victim: str, step: str) -> None:
        with suppress(FileExistsError):
            (self._folder / "graves" / step).touch(exist_ok=False)
            os.kill(self._driver if victim == "driver" else os.getpid(), signal.SIGKILL)
            if victim == "driver":
                signal.pause()  # the worker of a dead driver must not continue


@dataclass(frozen=True)
class RecordedWork:
    """Work of the local engine that records its steps: "reading" before a task, "written" after it."""

    work: Callable[[int], Any]
    deaths: Deaths

    def __call__(self, number: int) -> Any:
        self.deaths.reach_numbered("reading", number)
        row = self.work(number)
        self.deaths.reach_numbered("written", number)
        return row


def make_folder(folder: Path) -> None:
    """Create the folder before the first process starts, since the killer reads it at once."""
    (folder / "graves").mkdir(parents=True)
    (folder / "steps").touch()


def graves(folder: Path) -> list[str]:
    """The steps at which a process was killed."""
    return sorted(path.name for path in (folder / "graves").iterdir())


def steps(folder: Path) -> list[str]:
    """Recorded steps of all processes so far, each "PID STEP"."""
    return (folder / "steps").read_text().splitlines()


def die_before(step: int) -> None:
    """Kill this process before the Nth step of a commit, counted from now on."""
    left = step

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event not in COMMIT_STEPS or (event == "open" and not _writes(arguments)):
            return
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    sys.addaudithook(hook)


def die_when_changed(directory: Path) -> None:
    """Let another process kill this one as soon as it sees the directory change."""
    watcher = [sys.executable, "-c", _WATCHER, str(os.getpid()), str(directory)]
    process = subprocess.Popen(watcher, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()


def _writes(arguments: tuple[object, ...]) -> bool:
    _, mode, flags = arguments
    return "w" in mode if isinstance(mode, str) else bool(int(str(flags)) & (os.O_WRONLY | os.O_RDWR))
