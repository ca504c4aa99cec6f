"""Clusters for the contract of `MetadataLog`: nodes, brokers, and the promises that each event is checked against.

A `LogWorld` has nodes, each a process with a log, a publisher and a controller, and brokers that are only
registrations. `quorum_log_world` and `zookeeper_log_world` implement it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from simulation.loop import Process, SimLoop
from simulation.rng import SimRng

from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller.driver import Controller
from ottla.controller.result import ControllerContext, ControllerResult
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.difference import changes_between
from ottla.metadata.image import MetadataImage
from ottla.metadata.log import LeaderAndEpoch, MetadataLog, SubmitDone
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.protocol.messages.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord

NODES = (1, 2, 3)
BROKERS = (1, 2, 3, 4, 5, 6, 7)
"""The first are those of the nodes' processes: on ZooKeeper nodes find each other by them, so they never leave."""
SESSION_MS = 2_000
"""Session timeout of brokers on a quorum, and of nodes on ZooKeeper."""
PROPERTIES: Mapping[str, str] = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "auto.leader.rebalance.enable": "false",
    "unclean.leader.election.enable": "false",
    "delegation.token.secret.key": "secret",
}

Outcomes = list[BaseException | None]
Operation = Callable[[MetadataImage, ControllerContext], ControllerResult[Any]]


class Member:
    """One life of a node, and everything that its log reported."""

    def __init__(
        self,
        world: LogWorld,
        node_id: int,
        process: Process,
        publisher: MetadataPublisher,
        log: MetadataLog,
        controller: Controller,
        failures: list[BaseException],
    ) -> None:
        self.world = world
        self.node_id = node_id
        self.process = process
        self.publisher = publisher
        self.log = log
        self.controller = controller
        self.images: list[MetadataImage] = []
        self.leaders: list[tuple[LeaderAndEpoch, bool]] = []
        self.failures: list[BaseException] = failures
        """Errors after which the log stopped participating."""
        publisher.register(self._published)
        log.listen(self)

    # -- promises --------------------------------------------------------------------------------------------------

    def _published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        self.world.check_image(self, image)
        if self.images:
            check_changes(self.images[-1], image, changes)
        self.images.append(image)

    def on_leader_change(self, leader: LeaderAndEpoch, active: bool) -> None:
        """See `LeadershipListener`: each change is reported once, and epochs do not fall."""
        if self.leaders:
            assert (leader, active) != self.leaders[-1], f"node {self.node_id} heard {leader} again"
            assert leader.epoch >= self.leaders[-1][0].epoch
        self.leaders.append((leader, active))
        assert self.log.leader == leader
        if active:
            self.world.check_active(self, leader)

    @property
    def active(self) -> bool:
        """Whether it runs, and its log last reported that it leads."""
        running = self.process.alive and self.process.paused is None
        return running and bool(self.leaders) and self.leaders[-1][1]

    @property
    def epoch(self) -> int:
        return self.leaders[-1][0].epoch

    @property
    def image(self) -> MetadataImage:
        """Its committed image."""
        return self.publisher.image

    # -- requests --------------------------------------------------------------------------------------------------

    def submit(self, records: Sequence[ApiMessageAndVersion], then: SubmitDone = lambda error: None) -> Outcomes:
        """Returns the outcomes, to which `done` appends its own; `then` runs within it."""
        outcomes: Outcomes = []

        def done(error: BaseException | None) -> None:
            outcomes.append(error)
            assert len(outcomes) == 1, "a submission is answered once"
            then(error)

        self.process.run(self.log.submit, records, done)
        return outcomes

    def create(self, *names: str, then: SubmitDone = lambda error: None) -> Outcomes:
        """Submit these topics together; once that is acknowledged, every later active node has to have them."""

        def created(error: BaseException | None) -> None:
            if error is None:
                assert set(names) <= set(self.image.topics), "acknowledged before it was published"
                self.world.acknowledged.update(names)
            then(error)

        return self.submit([record for name in names for record in topic_records(name)], created)

    def delete(self, name: str) -> Outcomes:
        """Submit the removal of a topic, which any later node may lack from now on."""
        self.world.acknowledged.discard(name)
        return self.submit([versioned(RemoveTopicRecord(topic_id=self.log.latest.topics[name].topic_id))])

    def ask(self, operation: Operation) -> list[tuple[Any, BaseException | None]]:
        """Have its controller decide; returns the answers."""
        answers: list[tuple[Any, BaseException | None]] = []
        self.process.run(self.controller.submit, operation, lambda *answer: answers.append(answer))
        return answers


