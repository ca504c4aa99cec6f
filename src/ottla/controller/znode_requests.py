"""What others write into ZooKeeper's tree, as work for the active controller.

Brokers come and go by their registrations, and tools ask by znodes for deletions, reassignments and preferred leaders.
Each is looked at when this node becomes active, and whenever its watch tells of a change; what is found goes through
the same handlers as requests of clients. A wish that is done with is removed, granted or not, as Apache Kafka does it.

- A broker without a znode is none, and what it led is led by others. A registration is another process, which may lack
  what the one before had not flushed: before it is taken in, that id leaves every ISR that has another member and leads
  nothing, so each life leads in leader epochs of its own. Then the registration is written again as it is: its version
  tells the next controller that this was done, whoever registers while there is none. Those that were there when the
  reign began are taken in before anything else is decided: nobody is answered as if they were not there.
- Whoever wrote a wish may have known of more brokers than this controller does yet: those that are registered when it
  is seen are taken in first, since what is refused goes away.
- A reassignment that was asked for by a znode is not there any more once it has begun: the topic says that it goes on.

Left out: topics and partitions (`topic_intake`), notices of settings that tools changed, of ISRs and of data
directories (no broker writes those itself).
"""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.generation import Generation
from ottla.controller.driver import Controller
from ottla.controller.elections import PREFERRED, handle_elect_leaders
from ottla.controller.reassignments import handle_alter_partition_reassignments
from ottla.controller.registration import SLICE
from ottla.controller.replication import isr_without
from ottla.controller.result import ControllerContext, ControllerResult
from ottla.controller.topics import handle_delete_topics
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.log import LeaderAndEpoch
from ottla.metadata.records import versioned
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from ottla.protocol.messages.metadata_records import RegisterBrokerRecord, UnregisterBrokerRecord
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Delete, SetData, Znode
from ottla.protocol.znodes.session import Done, Watch, ZooKeeperError, ZooKeeperSession
from ottla.protocol.znodes.topics import decode_partitions, decode_reassignment
from ottla.zookeeper.batches import batches
from ottla.zookeeper.log import ZooKeeperLog
from ottla.zookeeper.reading import NEW, broker_record

logger = logging.getLogger(__name__)

T = TypeVar("T")
Handler = Callable[[MetadataImage, ControllerContext], ControllerResult[Any]]

_PARTITIONS_AT_ONCE = 1_000
"""Of a wish, in one operation of the controller."""
_ALL = sys.maxsize
"""Partitions of a broker, in one operation: what comes next when a reign begins sees the end of it."""


