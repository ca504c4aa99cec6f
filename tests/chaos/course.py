"""The course of a run: hosts and nodes, then rounds of faults, each with a topic of its own, judged at its end."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from simulation.checkers import Violation
from simulation.epoch_files import check_epoch_files
from simulation.history import Place as RecordPlace
from simulation.history import Progress

from ottla.app.disk import RealDisk
from ottla.client.admin.cluster import Cluster
from ottla.common.errors import OttlaError
from ottla.record.batch import BatchView, iter_batches
from ottla.storage.files.names import CLEAN_SHUTDOWN_FILE

from ..cluster.nodes import Node, Nodes, Place
from ..faults.small_disk import MEGABYTE, SmallDisk
from .book import Book, Figures
from .clients import READERS, STRICT, Round
from .coordination import make_coordination, reigns_in, shared
from .copies import contents_of, difference
from .crew import Clients
from .faults import Nemesis, schedule
from .network import CLIENTS, Network, address
from .security import make_security
from .transactions import COPIERS, COPY_READER, WRITERS, copies_of

PORT, CONTROLLER_PORT = 9092, 9093
VOTERS = 3
DISK_BYTES = 96 * MEGABYTE
PARTITIONS = 6
REPLICAS = 3
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "min.insync.replicas": "2",
    "log.segment.bytes": str(MEGABYTE),
    "log.segment.delete.delay.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "transaction.state.log.num.partitions": "6",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
COMMITTED_CUT = "below its high watermark"
"""In the ERROR of a follower that truncates committed records."""
NEVER_TWICE = frozenset({*STRICT, *WRITERS, *COPIERS})

ROUND_S = 100.0
"""Maximum duration of faults; then all nodes recover and the round is checked."""
RECOVERY_S = 60.0
"""Bound on each step of the recovery once all faults have ended and all processes serve."""
SETUP_S = 30.0
REQUEST_TIMEOUT_S = 10.0
WAIT_S = 0.1
CALM_S = 3.0
"""Of ordinary work before the first fault of a round."""


@dataclass
class Options:
    """Command line options of the run."""

    seed: int
    brokers: int
    seconds: float
    lossy: bool
    folder: Path
    security: str
    """See `security.KINDS`."""
    coordination: str
    """See `coordination.KINDS`."""


@dataclass
class Outcome:
    """Results of the run."""

    options: Options
    figures: Figures = field(default_factory=Figures)
    rounds: int = 0
    elapsed_s: float = 0.0
    violations: list[str] = field(default_factory=list)
    progress_s: list[float] = field(default_factory=list)
    """Of each round: from the end of the faults until all producers were acknowledged in all partitions."""
    in_sync_s: list[float] = field(default_factory=list)
    """Of each round: from then until every ISR was full."""
    compared_bytes: int = 0
    epoch_batches: int = 0
    """Batches with a leader epoch in the checkpoint file after the final clean stop."""
    packets: tuple[int, int, int] = (0, 0, 0)
    """Passed, lost, delayed."""
    nemesis: Nemesis | None = None
    reigns: int | None = None
    """Of controllers, on ZooKeeper."""


class NotInTime(Exception):
    """A step of the recovery did not end within its bound."""


def at_the_end(positions: Mapping[int, int], ends: Sequence[int]) -> bool:
    """Whether a reader has read every partition up to its end."""
    return all(positions[index] >= end for index, end in enumerate(ends))


def has_read_all(book: Book, reader: str) -> bool:
    """Whether a reader has read all acknowledged and committed records."""
    return not book.unread(reader)


def has_seen_all(book: Book, group: str) -> bool:
    """Whether a group has read all acknowledged records."""
    return not book.unseen(group)


def wait_for(probe: Callable[[], bool], what: str, within_s: float = RECOVERY_S) -> float:
    """Seconds until `probe` holds. Raises NotInTime."""
    start_s = time.monotonic()
    while True:
        with suppress(OttlaError):
            if probe():
                return time.monotonic() - start_s
        if time.monotonic() - start_s > within_s:
            raise NotInTime(f"not within {within_s:g} s although no fault is left: {what}")
        time.sleep(WAIT_S)


class Course:
    """One run. A context manager around its hosts, processes and network."""

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self.outcome = Outcome(options)
        self._options = options
        self._say = say
        self._rng = random.Random(options.seed)
        self._stack = ExitStack()

    def __enter__(self) -> Course:
        with ExitStack() as stack:
            folder = self._options.folder
            self._disks = []
            for number in range(1, self._options.brokers + 1):
                host = folder / f"host-{number}"
                host.mkdir(parents=True)
                self._disks.append(stack.enter_context(SmallDisk(host, DISK_BYTES, own_network=True)))
            coordination = stack.enter_context(make_coordination(self._options.coordination, folder))
            holders = {number: disk.holder for number, disk in enumerate(self._disks, 1)}
            hosts = {**holders, **coordination.holders, CLIENTS: os.getpid()}
            self._network = stack.enter_context(Network(hosts, self._options.seed))
            zookeeper = coordination.start()
            places = [
                Place(PORT, CONTROLLER_PORT, address(number), disk.python, disk.path / "data")
                for number, disk in enumerate(self._disks, 1)
            ]
            self._security = make_security(self._options.security, folder / "keys", [each.host for each in places])
            self._nodes = Nodes(
                folder,
                settings={**SETTINGS, **coordination.node_settings, **self._security.node_settings},
                places=places,
                voters=VOTERS,
                first=self._security.format_options,
                zookeeper=zookeeper,
            )
            stack.callback(self._nodes.close)
            self._servers = coordination.servers
            self._nemesis = self.outcome.nemesis = Nemesis(self._nodes, self._disks, self._network, self._servers)
            self._nodes.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self) -> Outcome:
        """Round after round until the time is over or something was violated."""
        started_s = time.monotonic()
        until = started_s + self._options.seconds
        left_s = self._options.seconds
        while left_s > 0 and not self.outcome.violations:
            # No last round that is too short to be worth its recovery.
            rounds_left = max(1, round(left_s / (ROUND_S * 1.3)))
            self._round(min(ROUND_S, left_s / rounds_left * 0.75))
            left_s = until - time.monotonic()
            if left_s < 0.3 * ROUND_S:
                break
        if not self.outcome.violations:
            self._check_epoch_files()
        self.outcome.elapsed_s = time.monotonic() - started_s
        self.outcome.packets = self._network.packets()
        return self.outcome

    def _check_epoch_files(self) -> None:
        """Stop all nodes: each leader epoch of a log is in its file then, or the next start cuts committed records."""
        for node, disk in zip(self._nodes.nodes, self._disks, strict=True):
            code = node.stop()
            if code:
                self.outcome.violations.append(f"node {node.node_id} was stopped and exited with code {code}")
                continue
            data_dir = disk.outside / "data"
            if not (data_dir / CLEAN_SHUTDOWN_FILE).exists():
                self.outcome.violations.append(f"node {node.node_id} was stopped and left no {CLEAN_SHUTDOWN_FILE}")
                continue
            try:
                self.outcome.epoch_batches += check_epoch_files(RealDisk(), str(data_dir), f"node {node.node_id}")
            except Violation as error:
                self.outcome.violations.append(str(error))

    def _round(self, seconds: float) -> None:
        self.outcome.rounds += 1
        rng = random.Random(self._rng.random())
        topic = f"round-{self.outcome.rounds}"
        book = Book(self.outcome.figures, allow_loss=self._options.lossy, transactional=not self._options.lossy)
        faults = schedule(rng, seconds, [node.node_id for node in self._nodes.nodes], list(self._servers))
        client = self._security.client
        the_round = Round(self._nodes.bootstrap_servers, client.library, topic, PARTITIONS, book, self._options.lossy)
        with Cluster(self._nodes.bootstrap_servers, timeout_s=REQUEST_TIMEOUT_S, security=client) as cluster:
            if self.outcome.rounds > 1:  # those of the last round stay, for the check of files at the end
                cluster.topics.delete(self._topics(f"round-{self.outcome.rounds - 1}"))
            self._create(cluster, self._topics(topic))
            clients = Clients(the_round, rng)
            try:
                time.sleep(CALM_S)
                self._nemesis.begin(faults, book.remark)
                time.sleep(seconds)
                self._nemesis.end()
                self._recover(cluster, clients)
            except (NotInTime, AssertionError) as error:
                book.violated(str(error))
                self._secure_groups(cluster, clients)
            finally:
                clients.stop()
            if not book.violations:
                self._judge(cluster, clients)
        for each in self._nemesis.ended_by_itself:
            book.violated(each)
        for node in self._nodes.nodes:
            if "Traceback" in node.log_text():
                book.violated(f"the log of node {node.node_id} holds a traceback")
            if COMMITTED_CUT in node.log_text() and not self._options.lossy:
                book.violated(f"node {node.node_id} was truncated below its high watermark, as its log says")
        if self._servers:
            reigns = reigns_in(node.log_text() for node in self._nodes.nodes)
            self.outcome.reigns = len(reigns)
            for each in shared(reigns):
                book.violated(each)
        book.write_trace(self._options.folder / f"{topic}.txt")
        if book.violations:
            self._secure_evidence(the_round)
        self.outcome.violations += book.violations
        self._print_progress(len(faults))

    def _secure_evidence(self, the_round: Round) -> None:
        """Store every replica of the topic, the last output of each client, and ZooKeeper's files, for `--keep`."""
        evidence = self._options.folder / "evidence"
        for number, disk in enumerate(self._disks, 1):
            for folder in (disk.outside / "data").glob(f"{the_round.topic}-*"):
                shutil.copytree(folder, evidence / f"node-{number}" / folder.name)
        for host, server in self._servers.items():
            shutil.copytree(server.seat.outside, evidence / f"server-{host}", ignore=shutil.ignore_patterns("*.tmp"))
        for client, lines in the_round.said.items():
            evidence.mkdir(exist_ok=True)
            (evidence / f"{the_round.topic}-{client}.txt").write_text("\n".join([*lines, ""]))

    def _secure_groups(self, cluster: Cluster, clients: Clients) -> None:
        """Store the groups while their members still exist: state, offsets, and unread records."""
        evidence = self._options.folder / "evidence"
        evidence.mkdir(exist_ok=True)
        for group in clients.groups:
            with suppress(OttlaError):
                found = [cluster.groups.describe(group), cluster.groups.offsets(group)]
                unseen = sorted(clients.round.book.unseen(group))
                (evidence / f"{group}.txt").write_text("\n".join(map(str, [*found, unseen, ""])))

    def _print_progress(self, faults: int) -> None:
        figures = self.outcome.figures
        recovery = (
            f"{self.outcome.progress_s[-1]:.1f} + {self.outcome.in_sync_s[-1]:.1f} s"
            if not (self.outcome.violations)
            else "violated"
        )
        self._say(
            f"round {self.outcome.rounds}: {faults} faults, {figures.acknowledged:,} acknowledged so far, "
            f"recovery {recovery}"
        )

    def _topics(self, topic: str) -> list[str]:
        """Those of a round."""
        return [topic] if self._options.lossy else [topic, copies_of(topic)]

    def _create(self, cluster: Cluster, topics: Sequence[str]) -> None:
        minimum = "1" if self._options.lossy else "2"
        unclean = "true" if self._options.lossy else "false"
        configs = {"min.insync.replicas": minimum, "unclean.leader.election.enable": unclean}
        wait_for(lambda: len(cluster.describe().brokers) == len(self._nodes.nodes), "every broker is there", SETUP_S)
        for topic in topics:
            cluster.topics.create(topic, PARTITIONS, REPLICAS, configs)
        wait_for(lambda: self._in_sync(cluster, topics), "the new topics are in sync", SETUP_S)

    def _recover(self, cluster: Cluster, clients: Clients) -> None:
        """All faults are over: everything must recover automatically, in bounded time."""
        book, topic = clients.round.book, clients.round.topic
        names = [client.name for client in (*clients.producers, *clients.writers)]
        book.begin_progress()
        self.outcome.progress_s.append(
            wait_for(lambda: book.progressed(names, PARTITIONS), "every producer is acknowledged again")
        )
        clients.stop([*clients.producers, *clients.writers])
        topics = [*self._topics(topic), *self._internal_topics()]
        self.outcome.in_sync_s.append(wait_for(lambda: self._in_sync(cluster, topics), "every ISR is full"))
        if self._options.lossy:
            self._recover_readers(cluster, clients)
            return
        for reader in clients.readers:
            wait_for(partial(has_read_all, book, reader.name), f"{reader.name} has read everything")
        for group in clients.groups:
            wait_for(partial(has_seen_all, book, group), f"unseen: group {group} has read everything")
        wait_for(lambda: not book.uncopied(clients.copies, COPY_READER), "everything was copied")
        clients.stop(clients.copiers)
        with suppress(NotInTime):
            wait_for(lambda: self._all_stable(cluster, topics), "every transaction has ended")
        book.judge_stable_offsets(self._stable_offsets(cluster, topics), RECOVERY_S)
        for reader in clients.copy_readers:
            wait_for(partial(has_read_all, clients.copies, reader.name), f"{reader.name} has read everything")

    def _recover_readers(self, cluster: Cluster, clients: Clients) -> None:
        """With losses, every reader gets to the end of the remaining records."""
        keys = [(clients.round.topic, index) for index in range(PARTITIONS)]
        ends = cluster.records.list_offsets(dict.fromkeys(keys, -1))
        for reader in clients.readers:
            wait_for(
                partial(at_the_end, reader.positions, [ends[key].offset for key in keys]),
                f"{reader.name} has read everything",
            )

    def _internal_topics(self) -> list[str]:
        return [OFFSETS_TOPIC] if self._options.lossy else [OFFSETS_TOPIC, TRANSACTIONS_TOPIC]

    def _all_stable(self, cluster: Cluster, topics: Sequence[str]) -> bool:
        return all(each[0] == each[1] for each in self._stable_offsets(cluster, topics).values())

    @staticmethod
    def _stable_offsets(cluster: Cluster, topics: Sequence[str]) -> dict[str, Progress]:
        found = cluster.topics.all()
        latest = {(topic, partition.index): -1 for topic in topics for partition in found[topic].partitions}
        stable = cluster.records.list_offsets(latest, isolation="read_committed")
        ends = cluster.records.list_offsets(latest)
        return {
            f"{topic}-{index}": Progress(stable[topic, index].offset, ends[topic, index].offset)
            for topic, index in latest
        }

    @staticmethod
    def _in_sync(cluster: Cluster, topics: Sequence[str]) -> bool:
        found = cluster.topics.all()
        return found.keys() >= set(topics) and all(
            partition.leader >= 0 and set(partition.isr) == set(partition.replicas) and len(partition.isr) == REPLICAS
            for topic in topics
            for partition in found[topic].partitions
        )

    def _judge(self, cluster: Cluster, clients: Clients) -> None:
        book, topic = clients.round.book, clients.round.topic
        if self._options.lossy:
            book.finish(*self._contents(cluster, topic, book))
        else:
            sources, copies = clients.readers[0].contents, clients.copy_readers[0].contents
            book.finish(*self._contents(cluster, topic, book), sources, READERS)
            clients.copies.finish(
                *self._contents(cluster, copies_of(topic), clients.copies), copies, {COPY_READER: True}
            )
            book.finish_transactions(sources, copies, clients.copies.copies)
        try:
            wait_for(lambda: not self._differences(cluster, topic), "all replicas are the same bytes")
        except NotInTime as error:
            book.violated(f"{error}: {self._differences(cluster, topic)}")

    def _contents(self, cluster: Cluster, topic: str, book: Book) -> tuple[dict[int, dict[int, str]], set[RecordPlace]]:
        """The content of the partitions, and the second copies in it."""
        contents: dict[int, dict[int, str]] = {}
        resent: set[RecordPlace] = set()
        for index in range(PARTITIONS):
            contents[index], copies = contents_of(self._read(cluster, topic, index, book), NEVER_TWICE)
            resent.update((index, offset) for offset in copies)
        return contents, resent

    @staticmethod
    def _read(cluster: Cluster, topic: str, index: int, book: Book) -> list[BatchView]:
        """All batches of a partition, as a client fetches them."""
        end = cluster.records.list_offsets({(topic, index): -1})[topic, index].offset
        found: list[BatchView] = []
        position = 0
        while position < end:
            for batch in iter_batches(cluster.records.fetch(topic, index, position).records):
                if batch.base_offset != position or not batch.crc_matches():
                    book.violated(f"altered: the batch at {index}@{position}, which says {batch.base_offset}")
                found.append(batch)
                position = batch.next_offset
        return found

    def _differences(self, cluster: Cluster, topic: str) -> list[str]:
        """Differences between the replicas of a partition."""
        differences = []
        compared = 0
        found = cluster.topics.all()
        for name in (*self._topics(topic), *self._internal_topics()):
            for partition in found[name].partitions:
                folders = {
                    node_id: self._folder(self._nodes[node_id], f"{name}-{partition.index}")
                    for node_id in partition.replicas
                }
                differences.append(difference(folders))
                compared += sum(path.stat().st_size for folder in folders.values() for path in folder.glob("*.log"))
        if not any(differences):
            self.outcome.compared_bytes += compared
        return [each for each in differences if each is not None]

    def _folder(self, node: Node, name: str) -> Path:
        return self._disks[node.node_id - 1].outside / "data" / name
