"""The consumer group workload: one broker, one group, many members and faults; then a calm phase with full recovery.

A run is a function of its seed: the seed chooses the protocol, the number of members and partitions, the static
members, whether appends are flushed, and every fault. After the faults the group has a bounded time until each
partition has an owner and each owner has committed; then the broker is killed once more, and all acknowledged commits
must still exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.registry import ApiKey
from simulation.checkers import Offsets, Ownership, Violation
from simulation.client import Client, RequestLost
from simulation.cluster import SimCluster
from simulation.faults import Nemesis
from simulation.group_observer import Observer
from simulation.group_protocols import KINDS, PROTOCOLS
from simulation.members import FakeRecords, GroupWorld, MemberSlot
from simulation.rng import SimRng
from simulation.simulation import RunOutcome, Simulation

TOPIC = "events"
GROUP = "readers"
SETUP_S = 60.0
WATCH_S = 1.0
PROGRESS_S = 75.0
"""Limit in seconds from the end of the faults to an owner for each partition: the broker's restart, a session and a
rebalance timeout, a member's pause, and the same once more for members that were removed meanwhile."""
CREATE_TOPICS_VERSION = 7


@dataclass(frozen=True)
class Options:
    """Options of a run that are not taken from its seed."""

    protocol: str | None = None
    """One of PROTOCOLS; by the seed if None."""
    faults_s: float = 90.0
    """Virtual seconds of faults."""


@dataclass
class Outcome(RunOutcome):
    """Results of a run."""

    protocol: str = ""
    broker_starts: int = 0

    def summary(self) -> str:
        """See `RunOutcome`."""
        return f"{self.broker_starts} broker starts, {super().summary()}"


class GroupSimulation(Simulation):
    """One run."""

    def __init__(self, seed: int, options: Options, cpu_time: Callable[[], float] = lambda: 0.0) -> None:
        """`cpu_time` in seconds, only for the report."""
        super().__init__(seed, cpu_time)
        rng = SimRng(seed)
        plan = rng.fork("plan")
        self.options = options
        protocol = plan.choice(PROTOCOLS)
        self.protocol = options.protocol or protocol
        flushed = plan.chance(0.3)
        session_s = float(6 + plan.randrange(6))
        rebalance_s = float(4 + plan.randrange(10))
        partitions = 1 + plan.randrange(8)
        members = 1 + plan.randrange(6)
        statics = plan.randrange(members + 1) if plan.chance(0.5) else 0
        self.cluster = SimCluster(self.loop, rng, self.trace, _settings(session_s, flushed))
        self.description = (
            f"{self.protocol}, {members} members ({statics} static), {partitions} partitions, "
            f"session {session_s:.0f} s, rebalance {rebalance_s:.0f} s{', every append flushed' if flushed else ''}"
        )
        self.faults = asyncio.Event()
        self.world = GroupWorld(
            loop=self.loop,
            make_client=lambda name: Client(self.loop, self.cluster.network, name),
            make_records=lambda name: FakeRecords(),
            trace=self.trace,
            ownership=Ownership(self.loop, self.trace),
            offsets=Offsets(self.trace),
            group_id=GROUP,
            topic=TOPIC,
            topic_id=b"",
            partitions=partitions,
            session_s=session_s,
            rebalance_s=rebalance_s,
            faults=self.faults,
            mixed=len(KINDS[self.protocol]) > 1,
        )
        self._members = members
        self._statics = statics
        self._rng = rng
        self._nemesis = Nemesis(self.cluster, rng.fork("nemesis"), self.trace, power=flushed)
        self._admin = Client(self.loop, self.cluster.network, "observer")

    def run(self) -> Outcome:
        """Run to the end, or to the first violation."""
        outcome = Outcome(self.seed, self.description, protocol=self.protocol)
        self._run_into(outcome)
        outcome.rebalances = self.world.ownership.taken
        outcome.commits = self.world.offsets.acknowledged_count
        outcome.broker_starts = self.cluster.starts
        return outcome

    # -- phases of a run

    def _run(self) -> None:
        self.cluster.start()
        self._finish(self._set_up(), SETUP_S, "the cluster is not ready")
        seats = self._make_seats()
        self.faults.set()
        tasks = [self._begin(seat.run()) for seat in seats]
        observer = Observer(self.world, self._admin, self._rng)
        tasks.append(self._begin(observer.run()))
        tasks.append(self._begin(self._watch()))
        nemesis = self._begin(self._nemesis.run())
        self._advance(self.options.faults_s)
        nemesis.cancel()
        self.faults.clear()
        self._nemesis.repair()
        if len(seats) > 1 and self._rng.fork("vanishing").chance(0.5):
            # The others get no help from a successor: this member leaves only by session expiry.
            tasks[0].cancel()
            self._advance(0.0)
            seats[0].vanish()
        self._wait_for_progress()
        for task in tasks:
            task.cancel()
        self._advance(1.0)
        self.cluster.kill()
        self._finish(observer.look_at_last(), PROGRESS_S, "committed offsets can't be fetched at the end")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            self.cluster.check()

    def _make_seats(self) -> list[MemberSlot]:
        kinds = KINDS[self.protocol]
        return [
            MemberSlot(
                self.world, f"m{number}", self._rng.fork(f"member {number}"), kinds, static=number < self._statics
            )
            for number in range(self._members)
        ]

    def _advance(self, seconds: float) -> None:
        self.loop.run_until(self.loop.time() + seconds)
        self.cluster.check()

    async def _set_up(self) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=self.world.partitions, replication_factor=1)
        while True:
            try:
                response = await self._admin.request(
                    ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, CreateTopicsRequest(topics=[topic])
                )
            except RequestLost:
                await asyncio.sleep(0.2)
                continue
            created = response.topics[0]
            if created.error_code:
                raise Violation(f"CreateTopics returned {ErrorCode(created.error_code).name}")
            self.world = self.world._replace(topic_id=created.topic_id)
            return

    def _wait_for_progress(self) -> None:
        """Wait until each partition has an owner, and each owner has committed a newer offset than before."""
        world = self.world
        calm_s = self.loop.time()
        before = {partition: world.offsets.certain(partition) for partition in range(world.partitions)}

        def progressed() -> bool:
            return all(
                world.ownership.owner(partition) is not None and world.offsets.certain(partition) > at
                for partition, at in before.items()
            )

        if not self.loop.run_until(calm_s + PROGRESS_S, progressed):
            stuck = {
                partition: world.ownership.owner(partition)
                for partition, at in before.items()
                if world.ownership.owner(partition) is None or world.offsets.certain(partition) <= at
            }
            raise Violation(f"no progress {PROGRESS_S:.0f} s after the last fault in partition: owner {stuck}")
        self.trace.note("observer", f"recovered {self.loop.time() - calm_s:.1f} s after the last fault")
        self.cluster.check()

    def _abandon(self) -> None:
        self.cluster.abandon()


def _settings(session_s: float, flushed: bool) -> dict[str, str]:
    session_ms = str(round(session_s * 1000))
    settings = {
        "offsets.topic.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "1000",
        "group.consumer.min.session.timeout.ms": session_ms,
        "group.consumer.session.timeout.ms": session_ms,
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "1000",
    }
    if flushed:
        settings["log.flush.interval.messages"] = "1"
    return settings
