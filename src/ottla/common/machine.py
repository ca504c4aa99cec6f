"""The machine under a node, as one argument: what `common.clock` and `common.disk` describe.

Who wires parts together is given it whole; the parts themselves take what they need of it.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.clock import BlockingPool, Clock, Rng, Scheduler
from ottla.common.disk import Disk


class Machine(NamedTuple):
    """Time, randomness, timers, threads and files of one node: a real process's or a simulated one's."""

    disk: Disk
    clock: Clock
    rng: Rng
    scheduler: Scheduler
    """Of the loop on which the node runs."""
    pool: BlockingPool
