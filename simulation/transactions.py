"""The transaction workload: producers, consume-transform-produce and faults; then a calm phase with full recovery.

A run is a function of its seed. Writers commit and abort transactions to one topic; some are replaced while they live,
some leave a transaction open for longer than its timeout, some die in one. An idempotent producer writes between them.
Members of a group copy the records that they read by read_committed to a second topic, exactly once. Requests are
repeated late (`simulation.proxy`), clients use either version of transactions, and the level of the feature may change
during the run. Other readers use read_committed and read_uncommitted.

After the last fault every transactional id must commit again within a bounded time. Then the clients end, some in the
middle of a transaction, and each transaction must end too: the last stable offset reaches the end of every partition.
Then `simulation.history` checks the contents, and all replicas are compared byte for byte. Coordinators are compared
with their logs throughout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from ottla.common.kafka.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.coordinator.runtime.key_hash import partition_for
from simulation.checkers import Violation
from simulation.cluster_group import GROUP, ClusterGroup
from simulation.cluster_simulation import PROGRESS_S, READ_ALL_S, SETUP_S, ClusterRunOutcome, ClusterSimulation
from simulation.coordinator_logs import CoordinatorLogs
from simulation.copiers import CopyWorld, RecordCopier
from simulation.feature_changes import FeatureChanges
from simulation.group_clients import OF_A_TRANSACTION, CoordinatorClient
from simulation.history import Findings, LogHistory, Progress, Transactions, judge_copies, judge_stable_offsets
from simulation.log_clients import LogWorld, Producer
from simulation.log_consumers import Consumer, Reader
from simulation.proxy import LateProxy
from simulation.rng import SimRng
from simulation.transactional_producer import TransactionWorld
from simulation.transactional_writers import WriterSeat

SOURCE, TARGET = "events", "copies"
STATE_PARTITIONS = 2
TIMEOUT_MS = 12_000
"""Timeout of a transaction."""
CLEANUP_MS = 2_000
"""Interval of the coordinator's check for timed out transactions."""
ENDED_S = 60.0
"""Limit in seconds from the end of the last client until every transaction has ended: the timeout, the coordinator's
interval, markers."""
MIN_TRANSACTIONS = 40
MIN_FAULTS = 5
"""Minimum number of transactions for a seed to count."""


@dataclass(frozen=True)
class TransactionOptions:
    """Options of a run that are not taken from its seed."""

    nodes: int | None = None
    """Three or four by the seed if None."""
    partitions: int = 3
    """Partitions of each of the two topics."""
    writers: int = 3
    """Number of transactional ids that write."""
    members: int = 2
    """Members of the copying group."""
    protocol: str | None = None
    """Group protocol, one of PROTOCOLS; by the seed if None."""
    level: int | None = None
    """Constant level of the feature `transaction.version`; by the seed, and sometimes changing, if None."""
    faults_s: float = 150.0
    """Virtual seconds of faults."""
    damage: bool = False
    """Also flip bits of files."""
    settings: tuple[tuple[str, str], ...] = ()
    """Broker settings in addition to the workload's."""


