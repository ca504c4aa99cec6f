"""A load in a process of its own that kills itself with SIGKILL: `driver.py STEP BOOTSTRAP TOPIC TABLE`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial

from ottla.pipeline.land import Counters, Landed
from ottla.pipeline.load import Observer, load
from ottla.pipeline.plan import LoadPlan, PlanSettings
from ottla.pipeline.session import open_session
from ottla.pipeline.sinks.delta import DeltaTarget


class Killer(Observer):
    """Dies at one step."""

    def __init__(self, step: str) -> None:
        self.step = step

    def reach(self, step: str) -> None:
        if step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)

    def landing(self, plan: LoadPlan, counters: Counters | None) -> None:
        if self.step == "while landing" and counters is not None:
            threading.Thread(target=self.die_after_one_task, args=(counters,), daemon=True).start()

    def die_after_one_task(self, counters: Counters) -> None:
        while not counters.tasks.value:
            time.sleep(0.001)
        self.reach("while landing")

    def landed(self, rows: Sequence[Landed]) -> None:
        self.reach("before commit")

    def committed(self, version: int) -> None:
        self.reach("after commit")


SETTINGS = PlanSettings(max_bytes_per_task=4_000)
"""Many tasks, so that some are done and some are not when it dies while they run."""


if __name__ == "__main__":
    step, bootstrap_servers, topic, table = sys.argv[1:]
    load([topic], DeltaTarget(table), bootstrap_servers, partial(open_session, "local[2]"), SETTINGS, Killer(step))
