"""A run with a history in a process of its own that is killed, see `forks.py`.

`step` is an observer step of the run, or the number of the Python file operation before which it is killed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.pipeline.deaths import die_before
from tests.pipeline.snapshot.world import TOPIC, Steps, World, first_records, second_records


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(kind: str, path: str, step: str) -> None:
    world = World(path, kind, history=True)
    world.cluster.create(TOPIC, 2)
    first_records(world)
    second_records(world)
    if step.isdecimal():
        die_before(int(step))
        world.snapshot()
    else:
        world.snapshot(observer=Steps(**{step: die}))
