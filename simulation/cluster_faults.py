"""Faults of a simulated cluster, from the seed: nodes, disks, clocks, network, and administrators that reassign
replicas and change voters.

Unless `beyond`, the faults stay within docs/guarantees.md's guarantees for several replicas: kill -9 leaves the disk as
the system has it, and may hit all nodes; a power failure loses unsynced data, and the loss of a disk loses all. The
latter two hit a node only while every partition has all its replicas in sync. So at most one of them (min ISR 2, minus
one) has lost data before it has caught up again. A disk is lost only while every voter has its own. With `damage`,
files of one stopped node are changed under the same conditions. `beyond` cuts power at any time, also everywhere at
once.
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
"""Minimum delay between faults, in seconds."""
WINDOW_S = (0.5, 15.0)
PAUSE_S = (0.2, 25.0)
"""Sometimes longer than a broker's session: then it is fenced while it believes that it leads."""
MAX_DEAD_S = 3.0
"""Delay between the death of one node and the graceful stop of all others."""
MAX_CHANGES_TO_DEATH = 12
MAX_SKEW_MS = 5_000
MAX_DAMAGED_FILES = 4
_DAMAGE_SHARE = 4
"""Share of this fault among the faults, if enabled."""
MAX_DISK_DELAY_S = 2.0


class ClusterNemesis:
    """Injects faults until it is stopped, then repairs everything."""

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
        """Inject faults until cancelled."""
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
        """Whether a fault stays within the guarantees."""
        takes_files = fault in (self._lose_disk, self._stop_all_beside_a_lost_disk, self._damage_files)
        if takes_files and not (self._admin.voters_are_whole() and self._all_vote()):
            return False
        takes_records = takes_files or fault == self._fail_power
        return self._beyond or not takes_records or self._all_in_sync()

    def _all_vote(self) -> bool:
        """Whether every node runs, and none still catches up after damage."""
        quorums = [None if node.broker is None else node.broker.parts.control.metadata.quorum for node in self._nodes]
        return all(quorum is not None and not quorum.raft.state.election.must_catch_up for quorum in quorums)

    def repair(self) -> None:
        """End all faults."""
        self._trace.note("nemesis", "all faults are repaired")
        self._network.slow = False
        self._network.unblock_all()
        for node in self._nodes:
            node.disk.full = False
            node.disk.cold_chance = 0.0
            node.slow_disk(0.0)
            self._repair_disk(node)
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
        """A graceful stop of the cluster, usually while the dead broker still has its session."""
        node.kill()
        await self._stop_all_but(node)

    async def _stop_all_beside_a_lost_disk(self, node: SimNode) -> None:
        """The same, but the dead broker comes back with an empty disk."""
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
        self._repair_disk(node)

    def _repair_disk(self, node: SimNode) -> None:
        """A disk failure is final for the process that saw it: its supervisor replaces the process."""
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
        """Isolate a node from the other nodes in both directions; clients still reach it."""
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
        """Disconnect one pair of nodes from each other; all others reach both."""
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
