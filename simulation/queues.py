"""The queue workload: producers, members of a share group (KIP-932) and faults; then a calm phase with full recovery.

A run is a function of its seed. The cluster is that of `simulation.cluster_simulation`, with all parts of the brokers.
Members accept, release, reject and renew records, keep some until their lock ends, reconnect, leave and die. Beside
the faults of all clusters requests to share coordinators are late or repeated, wall clocks jump, a second topic is
deleted and created again, and in some runs an administrator sets the group back to the first offset. In some runs the
group has a back-off of failed records, and in some a maximum rate.

During a run every acquisition, acknowledgement and stored state is checked (`simulation.history.shares`), and every
share coordinator is compared with its log (`simulation.share_state_logs`). After the last fault the group must settle
all records within a bounded time. Then no record may be lost, and no state of a deleted topic may be left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ottla.common.config.feature_levels import SHARE_VERSION
from ottla.common.config.group_configs import (
    RETRY_BACKOFF,
    RETRY_BACKOFF_MAX,
    RETRY_BACKOFF_MULTIPLIER,
    SHARE_MAX_RECORDS_PER_SECOND,
)
from ottla.common.kafka.internal_topics import GROUP_METADATA_TOPIC
from ottla.coordinator.runtime.key_hash import partition_for
from ottla.metadata.image import share_groups_enabled
from ottla.share.acknowledgements import AcknowledgeType
from ottla.share.retry_backoff import RetryBackoff
from simulation.checkers import Violation
from simulation.cluster_simulation import (
    PROGRESS_S,
    READ_ALL_S,
    REPLICATION_FACTOR,
    SETUP_S,
    ClusterRunOutcome,
    ClusterSimulation,
)
from simulation.feature_changes import FeatureChanges
from simulation.group_clients import CoordinatorClient
from simulation.history import LogHistory
from simulation.history.shares import ShareHistory, SharePlace
from simulation.log_clients import Producer
from simulation.log_consumers import Reader
from simulation.rng import SimRng
from simulation.share_admin import ShareAdministrator
from simulation.share_faults import ClockJumps, LateStateRequests, ShortLivedTopic
from simulation.share_members import ShareMemberSlot
from simulation.share_observer import ShareObserver
from simulation.share_state_logs import ShareStateLogs
from simulation.share_world import ShareWorld

TOPIC, SHORT_LIVED = "orders", "brief"
GROUP = "workers"
OFFSETS_PARTITIONS = 2
STATE_PARTITIONS = 2
MIN_DELIVERIES = 300
MIN_FAULTS = 5
"""Minimum number of deliveries and faults for a seed to count."""
FORGOTTEN_S = 60.0
"""Time until the states of deleted topics are deleted."""


@dataclass(frozen=True)
class QueueOptions:
    """Options of a run that are not taken from its seed."""

    nodes: int | None = None
    """Three or four by the seed if None."""
    partitions: int = 3
    producers: int = 2
    faults_s: float = 120.0
    """Virtual seconds of faults."""
    late: bool = True
    """Whether requests to share coordinators are late or repeated."""
    settings: tuple[tuple[str, str], ...] = ()
    """Broker settings in addition to the workload's."""


@dataclass
class QueueOutcome(ClusterRunOutcome):
    """Results of a run."""

    deliveries: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    renewed: int = 0
    most_deliveries: int = 0
    terms: int = 0
    late: int = 0
    """Requests to share coordinators that were late or repeated."""
    rewinds: int = 0
    topics: int = 0
    """Lives of the topic that is deleted."""
    prunes: int = 0

    @property
    def counts(self) -> bool:
        """Whether enough happened for the run to be significant."""
        return self.deliveries >= MIN_DELIVERIES and self.faults >= MIN_FAULTS

    @property
    def too_little(self) -> str:
        """See `ClusterRunOutcome`."""
        return f"below {MIN_DELIVERIES} deliveries or {MIN_FAULTS} faults"

    def summary(self) -> str:
        """See `RunOutcome`."""
        return (
            f"{self.operations} operations, {self.faults} faults, {self.node_starts} node starts, "
            f"{self.leader_changes} leaders, {self.acknowledged} records produced, {self.deliveries} deliveries in "
            f"{self.terms} terms, at most {self.most_deliveries} of one record, {self.accepted} accepted, "
            f"{self.released} released, {self.rejected} rejected, {self.renewed} renewed, {self.late} requests late, "
            f"{self.rewinds} rewinds, {self.topics} short-lived topics, {self.prunes} prunes"
        )


