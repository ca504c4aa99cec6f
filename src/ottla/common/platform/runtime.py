"""Runtime of a node in one argument: the interfaces of `common.platform.clock` and `common.platform.disk`.

Code that wires components receives all of it; each component takes only the parts that it needs.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.platform.clock import BlockingPool, Clock, Rng, Scheduler
from ottla.common.platform.disk import Disk


class NodeRuntime(NamedTuple):
    """Time, randomness, timers, threads and files of one node, real or simulated."""

    disk: Disk
    clock: Clock
    rng: Rng
    scheduler: Scheduler
    """Timers of the node's loop."""
    pool: BlockingPool
