"""The replication workload: real nodes, clients and faults; then a calm phase with full recovery.

A run is a function of its seed. The cluster is that of `simulation.cluster_simulation`. The topic has three replicas
per partition and `min.insync.replicas` 2, and may be compacted with keyed records. Producers use acks=all, a consumer
reads with assigned partitions, and the members of a consumer group read and commit. During the faults the checks are
the client history (`simulation.history`), the guarantees to the group (`simulation.checkers`), and that no epoch of a
partition or of the quorum has two leaders. After the last fault every producer must get every partition acknowledged
again within a bounded time, the group must read and commit all acknowledged records, and all replicas must be in sync.
Then the contents are compared with the history, and the replicas with one another, byte for byte unless they are
compacted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from simulation.checkers import Violation
from simulation.cluster_group import ClusterGroup
from simulation.cluster_simulation import PROGRESS_S, READ_ALL_S, ROLL_MS, SETUP_S, ClusterRunOutcome, ClusterSimulation
from simulation.history import CompactedHistory, LogHistory, Losses
from simulation.log_clients import Producer
from simulation.log_consumers import Consumer, Reader

TOPIC = "events"
MIN_OPERATIONS = 2_000
MIN_FAULTS = 20
"""Minimum number of operations for a seed to count."""


@dataclass(frozen=True)
class ClusterOptions:
    """Options of a run that are not taken from its seed."""

    nodes: int | None = None
    """Three or four by the seed if None."""
    partitions: int = 20
    producers: int = 2
    consumers: int = 1
    members: int = 2
    """Members of the group; none if losses exceed the guarantees, since committed offsets would be lost as well."""
    compacted: bool = False
    """Whether the topic is compacted. A compacted topic has no group, because members expect every offset."""
    protocol: str | None = None
    """Group protocol, one of PROTOCOLS; by the seed if None."""
    faults_s: float = 600.0
    """Virtual seconds of faults."""
    damage: bool = False
    """Also flip bits of files."""
    beyond: bool = False
    """Lose unsynced data of more replicas than the guarantees cover; then losses are counted, not violations."""


@dataclass
class ClusterOutcome(ClusterRunOutcome):
    """Results of a run."""

    losses: Losses = field(default_factory=lambda: Losses(0, 0))
    conflicts: int = 0

    @property
    def counts(self) -> bool:
        """Whether enough happened for the run to be significant."""
        return self.operations >= MIN_OPERATIONS and self.faults >= MIN_FAULTS

    @property
    def too_little(self) -> str:
        """See `ClusterRunOutcome`."""
        return f"below {MIN_OPERATIONS:,} operations or {MIN_FAULTS} faults"

    def summary(self) -> str:
        """See `RunOutcome`."""
        lost = f", {self.losses.acknowledged} acknowledged and {self.losses.served} served records lost"
        return super().summary() + (lost if self.conflicts else "")


class ReplicationSimulation(ClusterSimulation):
    """One run."""

    def __init__(
        self, seed: int, options: ClusterOptions | None = None, cpu_time: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`cpu_time` in seconds, only for the report."""
        self.options = options = options or ClusterOptions()
        super().__init__(seed, options.nodes, cpu_time, beyond=options.beyond, damage=options.damage)
        history = CompactedHistory if options.compacted else LogHistory
        self.history = history(self.trace, allow_loss=options.beyond)
        self.world = self._log_world(TOPIC, options.partitions, self.history)
        members = self._members = 0 if options.beyond or options.compacted else options.members
        group_rng = self._rng.fork("group")
        self.group = ClusterGroup(self.world, self.view, group_rng, self.trace, options.protocol, members)
        self._make_nodes(self.group.settings())
        self.description = (
            f"{len(self.nodes)} nodes, {options.partitions} partitions, {self.group.description}, "
            f"{self._at_once} faults at once within {self._most_between_s:.0f} s"
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._losses = Losses(0, 0)

    def run(self) -> ClusterOutcome:
        """Run to the end, or to the first violation."""
        outcome = ClusterOutcome(self.seed, self.description)
        self._run_into(outcome)
        self._fill_in(outcome)
        outcome.operations = self.world.operations
        outcome.acknowledged = self.history.acknowledged_count
        outcome.served = self.history.served_count
        outcome.commits = self.group.commits
        outcome.rebalances = self.group.rebalances
        outcome.losses = self._losses
        outcome.conflicts = self.history.forgiven.total()
        return outcome

    # -- phases of a run

    def _faults_s(self) -> float:
        return self.options.faults_s

    def _set_up(self) -> None:
        configs = {"cleanup.policy": "compact", "segment.ms": ROLL_MS} if self.options.compacted else {}
        self._finish(self._create_topic(self.world, configs), SETUP_S, "the cluster is not ready")

    def _begin_clients(self) -> None:
        clients: list[Producer | Consumer] = [
            Producer(self.world, f"p{number}", self._rng.fork(f"producer {number}"))
            for number in range(self.options.producers)
        ]
        clients += [
            Consumer(self.world, f"c{number}", self._rng.fork(f"consumer {number}"))
            for number in range(self.options.consumers)
        ]
        self._tasks = [self._begin(client.run()) for client in clients]
        self.group.start(self._follow)

    def _calm(self) -> None:
        self.group.calm()

    def _recover(self) -> None:
        self._wait_for_progress()
        self.world.stopping = True
        self._wait("a client is still waiting", PROGRESS_S, lambda: all(task.done() for task in self._tasks))
        self._wait_for_replicas()
        if self._members:
            self._wait_for_group()
        reader = Reader(self.world, self._rng.fork("reader"))
        self._finish(reader.run(), READ_ALL_S, "the topic can't be read to its end")
        self._losses = self.history.finish(reader.contents)

    def _wait_for_progress(self) -> None:
        """Wait until every producer is acknowledged somewhere again, and together they are everywhere."""
        calm_s = self.loop.time()
        progress = self.world.progress
        progress.clear()
        wanted = set(range(self.options.partitions))

        def progressed() -> bool:
            return len(progress) == self.options.producers and set().union(*progress.values()) == wanted

        if not self.loop.run_until(calm_s + PROGRESS_S, progressed):
            reached = set().union(*progress.values()) if progress else set()
            raise Violation(
                f"{PROGRESS_S:.0f} s after the last fault nothing was acknowledged in partitions "
                f"{sorted(wanted - reached)}; producers with progress: {sorted(progress)}"
            )
        self.trace.note("observer", f"recovered {self.loop.time() - calm_s:.1f} s after the last fault")

    def _wait_for_group(self) -> None:
        """Wait until the members have read and committed everything."""
        ends = self.history.acknowledged_ends()
        if not self.loop.run_until(self.loop.time() + PROGRESS_S, lambda: not self.group.lacks(ends)):
            raise Violation(f"{PROGRESS_S:.0f} s after the last record the group lacks {self.group.lacks(ends)}")