class QueueSimulation(ClusterSimulation):
    """One run."""

    def __init__(
        self, seed: int, options: QueueOptions | None = None, cpu_time: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`cpu_time` in seconds, only for the report."""
        self.options = options = options or QueueOptions()
        super().__init__(seed, options.nodes, cpu_time)
        rng = self._rng
        plan = rng.fork("queue plan")
        self._limit = 2 + plan.randrange(4)
        self._lock_ms = 2_000 + 1_000 * plan.randrange(7)
        self._member_count = 2 + plan.randrange(3)
        self._rewind_s = plan.uniform(0.2, 0.9) * options.faults_s if plan.chance(0.4) else None
        self.values = LogHistory(self.trace)
        self.world = self._log_world(TOPIC, options.partitions, self.values)
        self._plan_delays(rng.fork("rate plan"))
        self.history = ShareHistory(
            self.trace,
            limit=self._limit,
            lock_s=self._lock_ms / 1000,
            retry=self._retry,
            rate=None if self._max_rate is None else self._rate_of,
        )
        self.proxy = LateStateRequests(self.loop, self.network, rng.fork("proxy"))
        self.proxy.active = options.late
        self.network.between_nodes = self.proxy.between_nodes
        self._faults = asyncio.Event()
        self._clients = 0
        self._share = ShareWorld(
            world=self.world,
            trace=self.trace,
            history=self.history,
            values=self.values,
            group_id=GROUP,
            lock_s=self._lock_ms / 1000,
            topics=(TOPIC, SHORT_LIVED),
            make_client=self._make_client,
            faults=self._faults,
        )
        self._admin = ShareAdministrator(self._share, rng.fork("share admin"))
        self._make_nodes({**self._settings(plan), **dict(options.settings)})
        self._logs = ShareStateLogs(self.nodes)
        self._observer = ShareObserver(self.history, self.network, self.loop)
        self._short_lived = ShortLivedTopic(
            self.world, self.history, SHORT_LIVED, rng.fork("short-lived"), self.trace, REPLICATION_FACTOR
        )
        self._jumps = ClockJumps(self.nodes, rng.fork("clocks"), self.trace)
        self.description = (
            f"{len(self.nodes)} nodes, {self._member_count} members, {self._limit} deliveries, locks of "
            f"{self._lock_ms / 1000:.0f} s, {self._at_once} faults at once within {self._most_between_s:.0f} s"
        )
        if self._retry is not None:
            self.description += f", {self._retry}"
        if self._max_rate is not None:
            self.description += f", {self._max_rate} records per second"
        self._writers: list[asyncio.Task[None]] = []
        self._members: list[asyncio.Task[None]] = []
        self._rewind: asyncio.Task[None] | None = None
        self._jumping: asyncio.Task[None] | None = None

    def _plan_delays(self, plan: SimRng) -> None:
        self._retry: RetryBackoff | None = None
        self._max_rate: int | None = None
        if plan.chance(0.4):
            self._retry = RetryBackoff(plan.choice((200, 1_000, 4_000)), plan.choice((1.0, 1.5, 3.0)), 10_000)
        if plan.chance(0.3):
            self._max_rate = plan.choice((15, 40, 100))

    def _rate_of(self, place: SharePlace) -> float:
        return (self._max_rate or 0) / (self.options.partitions if place[0] == self.world.topic_id else 1)

    def _group_settings(self) -> dict[str, str]:
        settings = {"share.auto.offset.reset": "earliest"}
        if self._retry is not None:
            settings[RETRY_BACKOFF] = str(self._retry.first_ms)
            settings[RETRY_BACKOFF_MULTIPLIER] = str(self._retry.multiplier)
            settings[RETRY_BACKOFF_MAX] = str(self._retry.max_ms)
        if self._max_rate is not None:
            settings[SHARE_MAX_RECORDS_PER_SECOND] = str(self._max_rate)
        return settings

    def _settings(self, plan: SimRng) -> dict[str, str]:
        return {
            "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
            "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
            "share.coordinator.state.topic.replication.factor": str(REPLICATION_FACTOR),
            "share.coordinator.state.topic.min.isr": "2",
            "share.coordinator.snapshot.update.records.per.snapshot": str(plan.choice((0, 2, 5, 20))),
            "share.coordinator.cold.partition.snapshot.interval.ms": "4000",
            "share.coordinator.state.topic.prune.interval.ms": "3000",
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.record.lock.duration.ms": str(self._lock_ms),
            "group.share.delivery.count.limit": str(self._limit),
            "group.share.partition.max.record.locks": "100",
            "group.share.min.session.timeout.ms": "8000",
            "group.share.session.timeout.ms": "8000",
            "group.share.min.heartbeat.interval.ms": "1000",
            "group.share.heartbeat.interval.ms": "1000",
            "group.share.initialize.retry.interval.ms": "3000",
        }

    def _make_client(self, name: str) -> CoordinatorClient:
        self._clients += 1
        partition = partition_for(GROUP, OFFSETS_PARTITIONS)
        return CoordinatorClient(
            self.world,
            name,
            self._rng.fork(f"coordinator {self._clients}"),
            GROUP,
            lambda address: self.view.leads(address, GROUP_METADATA_TOPIC, partition),
            lambda: self.view.is_settled(GROUP_METADATA_TOPIC, partition),
        )

    def run(self) -> QueueOutcome:
        """Run to the end, or to the first violation."""
        outcome = QueueOutcome(self.seed, self.description)
        with self._observer.active():
            self._run_into(outcome)
        self._fill_in(outcome)
        history = self.history
        outcome.operations = self.world.operations
        outcome.acknowledged = self.values.acknowledged_count
        outcome.served = self.values.served_count
        outcome.deliveries = history.deliveries
        outcome.accepted = history.acknowledged[AcknowledgeType.ACCEPT]
        outcome.released = history.acknowledged[AcknowledgeType.RELEASE]
        outcome.rejected = history.acknowledged[AcknowledgeType.REJECT]
        outcome.renewed = history.acknowledged[AcknowledgeType.RENEW]
        outcome.most_deliveries = history.most_deliveries
        outcome.terms = history.terms
        outcome.late = self.proxy.late_count
        outcome.rewinds = self._admin.rewinds
        outcome.topics = self._short_lived.created_count
        outcome.prunes = self._logs.prunes
        return outcome

    # -- phases of a run

    def _faults_s(self) -> float:
        return self.options.faults_s

    def _look(self) -> None:
        super()._look()
        self._logs.look()

    def _set_up(self) -> None:
        self._finish(self._create_topic(self.world), SETUP_S, "the cluster is not ready")
        features = FeatureChanges(self.loop, self.network, self.world.bootstrap, self._rng.fork("features"), self.trace)
        self._finish(features.set(1, SHARE_VERSION), SETUP_S, "share groups can't be enabled")
        self._finish(self._admin.configure(self._group_settings()), SETUP_S, "the group can't be configured")
        self._wait("not all brokers know the settings", SETUP_S, self._is_set_up)

    def _is_set_up(self) -> bool:
        images = [node.broker.parts.publisher.image for node in self.nodes if node.broker is not None]
        return self.view.all_agree() and all(share_groups_enabled(image) for image in images)

    def _begin_clients(self) -> None:
        self._faults.set()
        producers = [
            Producer(self.world, f"p{number}", self._rng.fork(f"producer {number}"))
            for number in range(self.options.producers)
        ]
        self._writers = [self._begin(producer.run()) for producer in producers]
        self._writers.append(self._begin(self._short_lived.run(lambda: self.world.stopping)))
        self._members = [
            self._begin(ShareMemberSlot(self._share, f"m{number}", self._rng.fork(f"member {number}")).run())
            for number in range(self._member_count)
        ]
        self._jumping = self._begin(self._jumps.run())
        if self._rewind_s is not None:
            self._rewind = self._begin(self._rewind_after(self._rewind_s))

    async def _rewind_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._admin.rewind(0)

    def _calm(self) -> None:
        self._faults.clear()
        self.proxy.active = False
        if self._jumping is not None:
            self._jumping.cancel()

    def _recover(self) -> None:
        calm_s = self.loop.time()
        if self._rewind is not None:
            self._wait("the offsets of the group can't be changed", PROGRESS_S, self._rewind.done)
        self.world.stopping = True
        self._wait("a producer is still waiting", PROGRESS_S, lambda: all(task.done() for task in self._writers))
        self._note_records()
        places = self._places()
        if not self.loop.run_until(
            self.loop.time() + PROGRESS_S, lambda: all(self.history.is_settled(place) for place in places)
        ):
            stuck = {
                place[1]: f"{self.history.known(place).start_offset} of {self.history.end(place)}"
                for place in places
                if not self.history.is_settled(place)
            }
            raise Violation(f"{PROGRESS_S:.0f} s after the last record the group has not settled {stuck}")
        self.trace.note("observer", f"settled everything {self.loop.time() - calm_s:.1f} s after the last fault")
        self.history.finish(places)
        # A topic that is created while a broker loses its disk can be left without a leader: its only in-sync replica
        # may be that broker.
        self._finish(self._short_lived.delete(), PROGRESS_S, "the short-lived topic can't be deleted")
        self._wait("states of deleted topics are left", FORGOTTEN_S, self._has_forgotten)
        for task in self._members:
            task.cancel()
        self._wait_for_replicas()
        reader = Reader(self.world, self._rng.fork("reader"))
        self._finish(reader.run(), READ_ALL_S, "the topic can't be read to its end")
        self.values.finish(reader.contents)

    def _note_records(self) -> None:
        """The acknowledged records of the topic, for the history of the group."""
        for (partition, offset), value in self.values.acknowledged_places().items():
            self.history.produced((self.world.topic_id, partition), offset, value)

    def _places(self) -> list[SharePlace]:
        own = [(self.world.topic_id, index) for index in range(self.options.partitions)]
        return [*own, (self._short_lived.topic_id, 0)]

    def _has_forgotten(self) -> bool:
        """Whether the share coordinators have no state of topics that do not exist."""
        return {key.topic_id for key in self._logs.states()} <= self.view.newest().topics_by_id.keys()
