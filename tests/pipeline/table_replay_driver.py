"""`ottla pipeline replay` into a table in a process that kills itself: `table_replay_driver.py STEP ARGUMENT...`.

STEP: "before" or "after" the commit.
"""

from __future__ import annotations

import os
import signal
import sys

from ottla.pipeline.cli import pipeline
from ottla.pipeline.sinks.delta import DeltaTarget
from ottla.pipeline.sinks.table import CommitResult, TableCommit

if __name__ == "__main__":
    step, *arguments = sys.argv[1:]
    plain_commit = DeltaTarget.commit

    def deadly_commit(self: DeltaTarget, commit: TableCommit) -> CommitResult:
        if step == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        made = plain_commit(self, commit)
        os.kill(os.getpid(), signal.SIGKILL)
        return made

    DeltaTarget.commit = deadly_commit  # type: ignore[method-assign]
    pipeline(arguments)
