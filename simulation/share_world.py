"""The shared state of all members of one simulated share group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from simulation.group_clients import CoordinatorClient
from simulation.history import LogHistory
from simulation.history.shares import ShareHistory
from simulation.log_clients import LogWorld
from simulation.trace import Trace


@dataclass
class ShareWorld:
    """One group."""

    world: LogWorld
    """Loop, network and brokers, with the topic whose values are in `values`."""
    trace: Trace
    history: ShareHistory
    values: LogHistory
    group_id: str
    lock_s: float
    """Duration of a lock."""
    topics: tuple[str, ...]
    make_client: Callable[[str], CoordinatorClient]
    faults: asyncio.Event
    resting: bool = False
    """Whether members leave, and none begins, because an administrator changes offsets."""
    running: int = 0
    """Number of member processes."""