class ZnodeRequestWatcher:
    """Follows the tree while its node's controller is active; a `LeadershipListener`, told after the controller."""

    __slots__ = ("_controller", "_log", "_removed", "_round", "_session", "_watched")

    def __init__(self, session: ZooKeeperSession, log: ZooKeeperLog, controller: Controller) -> None:
        self._session = session
        self._log = log
        self._controller = controller
        self._round = Generation()
        self._watched: set[str] = set()
        """Names of registrations whose next change will be told."""
        self._removed: set[str] = set()
        """Wishes that are on their way out: one can be seen twice, and removed once."""

    def on_leader_change(self, _leader: LeaderAndEpoch, active: bool) -> None:
        """See `LeadershipListener`."""
        self._round.renew()
        self._watched.clear()
        self._removed.clear()
        if not active:
            return
        image = self._log.latest
        in_sync = {each for topic in image.topics.values() for one in topic.partitions.values() for each in one.isr}
        for broker_id in sorted(in_sync - set(image.brokers)):
            self._run(partial(_without, broker_id=broker_id, slice_size=_ALL))
        for record in self._log.newcomers:
            self._run(partial(_registered, record=record, slice_size=_ALL))
        self._look_at_brokers()
        self._look_at_deletions()
        self._look_at_reassignments()
        self._look_at_elections()

    # -- brokers ---------------------------------------------------------------------------------------------------

    def _look_at_brokers(self) -> None:
        self._session.children(
            paths.BROKER_IDS, self._round.during(self._brokers), self._round.during(self._look_at_brokers)
        )

    def _brokers(self, names: list[str] | None, error: ZooKeeperError | None) -> None:
        if names is None:
            self._log.restart_term(error)
            return
        gone = set(map(str, self._log.latest.brokers)) - set(names)
        for name in sorted(gone):
            self._run(partial(_gone, broker_id=int(name)))
        for name in sorted(names):
            if name not in self._watched:
                self._watched.add(name)
                path = f"{paths.BROKER_IDS}/{name}"
                seen = self._round.during(partial(self._broker, name))
                self._session.get(path, seen, self._round.during(partial(self._broker_changed, name)))

    def _broker_changed(self, name: str) -> None:
        self._watched.discard(name)
        self._look_at_brokers()

    def _broker(self, name: str, node: Znode | None, error: ZooKeeperError | None) -> None:
        if error is not None:
            self._log.restart_term(error)
        elif node is not None:
            try:
                record = broker_record(name, node)
            except ProtocolError as failure:
                logger.error("a broker is left out: %s", failure)
                return
            taken_in = self._round.during(partial(self._note_taken_in, f"{paths.BROKER_IDS}/{name}", node))
            self._controller.submit(partial(_registered, record=record), lambda _, error: taken_in(error))

    def _note_taken_in(self, path: str, node: Znode, error: BaseException | None) -> None:
        """For the next controller; a broker that has gone meanwhile is looked at again anyway."""
        if error is not None:
            note_refusal(None, error)
            return
        self._controller.brokers_changed()
        if node.version == NEW:
            for call in batches([[SetData(path, node.data, node.version)]], self._log.epoch_version):
                self._session.multi(call, lambda _paths, _error: None)

    # -- wishes ----------------------------------------------------------------------------------------------------

    def _look_at_deletions(self) -> None:
        self._session.children(
            paths.DELETE_TOPICS, self._round.during(self._deletions), self._round.during(self._look_at_deletions)
        )

    def _deletions(self, names: list[str] | None, error: ZooKeeperError | None) -> None:
        if names is None:
            self._log.restart_term(error)
            return
        wished = sorted(name for name in names if name in self._log.latest.topics)
        for name in wished:
            self._log.learn(paths.deletion(name))
        if wished:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in wished])
            self._run(lambda image, context: handle_delete_topics(image, request, context))
        # What is left once that is written is refused, or of a topic that there is not.
        self._log.write((), self._written(self._round.during(partial(self._refuse_deletions, names))))

    def _refuse_deletions(self, names: Sequence[str]) -> None:
        for name in names:
            path = f"{paths.DELETE_TOPICS}/{name}"
            self._session.get(path, self._round.during(partial(self._remove, path)))

    def _look_at_reassignments(self) -> None:
        self._look_at_wish(paths.REASSIGN_PARTITIONS, self._reassignment, self._look_at_reassignments)

    def _reassignment(self, node: Znode | None, error: ZooKeeperError | None) -> None:
        def moves(path: str, data: bytes) -> Iterable[tuple[TopicPartition, Sequence[int]]]:
            return decode_reassignment(path, data).items()

        self._grant(paths.REASSIGN_PARTITIONS, node, error, "a reassignment", moves, _moving)

    def _look_at_elections(self) -> None:
        self._look_at_wish(paths.PREFERRED_REPLICA_ELECTION, self._election, self._look_at_elections)

    def _election(self, node: Znode | None, error: ZooKeeperError | None) -> None:
        self._grant(paths.PREFERRED_REPLICA_ELECTION, node, error, "an election", decode_partitions, _electing)

    def _look_at_wish(self, path: str, grant: Done[Znode], look_again: Watch) -> None:
        """Who wrote it may have seen brokers of which no watch has told yet: they are taken in first."""

        def seen(node: Znode | None, error: ZooKeeperError | None) -> None:
            if node is None:
                grant(None, error)
            else:
                self._session.children(paths.BROKER_IDS, self._round.during(listed))

        def listed(names: list[str] | None, error: ZooKeeperError | None) -> None:
            self._brokers(names, error)
            if names is not None:
                self._session.get(path, self._round.during(grant))  # is answered after the registrations

        self._session.get(path, self._round.during(seen), self._round.during(look_again))

    def _grant(
        self,
        path: str,
        node: Znode | None,
        error: ZooKeeperError | None,
        what: str,
        decode: Callable[[str, bytes], Iterable[T]],
        operation: Callable[[list[T]], Handler],
    ) -> None:
        """Do what a znode asks for, piece by piece, and remove it; what can't be read is removed alone."""
        if error is not None:
            self._log.restart_term(error)
        elif node is not None:
            try:
                wished = iter(decode(path, node.data))
            except ProtocolError as failure:
                logger.error("%s is refused: %s", what, failure)
                wished = iter(())
            while some := list(islice(wished, _PARTITIONS_AT_ONCE)):
                self._run(operation(some))
            self._remove(path, node, None)

    def _remove(self, path: str, node: Znode | None, error: ZooKeeperError | None) -> None:
        """After what was decided before; a wish that was changed meanwhile is another."""
        if error is not None:
            self._log.restart_term(error)
        elif node is not None and path not in self._removed:
            self._removed.add(path)
            removed = self._round.during(partial(self._removed.discard, path))
            self._log.write([[Delete(path, node.version)]], lambda _error: removed())

    # -- how -------------------------------------------------------------------------------------------------------

    def _run(self, operation: Handler) -> None:
        self._controller.submit(operation, note_refusal)

    @staticmethod
    def _written(callback: Callable[[], None]) -> Callable[[BaseException | None], None]:
        return lambda error: callback() if error is None else None


