"""A commit in a process of its own that is killed on the way: `committer.py FORMAT TABLE STEP`.

STEP is the number of a step of the commit (a file opened to be written, linked, renamed or removed) before which it
dies, "log" for the moment in which another process sees the table's directory change, or "after".
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.pipeline.sinks.loads import commit, make_cluster, plan_load, write_files

from ottla.pipeline.sinks.open_table import open_table

STEPS = {"open", "os.link", "os.rename", "os.remove", "sqlite3.connect"}
WATCHER = """
import os, sys, signal
pid, log = int(sys.argv[1]), sys.argv[2]
before = set(os.listdir(log))
print("ready", flush=True)
while set(os.listdir(log)) == before:
    os.kill(pid, 0)
os.kill(pid, signal.SIGKILL)
"""


def die_before(step: int) -> None:
    """Kill this process before the step of that number, counted from now on."""
    left = step

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event not in STEPS or (event == "open" and not _writes(arguments)):
            return
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    sys.addaudithook(hook)


def _writes(arguments: tuple[object, ...]) -> bool:
    _, mode, flags = arguments
    return "w" in mode if isinstance(mode, str) else bool(int(str(flags)) & (os.O_WRONLY | os.O_RDWR))


if __name__ == "__main__":
    kind, directory, step = sys.argv[1:]
    cluster, table = make_cluster(), open_table(directory, format=kind)
    plan = plan_load(cluster, table)
    files = write_files(cluster, table, plan, "killed")
    if step == "log":
        log = {"delta": "_delta_log", "iceberg": "metadata", "parquet": "_ottla_log"}[kind]
        watcher = [sys.executable, "-c", WATCHER, str(os.getpid()), f"{directory}/{log}"]
        with subprocess.Popen(watcher, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            commit(table, plan, files, "killed")
            signal.pause()
    if step != "after":
        die_before(int(step))
    commit(table, plan, files, "killed")
    os.kill(os.getpid(), signal.SIGKILL)
