"""Where handlers have work done that would hold up the loop."""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.platform.clock import BlockingPool
from ottla.server.requests.in_flight import InFlight
from ottla.server.requests.pool_share import PoolShare


class OffLoopWork(NamedTuple):
    """The pool, whole for what waits for the disk and a share of it for what computes; and the count of both."""

    pool: BlockingPool
    compute_pool: PoolShare
    in_flight: InFlight