def note_refusal(_response: object, error: BaseException | None) -> None:
    """Nobody waits for an answer; after the end of a reign the next controller looks again."""
    if isinstance(error, KafkaError):
        logger.info("what was asked for in ZooKeeper is refused: %s", error)


def _registered(
    image: MetadataImage, context: ControllerContext, record: RegisterBrokerRecord, slice_size: int = SLICE
) -> ControllerResult[None]:
    """A broker is there, which leads nothing that a life before led, or says something else of itself."""
    existing = image.brokers.get(record.broker_id)
    if existing is None or existing.broker_epoch < record.broker_epoch:
        without = _without(image, context, record.broker_id, slice_size)
        context.heartbeats.forget(record.broker_id)
        return without._replace(records=[*without.records, *([] if without.again else [versioned(record)])])
    if existing.broker_epoch > record.broker_epoch:
        return ControllerResult([], None)
    record = copy.copy(record)  # no znode says who is about to stop
    record.fenced, record.in_controlled_shutdown = existing.fenced, existing.in_controlled_shutdown
    delta = MetadataDelta(image)
    delta.replay(record)
    known = delta.apply(image.offset, image.epoch)[0].brokers[record.broker_id] == existing
    return ControllerResult([] if known else [versioned(record)], None)


def _without(
    image: MetadataImage, context: ControllerContext, broker_id: int, slice_size: int = SLICE
) -> ControllerResult[None]:
    """Take a broker out of every ISR that has another member, and from every leadership."""
    slice_ = isr_without(image, broker_id, context, slice_size, is_another_process=True)
    return ControllerResult(slice_.records, None, again=not slice_.complete)


def _gone(image: MetadataImage, context: ControllerContext, broker_id: int) -> ControllerResult[None]:
    """A broker has no registration any more."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return ControllerResult([], None)
    without = _without(image, context, broker_id)
    context.heartbeats.forget(broker_id)
    record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch)
    return without._replace(records=[*without.records, *([] if without.again else [versioned(record)])])


def _electing(named: Sequence[TopicPartition]) -> Handler:
    topics: dict[str, ElectLeadersTopic] = {}
    for topic, number in named:
        topics.setdefault(topic, ElectLeadersTopic(topic=topic)).partitions.append(number)
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=list(topics.values()))
    return lambda image, context: handle_elect_leaders(image, request, context)


def _moving(moves: Sequence[tuple[TopicPartition, Sequence[int]]]) -> Handler:
    topics: dict[str, ReassignableTopic] = {}
    for (topic, number), replicas in moves:
        asked = topics.setdefault(topic, ReassignableTopic(name=topic))
        asked.partitions.append(ReassignablePartition(partition_index=number, replicas=list(replicas)))
    request = AlterPartitionReassignmentsRequest(topics=list(topics.values()))

    def move(image: MetadataImage, context: ControllerContext) -> ControllerResult[AlterPartitionReassignmentsResponse]:
        result = handle_alter_partition_reassignments(image, request, context)
        refused = [
            f"{topic.name}-{each.partition_index}: {each.error_message or ErrorCode(each.error_code).name}"
            for topic in result.response.responses
            for each in topic.partitions
            if each.error_code
        ]
        if refused:
            logger.warning(
                "a reassignment that was asked for in ZooKeeper is refused for %d of %d partitions, the first is %s",
                len(refused),
                len(moves),
                refused[0],
            )
        return result

    return move
