"""What goes wrong in a simulated cluster, from the seed: nodes, their disks and clocks, the network between them, and
administrators who move replicas and change who votes.

Within docs/guarantees.md for several replicas, unless `beyond`: kill -9 leaves a disk as the system has it, and may
hit all nodes; a power failure takes what was not synced, and the loss of a disk takes all. These two hit a node only
while every partition has all its replicas in sync, so that no more than one of them (min ISR 2, less one) has lost
anything before it has caught up again; and a disk is lost only while every voter has its own. With `damage` files of
one node change while it does not run, under the same conditions. `beyond` cuts power wherever it likes, and everywhere
at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from simulation.cluster_admin import Administrator
from simulation.network import Network
from simulation.node import SimNode
from simulation.rng import SimRng
from simulation.trace import Trace

BETWEEN_S = 0.5
"""At least, from one fault to the next."""
WINDOW_S = (0.5, 15.0)
PAUSE_S = (0.2, 25.0)
"""Longer than a broker's session at times: then it is fenced while it believes that it leads."""
MAX_DEAD_S = 3.0
"""Between the death of one node and the graceful stop of all others."""
MAX_CHANGES_TO_DEATH = 12
MAX_SKEW_MS = 5_000
MAX_DAMAGED_FILES = 4
_DAMAGE_SHARE = 4
"""So often among the faults, where it is one of them."""
MAX_DISK_DELAY_S = 2.0


