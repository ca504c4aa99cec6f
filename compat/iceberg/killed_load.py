"""A load that is killed between the write of its files and its commit, or after: `killed_load.py URL TABLE
before|after`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.pipeline.sinks.loads import commit, make_cluster, plan_load, write_files

from ottla.pipeline.sinks.open_table import open_table

if __name__ == "__main__":
    url, name, step = sys.argv[1:]
    cluster, table = make_cluster(), open_table(name, catalog_url=url)
    plan = plan_load(cluster, table)
    files = write_files(cluster, table, plan, "killed")
    if step == "after":
        commit(table, plan, files, "killed")
    os.kill(os.getpid(), signal.SIGKILL)
