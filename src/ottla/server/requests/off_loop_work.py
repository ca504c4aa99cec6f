"""Pools for handler work that would block the loop."""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.platform.clock import BlockingPool
from ottla.server.requests.in_flight import InFlight
from ottla.server.requests.pool_share import PoolShare


class OffLoopWork(NamedTuple):
    """The pool for work that waits for the disk, its share for computing work, and the count of both."""

    pool: BlockingPool
    compute_pool: PoolShare
    in_flight: InFlight
