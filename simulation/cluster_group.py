"""The consumer group of a simulated cluster: its members, its coordinator, and the checkers of its guarantees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ottla.common.kafka.internal_topics import GROUP_METADATA_TOPIC
from ottla.coordinator.runtime.key_hash import partition_for
from simulation.checkers import Deliveries, Offsets, Ownership
from simulation.cluster_view import ClusterView
from simulation.group_clients import CoordinatorClient
from simulation.group_observer import Observer
from simulation.group_protocols import KINDS, PROTOCOLS
from simulation.log_clients import LogWorld
from simulation.log_consumers import MemberRecords
from simulation.members import Copier, GroupWorld, MemberSlot
from simulation.rng import SimRng
from simulation.trace import Trace

GROUP = "readers"
OFFSETS_PARTITIONS = 2


class ClusterGroup:
    """One group; the seed chooses the protocol, the timeouts, and the static members."""

    def __init__(
        self,
        world: LogWorld,
        view: ClusterView,
        rng: SimRng,
        trace: Trace,
        protocol: str | None,
        members: int,
        *,
        make_copier: Callable[[str, SimRng], Copier] | None = None,
    ) -> None:
        """With `make_copier` the members copy the records that they read in transactions."""
        self._world = world
        self._view = view
        self._rng = rng
        plan = rng.fork("plan")
        by_seed = plan.choice(PROTOCOLS)
        protocol = protocol or by_seed
        self._kinds = KINDS[protocol]
        self.session_s = float(6 + plan.randrange(6))
        rebalance_s = float(4 + plan.randrange(10))
        self._members = members
        self._statics = plan.randrange(members + 1) if plan.chance(0.5) else 0
        self._partition = partition_for(GROUP, OFFSETS_PARTITIONS)
        self._clients = 0
        self._deliveries = Deliveries()
        self._faults = asyncio.Event()
        self._seats: list[MemberSlot] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._group = GroupWorld(
            loop=world.loop,
            make_client=self.make_client,
            make_records=lambda name: MemberRecords(world, name, self._fork(name), self._deliveries),
            trace=trace,
            ownership=Ownership(world.loop, trace),
            offsets=Offsets(trace),
            group_id=GROUP,
            topic=world.topic,
            topic_id=b"",
            partitions=world.partitions,
            session_s=self.session_s,
            rebalance_s=rebalance_s,
            faults=self._faults,
            mixed=len(self._kinds) > 1,
            make_copier=None if make_copier is None else lambda name: make_copier(name, self._fork(name)),
        )
        self.description = f"{members} {protocol} members ({self._statics} static)"

    def settings(self) -> dict[str, str]:
        """Broker settings of the group."""
        session_ms = str(round(self.session_s * 1000))
        return {
            "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
            "group.initial.rebalance.delay.ms": "1000",
            "group.consumer.min.session.timeout.ms": session_ms,
            "group.consumer.session.timeout.ms": session_ms,
            "group.consumer.min.heartbeat.interval.ms": "1000",
            "group.consumer.heartbeat.interval.ms": "1000",
        }

    @property
    def commits(self) -> int:
        """Number of committed offsets."""
        return self._group.offsets.acknowledged_count

    @property
    def rebalances(self) -> int:
        """Number of partitions that members took over."""
        return self._group.ownership.taken

    def _fork(self, what: str) -> SimRng:
        """Independent randomness for each part of each process."""
        self._clients += 1
        return self._rng.fork(f"{what} {self._clients}")

    def make_client(self, name: str) -> CoordinatorClient:
        """A connection to the coordinator, for the client with that name."""
        return CoordinatorClient(self._world, name, self._fork(name), GROUP, self._in_office, self._is_settled)

    def _in_office(self, address: tuple[str, int]) -> int:
        return self._view.leads(address, GROUP_METADATA_TOPIC, self._partition)

    def _is_settled(self) -> bool:
        return self._view.is_settled(GROUP_METADATA_TOPIC, self._partition)

    # -- phases of a run

    def start(self, follow: Callable[[asyncio.Task[None]], None]) -> None:
        """Start the members and their faults; each task is passed to `follow`."""
        self._group = group = self._group._replace(topic_id=self._world.topic_id)
        self._faults.set()
        self._seats = [
            MemberSlot(
                group, f"m{number}", self._rng.fork(f"member {number}"), self._kinds, static=number < self._statics
            )
            for number in range(self._members)
        ]
        observer = Observer(group, self.make_client("observer"), self._rng.fork("observer"))
        for work in (*(seat.run() for seat in self._seats), observer.run()):
            task = self._world.loop.create_task(work)
            follow(task)
            self._tasks.append(task)

    def stop(self) -> None:
        """Members and observer end abruptly."""
        for task in self._tasks:
            task.cancel()
        for seat in self._seats:
            seat.vanish()

    def calm(self) -> None:
        """From now on members behave correctly."""
        self._faults.clear()

    def has_committed(self, ends: Mapping[int, int]) -> bool:
        """Whether the offsets of all these partitions are certain up to these ends."""
        return all(self._group.offsets.certain(partition) >= end for partition, end in ends.items())

    def lacks(self, ends: Mapping[int, int]) -> dict[int, str]:
        """Partitions that no owner has read and committed up to their end, with their progress."""
        group = self._group
        return {
            partition: (
                f"read to {self._deliveries.end(partition)}, committed {group.offsets.certain(partition)} "
                f"of {end}, owner {group.ownership.owner(partition)}"
            )
            for partition, end in ends.items()
            if self._deliveries.end(partition) < end
            or group.offsets.certain(partition) < end
            or group.ownership.owner(partition) is None
        }