@dataclass
class TransactionOutcome(ClusterRunOutcome):
    """Results of a run."""

    committed: int = 0
    aborted: int = 0
    copied: int = 0
    late: int = 0
    """Requests that the proxy repeated."""
    worst_lag_s: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether enough happened for the run to be significant."""
        return self.committed >= MIN_TRANSACTIONS and self.faults >= MIN_FAULTS

    @property
    def too_little(self) -> str:
        """See `ClusterRunOutcome`."""
        return f"below {MIN_TRANSACTIONS} transactions or {MIN_FAULTS} faults"

    def summary(self) -> str:
        """See `RunOutcome`."""
        return (
            f"{super().summary()}, {self.committed} transactions committed and {self.aborted} aborted, "
            f"{self.copied} records copied, {self.late} requests late, worst lag {self.worst_lag_s:.1f} s"
        )


class TransactionSimulation(ClusterSimulation):
    """One run."""

    def __init__(
        self, seed: int, options: TransactionOptions | None = None, cpu_time: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`cpu_time` in seconds, only for the report."""
        self.options = options = options or TransactionOptions()
        super().__init__(seed, options.nodes, cpu_time, damage=options.damage)
        rng = self._rng
        self._findings = Findings()
        self.transactions = Transactions(self._findings)
        self.sources, self.copies = (self._log(topic) for topic in (SOURCE, TARGET))
        self._faults = asyncio.Event()
        self.proxy = LateProxy(self.loop, self.network, rng.fork("proxy"))
        self.network.between_nodes = self.proxy.between_nodes
        self._world = TransactionWorld(
            trace=self.trace,
            transactions=self.transactions,
            coordinator=self._coordinator,
            group_coordinator=lambda name, _: self.group.make_client(name),
            timeout_ms=TIMEOUT_MS,
            proxy=self.proxy,
            faults=self._faults,
        )
        by_seat = rng.fork("copiers").chance(0.5)
        self._copy_world = CopyWorld(self._world, self.sources, self.copies, GROUP, by_seat)
        self.group = ClusterGroup(
            self.sources,
            self.view,
            rng.fork("group"),
            self.trace,
            options.protocol,
            options.members,
            make_copier=lambda name, own: RecordCopier(self._copy_world, name, own),
        )
        self.features = FeatureChanges(
            self.loop, self.network, self.sources.bootstrap, rng.fork("features"), self.trace
        )
        self._make_nodes(
            {
                **self.group.settings(),
                "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(CLEANUP_MS),
                **dict(options.settings),
            }
        )
        self._logs = CoordinatorLogs(self.nodes)
        self._level = self.features.plan() if options.level is None else options.level
        self.description = (
            f"{len(self.nodes)} nodes, {self.group.description} copy, "
            f"transaction.version {'changes' if self._level is None else self._level}, "
            f"{self._at_once} faults at once within {self._most_between_s:.0f} s"
        )
        self._seats: list[WriterSeat] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._readers: list[LogWorld] = []
        self._copied = 0

    def _log(self, topic: str) -> LogWorld:
        history = LogHistory(self.trace, transactions=self.transactions, named=f"{topic}-")
        return self._log_world(topic, self.options.partitions, history)

    def _coordinator(self, name: str, rng: SimRng, transactional_id: str) -> CoordinatorClient:
        partition = partition_for(transactional_id, STATE_PARTITIONS)
        return CoordinatorClient(
            self.sources,
            name,
            rng.fork("coordinator"),
            transactional_id,
            lambda address: self.view.leads(address, TRANSACTION_STATE_TOPIC, partition),
            lambda: self.view.is_settled(TRANSACTION_STATE_TOPIC, partition),
            key_type=OF_A_TRANSACTION,
        )

    def run(self) -> TransactionOutcome:
        """Run to the end, or to the first violation."""
        outcome = TransactionOutcome(self.seed, self.description)
        self._run_into(outcome)
        self._fill_in(outcome)
        histories = (self.sources.history, self.copies.history)
        outcome.operations = sum(each.operations for each in (self.sources, self.copies, *self._readers))
        outcome.acknowledged = sum(each.acknowledged_count for each in histories)
        outcome.served = sum(each.served_count for each in histories)
        outcome.worst_lag_s = max(each.worst_lag.seconds for each in histories)
        outcome.commits = self.group.commits
        outcome.rebalances = self.group.rebalances
        outcome.committed = self.transactions.committed_count
        outcome.aborted = self.transactions.aborted_count
        outcome.copied = self._copied
        outcome.late = self.proxy.late_count
        return outcome

    # -- phases of a run

    def _faults_s(self) -> float:
        return self.options.faults_s

    def _look(self) -> None:
        super()._look()
        self._logs.look()

    def _set_up(self) -> None:
        for world in (self.sources, self.copies):
            self._finish(self._create_topic(world), SETUP_S, "the cluster is not ready")
        if self._level is not None:
            self._finish(self.features.set(self._level), SETUP_S, "the level of the feature can't be set")

    def _begin_clients(self) -> None:
        self._faults.set()
        names = [f"t{number}" for number in range(self.options.writers)]
        self._seats = [
            WriterSeat(self._world, self.sources, name, self._rng.fork(name), self._follow) for name in names
        ]
        plain = Producer(self.sources, "p0", self._rng.fork("p0"))
        self._tasks = [self._begin(work) for work in (*(seat.run() for seat in self._seats), plain.run())]
        for world in (self.sources, self.copies):
            readers = replace(world)  # which stop later than the writers
            self._readers.append(readers)
            for committed in (True, False):
                name = _reader(world, committed=committed)
                self._tasks.append(
                    self._begin(Consumer(readers, name, self._rng.fork(name), committed=committed).run())
                )
        self.group.start(self._follow)
        if self._level is None:
            self._tasks.append(self._begin(self.features.run(lambda: self.sources.stopping)))

    def _calm(self) -> None:
        self._faults.clear()
        self.proxy.active = False
        self.group.calm()

    def _recover(self) -> None:
        self._world.committed.clear()
        calm_s = self.loop.time()
        wanted = {f"t{number}" for number in range(self.options.writers)}
        if not self.loop.run_until(calm_s + PROGRESS_S, lambda: wanted <= self._world.committed.keys()):
            raise Violation(
                f"{PROGRESS_S:.0f} s after the last fault no transaction of "
                f"{sorted(wanted - self._world.committed.keys())} was committed"
            )
        self.trace.note("observer", f"recovered {self.loop.time() - calm_s:.1f} s after the last fault")
        sources = self._stop_writers()
        self._stop_copiers(sources)
        self._judge(sources)

    def _stop_writers(self) -> dict[int, dict[int, str]]:
        """Stop the writers; returns their values that are committed at the end."""
        self.sources.stopping = True
        writers = self._tasks[: len(self._seats) + 1]
        self._wait("a writer is still waiting", PROGRESS_S, lambda: all(task.done() for task in writers))
        self._wait_for_replicas()
        self._wait_for_stable_offsets(SOURCE)
        return self._read(self.sources, committed=True)

    def _stop_copiers(self, sources: dict[int, dict[int, str]]) -> None:
        ends = {partition: max(records) + 1 for partition, records in sources.items() if records}
        self._wait("the group has not copied everything", PROGRESS_S, lambda: self.group.has_committed(ends))
        self.group.stop()
        self._wait_for_stable_offsets(*self.view.newest().topics)

    def _wait_for_stable_offsets(self, *topics: str) -> None:
        """Wait until every transaction ends, including those that no producer ends."""
        self.loop.run_until(
            self.loop.time() + ENDED_S, lambda: all(each[0] == each[1] for each in self._progress(topics).values())
        )
        judge_stable_offsets(self._findings, self._progress(topics), ENDED_S)

    def _progress(self, topics: tuple[str, ...]) -> dict[str, Progress]:
        return {
            f"{topic}-{index}": Progress(*offsets)
            for topic in topics
            for index, offsets in self.view.stable_offsets(topic).items()
        }

    def _read(self, world: LogWorld, *, committed: bool) -> dict[int, dict[int, str]]:
        reader = Reader(world, self._rng.fork(f"reader of {world.topic}"), committed=committed)
        self._finish(reader.run(), READ_ALL_S, "the topic can't be read to its end")
        return reader.contents

    def _judge(self, sources: dict[int, dict[int, str]]) -> None:
        copies = self._read(self.copies, committed=True)
        views = [
            (world, {True: committed, False: self._read(world, committed=False)})
            for world, committed in ((self.sources, sources), (self.copies, copies))
        ]
        self.loop.run_until(
            self.loop.time() + READ_ALL_S,
            lambda: all(
                _has_seen(world, view, committed=committed) for world, of in views for committed, view in of.items()
            ),
        )
        for readers in self._readers:
            readers.stopping = True
        self._wait("a reader is still waiting", PROGRESS_S, lambda: all(task.done() for task in self._tasks))
        for world, of in views:
            readers_of = {_reader(world, committed=committed): committed for committed in of}
            world.history.finish(of[False], (), of[True], readers_of)
        everything = [*sources.values(), *copies.values()]
        self.transactions.finish(frozenset(value for records in everything for value in records.values()))
        judge_copies(
            self._findings,
            {partition: list(records.values()) for partition, records in sources.items()},
            {
                partition: [(copy, self._copy_world.sources[copy]) for copy in records.values()]
                for partition, records in copies.items()
            },
        )
        self._copied = sum(map(len, copies.values()))


def _has_seen(world: LogWorld, view: dict[int, dict[int, str]], *, committed: bool) -> bool:
    seen = world.history.seen(_reader(world, committed=committed))
    return len(seen) >= sum(map(len, view.values()))


def _reader(world: LogWorld, *, committed: bool) -> str:
    return f"{world.topic}-{'committed' if committed else 'uncommitted'}"