class ClusterNemesis:
    """Breaks things until told to stop, then mends them."""

    def __init__(
        self,
        nodes: Sequence[SimNode],
        network: Network,
        rng: SimRng,
        trace: Trace,
        admin: Administrator,
        *,
        most_between_s: float,
        all_in_sync: Callable[[], bool],
        beyond: bool,
        damage: bool,
    ) -> None:
        self._nodes = nodes
        self._network = network
        self._rng = rng
        self._trace = trace
        self._admin = admin
        self._most_between_s = most_between_s
        self._all_in_sync = all_in_sync
        self._beyond = beyond
        self.count = 0
        self._faults = (
            self._kill,
            self._kill,
            self._kill_all,
            self._kill_in_disk_change,
            self._stop,
            self._stop_all_beside_a_dead_node,
            self._stop_all_beside_a_lost_disk,
            self._pause,
            self._fail_power,
            self._full_disk,
            self._cold_disk,
            self._slow_disk,
            self._failing_disk,
            self._lose_disk,
            self._cut_some,
            self._isolate,
            self._one_way,
            self._split,
            self._slow_network,
            self._skew_clock,
            self._move_replicas,
            self._move_replicas,
            self._change_voters,
            *((self._fail_all_power, self._fail_all_power) if beyond else ()),
            *([self._damage_files] * _DAMAGE_SHARE if damage else ()),
        )

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._rng.uniform(BETWEEN_S, self._most_between_s))
            fault = self._rng.choice(self._faults)
            node = self._rng.choice(self._nodes)
            if not self._allowed(fault):
                continue
            self._trace.note("nemesis", f"{fault.__name__.strip('_').replace('_', ' ')} {node.host}")
            self.count += 1
            await fault(node)

    def _allowed(self, fault: Callable[[SimNode], Awaitable[None]]) -> bool:
        """Whether it stays within what is promised."""
        takes_files = fault in (self._lose_disk, self._stop_all_beside_a_lost_disk, self._damage_files)
        if takes_files and not (self._admin.voters_are_whole() and self._all_vote()):
            return False
        takes_records = takes_files or fault == self._fail_power
        return self._beyond or not takes_records or self._all_in_sync()

    def _all_vote(self) -> bool:
        """Whether every node runs, and none still catches up after damage."""
        quorums = [None if node.broker is None else node.broker.parts.control.metadata.quorum for node in self._nodes]
        return all(quorum is not None and not quorum.raft.election.must_catch_up for quorum in quorums)

    def mend(self) -> None:
        """The world is whole again."""
        self._trace.note("nemesis", "all is mended")
        self._network.slow = False
        self._network.unblock_all()
        for node in self._nodes:
            node.disk.full = False
            node.disk.cold_chance = 0.0
            node.slow_disk(0.0)
            self._mend_disk(node)
            node.resume()

    async def _window(self) -> None:
        await asyncio.sleep(self._rng.uniform(*WINDOW_S))

    async def _kill(self, node: SimNode) -> None:
        node.kill()

    async def _kill_all(self, _: SimNode) -> None:
        for each in self._nodes:
            each.kill()

    async def _kill_in_disk_change(self, node: SimNode) -> None:
        node.kill_in_disk_change(self._rng.randrange(MAX_CHANGES_TO_DEATH))

    async def _stop(self, node: SimNode) -> None:
        node.stop()

    async def _stop_all_beside_a_dead_node(self, node: SimNode) -> None:
        """A graceful stop of the cluster, mostly while the dead broker still has its session."""
        node.kill()
        await self._stop_all_but(node)

    async def _stop_all_beside_a_lost_disk(self, node: SimNode) -> None:
        """The same, where the dead broker comes back on an empty disk."""
        node.lose_disk()
        await self._stop_all_but(node)
        await self._admin.repair()

    async def _stop_all_but(self, dead: SimNode) -> None:
        await asyncio.sleep(self._rng.uniform(0, MAX_DEAD_S))
        for node in self._nodes:
            if node is not dead:
                node.stop()
        await self._window()

    async def _pause(self, node: SimNode) -> None:
        node.pause()
        await asyncio.sleep(self._rng.uniform(*PAUSE_S))
        node.resume()

    async def _fail_power(self, node: SimNode) -> None:
        node.kill(power=True)

    async def _fail_all_power(self, _: SimNode) -> None:
        for each in self._nodes:
            each.kill(power=True)

    async def _full_disk(self, node: SimNode) -> None:
        node.disk.full = True
        await self._window()
        node.disk.full = False

    async def _cold_disk(self, node: SimNode) -> None:
        node.disk.cold_chance = 0.5
        await self._window()
        node.disk.cold_chance = 0.0

    async def _slow_disk(self, node: SimNode) -> None:
        node.slow_disk(self._rng.uniform(0, MAX_DISK_DELAY_S))
        await self._window()
        node.slow_disk(0.0)

    async def _failing_disk(self, node: SimNode) -> None:
        node.disk.failing_chance = self._rng.uniform(0, 1)
        await self._window()
        self._mend_disk(node)

    def _mend_disk(self, node: SimNode) -> None:
        """What failed is final for the process that saw it: its supervisor replaces it."""
        if node.disk.failing_chance:
            node.disk.failing_chance = 0.0
            node.kill()

    async def _lose_disk(self, node: SimNode) -> None:
        node.lose_disk()
        await self._window()
        await self._admin.repair()

    async def _damage_files(self, node: SimNode) -> None:
        node.damage_files(1 + self._rng.randrange(MAX_DAMAGED_FILES))

    async def _move_replicas(self, _: SimNode) -> None:
        await self._admin.move_replicas()

    async def _change_voters(self, _: SimNode) -> None:
        await self._admin.change_voters()

    async def _cut_some(self, _: SimNode) -> None:
        for link in self._network.links():
            if self._rng.chance(0.3):
                link.cut()

    async def _isolate(self, node: SimNode) -> None:
        """From the other nodes in both directions; clients still reach it."""
        for other in self._nodes:
            if other is not node:
                self._network.block(node.host, other.host)
                self._network.block(other.host, node.host)
        await self._window()
        self._network.unblock_all()

    async def _one_way(self, node: SimNode) -> None:
        outwards = self._rng.chance(0.5)
        for other in self._nodes:
            if other is not node:
                self._network.block(*((node.host, other.host) if outwards else (other.host, node.host)))
        await self._window()
        self._network.unblock_all()

    async def _split(self, node: SimNode) -> None:
        """One pair of nodes loses sight of one another; all others see both."""
        other = self._rng.choice([each for each in self._nodes if each is not node])
        self._network.block(node.host, other.host)
        self._network.block(other.host, node.host)
        await self._window()
        self._network.unblock_all()

    async def _slow_network(self, _: SimNode) -> None:
        self._network.slow = True
        await self._window()
        self._network.slow = False

    async def _skew_clock(self, node: SimNode) -> None:
        node.clock.skew_ms += self._rng.randrange(2 * MAX_SKEW_MS) - MAX_SKEW_MS