class LogWorld(ABC):
    """The nodes of one cluster, its brokers, and the invariants of the contract."""

    loop: SimLoop
    rng: SimRng

    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        """The current or last life of each node."""
        self.lives: list[Member] = []
        self.brokers: set[int] = set()
        self.acknowledged: set[str] = set()
        """Topics whose creation was acknowledged, and whose deletion was not requested."""
        self.active_in: dict[int, Member] = {}
        self._content: dict[int, MetadataImage] = {}
        self._offsets: dict[int, int] = {}

    # -- implemented by each world ---------------------------------------------------------------------------------

    @abstractmethod
    def begin(self, node_id: int) -> Member:
        """A new life of a node that is not running."""

    @abstractmethod
    def kill(self, node_id: int) -> None:
        """The process dies; its disk keeps synced writes."""

    @abstractmethod
    def isolate(self, node_id: int, seconds: float) -> None:
        """Nothing reaches the node, and nothing comes from it, for this time."""

    @abstractmethod
    def join(self, *broker_ids: int) -> None:
        """New incarnations of brokers register; `settled` waits until the controller has accepted them."""

    @abstractmethod
    def leave(self, *broker_ids: int) -> None:
        """Brokers die; `settled` waits until they lead nothing."""

    @abstractmethod
    def forces_snapshot(self) -> bool:
        """Whether a node that starts now has to load a snapshot from another one, for records of its absence."""

    # -- nodes -----------------------------------------------------------------------------------------------------

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            member = self.members[node_id] = self.begin(node_id)
            self.lives.append(member)

    def stop(self, node_id: int) -> None:
        """As SIGTERM does."""
        member, stopped = self.members[node_id], Outcomes()
        member.process.run(member.controller.stop, stopped.append)
        self.until(lambda: stopped)
        assert stopped == [None]
        self.kill(node_id)

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members.values() if member.process.alive]

    @property
    def active(self) -> Member | None:
        """The active node of the highest epoch."""
        return max((each for each in self.running if each.active), key=lambda each: each.epoch, default=None)

    # -- time ------------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.time() + seconds)

    def until(self, condition: Callable[[], object], within_s: float = 60.0) -> None:
        assert self.loop.run_until(self.loop.time() + within_s, lambda: bool(condition())), "condition not reached"

    def answered(self, answers: Sequence[object]) -> None:
        """Wait for an answer."""
        self.until(lambda: answers)

    def settled(self) -> Member:
        """The active node, once it has all live brokers and no others, and has committed everything."""
        for _ in range(20):
            self.until(lambda: self.active is not None and live(self.active.log.latest) == self.brokers)
            member = self.active
            assert member is not None
            outcomes = member.submit([])
            self.answered(outcomes)
            if outcomes == [None] and member is self.active and live(member.image) == self.brokers:
                return member
        raise AssertionError("no node remains active")

    def together(self) -> Member:
        """The active node, once every running node has its image and knows it as the leader."""

        def agreed() -> bool:
            active = self.active
            return active is not None and all(
                content(each.image) == content(active.log.latest) and each.log.leader == active.log.leader
                for each in self.running
            )

        for _ in range(20):
            member = self.settled()
            self.until(agreed)
            if member is self.active:
                return member
        raise AssertionError("the nodes do not agree")

    def decide(self, operation: Operation) -> Any:
        """The response of the active controller; raises the KafkaError of a refusal. Asks again after its fall."""
        for _ in range(20):
            answers = self.settled().ask(operation)
            self.answered(answers)
            response, error = answers[0]
            if error is None:
                return response
            if not (isinstance(error, KafkaError) and error.code is ErrorCode.NOT_CONTROLLER):
                raise error
        raise AssertionError("no controller decides")

    # -- promises of all nodes -------------------------------------------------------------------------------------

    def check_image(self, member: Member, image: MetadataImage) -> None:
        """Offsets rise, and all nodes publish the same image at the same offset.

        A node that starts may be behind, but only by batches without metadata.
        """
        known = content(image)
        offset = self._offsets.get(member.node_id, -1)
        if image.offset < offset:
            assert known == self._content[offset], f"node {member.node_id} published an old image"
        self._offsets[member.node_id] = max(image.offset, offset)
        assert self._content.setdefault(image.offset, known) == known, f"two images at offset {image.offset}"

    def check_active(self, member: Member, leader: LeaderAndEpoch) -> None:
        """One node is active in an epoch, later ones in higher epochs, with everything that was acknowledged."""
        assert leader.leader_id == member.node_id
        assert leader.epoch not in self.active_in, f"two nodes or two terms in epoch {leader.epoch}"
        assert leader.epoch > max(self.active_in, default=-1)
        self.active_in[leader.epoch] = member
        missing = self.acknowledged - set(member.log.latest.topics)
        assert not missing, f"the controller of epoch {leader.epoch} lacks {sorted(missing)[:3]}"


def check_changes(before: MetadataImage, image: MetadataImage, changes: MetadataChanges) -> None:
    """The changes list everything that differs from the image that was published before."""
    needed = changes_between(before, image)
    assert {each.topic_id for each in needed.created_topics} <= {each.topic_id for each in changes.created_topics}
    assert {each.topic_id for each in needed.deleted_topics} <= {each.topic_id for each in changes.deleted_topics}
    changed = {(topic.topic_id, index) for topic, index in changes.changed_partitions}
    assert {(topic.topic_id, index) for topic, index in needed.changed_partitions} <= changed
    assert set(needed.changed_configs) <= set(changes.changed_configs)
    assert needed.brokers_changed <= changes.brokers_changed  # booleans: a needed change is listed
    assert needed.acls_changed <= changes.acls_changed


def content(image: MetadataImage) -> MetadataImage:
    """The image without its position in the log."""
    return replace(image, offset=-1, epoch=0)


def live(image: MetadataImage) -> set[int]:
    """Brokers that may lead."""
    return {broker.broker_id for broker in image.active_brokers()}


def topic_records(name: str) -> list[ApiMessageAndVersion]:
    """A topic with one partition, on broker 1."""
    topic_id = name.encode().ljust(16, b"-")
    partition = PartitionRecord(
        partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0
    )
    return [versioned(TopicRecord(name=name, topic_id=topic_id)), versioned(partition)]


def code_of(error: BaseException | None) -> ErrorCode | None:
    """The error code of a refusal; None without one."""
    if error is None:
        return None
    assert isinstance(error, KafkaError), error
    return error.code
