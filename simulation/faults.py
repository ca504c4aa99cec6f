"""Faults around the group members, from the seed: the broker, its disk, the network, the clock."""

from __future__ import annotations

import asyncio

from simulation.cluster import SimCluster
from simulation.network import Network
from simulation.rng import SimRng
from simulation.trace import Trace

BETWEEN_S = (1.0, 15.0)
WINDOW_S = (0.5, 8.0)
MAX_CHANGES_TO_DEATH = 12
MAX_SKEW_MS = 5_000


class Nemesis:
    """Injects faults until it is stopped, then repairs everything."""

    def __init__(self, cluster: SimCluster, rng: SimRng, trace: Trace, *, power: bool) -> None:
        """`power`: also power failures; only if every append is flushed before it is acknowledged."""
        self._cluster = cluster
        self._network: Network = cluster.network
        self._rng = rng
        self._trace = trace
        self._faults = [
            self._kill,
            self._kill_in_disk_change,
            self._stop,
            self._full_disk,
            self._cold_disk,
            self._cut_some,
            self._cut_all,
            self._slow_network,
            self._skew_clock,
        ]
        if power:
            self._faults.append(self._fail_power)

    async def run(self) -> None:
        """Inject faults until cancelled."""
        while True:
            await asyncio.sleep(self._rng.uniform(*BETWEEN_S))
            fault = self._rng.choice(self._faults)
            self._trace.note("nemesis", fault.__name__.strip("_").replace("_", " "))
            await fault()

    def repair(self) -> None:
        """End all faults."""
        self._trace.note("nemesis", "all faults are repaired")
        self._cluster.disk.full = False
        self._cluster.disk.cold_chance = 0.0
        self._network.slow = False

    async def _window(self) -> None:
        await asyncio.sleep(self._rng.uniform(*WINDOW_S))

    async def _kill(self) -> None:
        self._cluster.kill()

    async def _fail_power(self) -> None:
        self._cluster.kill(power=True)

    async def _kill_in_disk_change(self) -> None:
        self._cluster.kill_in_disk_change(self._rng.randrange(MAX_CHANGES_TO_DEATH))

    async def _stop(self) -> None:
        self._cluster.stop()

    async def _full_disk(self) -> None:
        self._cluster.disk.full = True
        await self._window()
        self._cluster.disk.full = False

    async def _cold_disk(self) -> None:
        self._cluster.disk.cold_chance = 0.5
        await self._window()
        self._cluster.disk.cold_chance = 0.0

    async def _cut_some(self) -> None:
        for link in self._network.links():
            if self._rng.chance(0.3):
                link.cut()

    async def _cut_all(self) -> None:
        for link in self._network.links():
            link.cut()

    async def _slow_network(self) -> None:
        self._network.slow = True
        await self._window()
        self._network.slow = False

    async def _skew_clock(self) -> None:
        self._cluster.clock.skew_ms += self._rng.randrange(2 * MAX_SKEW_MS) - MAX_SKEW_MS
