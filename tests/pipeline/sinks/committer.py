"""A commit in a process of its own that is killed on the way, see `forks.py`.

`step` is the number of the step of the commit (opening a file for writing, link, rename, remove) before which it
is killed, "log" for the moment in which another process sees the table's directory change, or "after".
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.pipeline.deaths import LOGS, die_before, die_when_changed
from tests.pipeline.sinks.loads import commit, make_cluster, plan_load, write_files

from ottla.pipeline.sinks.open_table import open_table


def main(kind: str, directory: str, step: str) -> None:
    cluster, table = make_cluster(), open_table(directory, format=kind)
    plan = plan_load(cluster, table)
    files = write_files(cluster, table, plan, "killed")
    if step == "log":
        die_when_changed(Path(directory, LOGS[kind]))
        commit(table, plan, files, "killed")
        signal.pause()
    if step != "after":
        die_before(int(step))
    commit(table, plan, files, "killed")
    os.kill(os.getpid(), signal.SIGKILL)
