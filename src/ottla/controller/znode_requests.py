"""External requests in ZooKeeper's tree, as operations of the active controller.

Brokers come and go by their registrations, and tools request deletions, reassignments and preferred elections by
znodes. Each znode is read when this node becomes active, and whenever its watch fires; its contents pass through the
same handlers as client requests. A processed request is removed, whether it succeeded or not, as in Apache Kafka.

- A broker without a znode is gone, and its partitions get other leaders.
- A new registration is another process, which may lack unflushed records of its predecessor. Before it is registered,
  that id leaves every ISR that has another member and leads nothing, so each incarnation has its own leader epochs.
  Then the znode is rewritten unchanged: its version shows the next controller that this was done, even
  for brokers that register without a controller. Brokers that were present when this controller's term began are
  registered before any other decision, so that no request treats them as missing.
- The author of a request may know more brokers than this controller does yet. Brokers in the tree are registered first,
  since a rejected request is removed.
- A reassignment requested by a znode is removed once it has started: the topic records its progress.

Left out: topics and partitions (`external_topic_changes`), notifications of settings changed by tools, of ISRs and of
data directories (brokers of this version do not write those).
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
from ottla.controller.replication import isr_without
from ottla.controller.result import SLICE, ControllerContext, ControllerOperation, ControllerResult
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

_PARTITIONS_AT_ONCE = 1_000
"""Partitions of a request in one controller operation."""
_ALL = sys.maxsize
"""Partitions of a broker in one operation: later operations of the same term see the complete result."""


class ZnodeRequestWatcher:
    """Watches the tree while this node's controller is active; a `LeadershipListener`, notified after the
    controller."""

    __slots__ = ("_controller", "_generation", "_log", "_removed", "_session", "_watched")

    def __init__(self, session: ZooKeeperSession, log: ZooKeeperLog, controller: Controller) -> None:
        self._session = session
        self._log = log
        self._controller = controller
        self._generation = Generation()
        self._watched: set[str] = set()
        """Registrations with an active watch."""
        self._removed: set[str] = set()
        """Requests that are being removed: a request can be seen twice, but is removed once."""

    def on_leader_change(self, _leader: LeaderAndEpoch, active: bool) -> None:
        """See `LeadershipListener`."""
        self._generation.renew()
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
            paths.BROKER_IDS, self._generation.during(self._brokers), self._generation.during(self._look_at_brokers)
        )

    def _brokers(self, names: list[str] | None, error: ZooKeeperError | None) -> None:
        if names is None:
            self._log.restart_term(error)
            return
        gone = set(map(str, self._log.latest.brokers)) - set(names)
        for name in sorted(gone):
            self._run(partial(_unregistered, broker_id=int(name)))
        for name in sorted(names):
            if name not in self._watched:
                self._watched.add(name)
                path = f"{paths.BROKER_IDS}/{name}"
                seen = self._generation.during(partial(self._broker, name))
                self._session.get(path, seen, self._generation.during(partial(self._broker_changed, name)))

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
                logger.error("ignoring an undecodable broker registration: %s", failure)
                return
            registered = self._generation.during(partial(self._note_registered, f"{paths.BROKER_IDS}/{name}", node))
            self._controller.submit(partial(_registered, record=record), lambda _, error: registered(error))

    def _note_registered(self, path: str, node: Znode, error: BaseException | None) -> None:
        """Mark the registration for the next controller. A broker that left meanwhile is checked again anyway."""
        if error is not None:
            note_refusal(None, error)
            return
        self._controller.brokers_changed()
        if node.version == NEW:
            for call in batches([[SetData(path, node.data, node.version)]], self._log.epoch_version):
                self._session.multi(call, lambda _paths, _error: None)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _look_at_deletions(self) -> None:
        self._session.children(
            paths.DELETE_TOPICS,
            self._generation.during(self._deletions),
            self._generation.during(self._look_at_deletions),
        )

    def _deletions(self, names: list[str] | None, error: ZooKeeperError | None) -> None:
        if names is None:
            self._log.restart_term(error)
            return
        requested = sorted(name for name in names if name in self._log.latest.topics)
        for name in requested:
            self._log.learn(paths.deletion(name))
        if requested:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in requested])
            self._run(lambda image, context: handle_delete_topics(image, request, context))
        # Znodes that remain after that write were rejected, or name a missing topic.
        self._log.write((), self._written(self._generation.during(partial(self._refuse_deletions, names))))

    def _refuse_deletions(self, names: Sequence[str]) -> None:
        for name in names:
            path = f"{paths.DELETE_TOPICS}/{name}"
            self._session.get(path, self._generation.during(partial(self._remove, path)))

    def _look_at_reassignments(self) -> None:
        self._read_request(paths.REASSIGN_PARTITIONS, self._reassignment, self._look_at_reassignments)

    def _reassignment(self, node: Znode | None, error: ZooKeeperError | None) -> None:
        def moves(path: str, data: bytes) -> Iterable[tuple[TopicPartition, Sequence[int]]]:
            return decode_reassignment(path, data).items()

        self._process(paths.REASSIGN_PARTITIONS, node, error, "a reassignment", moves, _moving)

    def _look_at_elections(self) -> None:
        self._read_request(paths.PREFERRED_REPLICA_ELECTION, self._election, self._look_at_elections)

    def _election(self, node: Znode | None, error: ZooKeeperError | None) -> None:
        self._process(paths.PREFERRED_REPLICA_ELECTION, node, error, "an election", decode_partitions, _electing)

    def _read_request(self, path: str, process: Done[Znode], reread: Watch) -> None:
        """The author may have seen brokers that no watch has reported yet: register them first."""

        def seen(node: Znode | None, error: ZooKeeperError | None) -> None:
            if node is None:
                process(None, error)
            else:
                self._session.children(paths.BROKER_IDS, self._generation.during(listed))

        def listed(names: list[str] | None, error: ZooKeeperError | None) -> None:
            self._brokers(names, error)
            if names is not None:
                self._session.get(path, self._generation.during(process))  # answered after the registrations

        self._session.get(path, self._generation.during(seen), self._generation.during(reread))

    def _process(
        self,
        path: str,
        node: Znode | None,
        error: ZooKeeperError | None,
        kind: str,
        decode: Callable[[str, bytes], Iterable[T]],
        operation: Callable[[list[T]], ControllerOperation[Any]],
    ) -> None:
        """Process the request of a znode in pieces, and remove it; an undecodable one is only removed."""
        if error is not None:
            self._log.restart_term(error)
        elif node is not None:
            try:
                requested = iter(decode(path, node.data))
            except ProtocolError as failure:
                logger.error("rejected an undecodable request in ZooKeeper for %s: %s", kind, failure)
                requested = iter(())
            while some := list(islice(requested, _PARTITIONS_AT_ONCE)):
                self._run(operation(some))
            self._remove(path, node, None)

    def _remove(self, path: str, node: Znode | None, error: ZooKeeperError | None) -> None:
        """Remove a request after earlier writes; a request that was changed meanwhile is a new one."""
        if error is not None:
            self._log.restart_term(error)
        elif node is not None and path not in self._removed:
            self._removed.add(path)
            removed = self._generation.during(partial(self._removed.discard, path))
            self._log.write([[Delete(path, node.version)]], lambda _error: removed())

    # -- operations ----------------------------------------------------------------------------------------------------

    def _run(self, operation: ControllerOperation[Any]) -> None:
        self._controller.submit(operation, note_refusal)

    @staticmethod
    def _written(callback: Callable[[], None]) -> Callable[[BaseException | None], None]:
        return lambda error: callback() if error is None else None


def note_refusal(_response: object, error: BaseException | None) -> None:
    """Log a rejection. No caller waits for it; after the end of a term the next controller reads the tree again."""
    if isinstance(error, KafkaError):
        logger.info("rejected a request in ZooKeeper: %s", error)


def _registered(
    image: MetadataImage, context: ControllerContext, record: RegisterBrokerRecord, slice_size: int = SLICE
) -> ControllerResult[None]:
    """Register a broker that leads nothing of its predecessor, or update its registration."""
    existing = image.brokers.get(record.broker_id)
    if existing is None or existing.broker_epoch < record.broker_epoch:
        without = _without(image, context, record.broker_id, slice_size)
        context.heartbeats.forget(record.broker_id)
        return without._replace(records=[*without.records, *([] if without.again else [versioned(record)])])
    if existing.broker_epoch > record.broker_epoch:
        return ControllerResult([], None)
    record = copy.copy(record)  # the znode does not contain the shutdown state
    record.fenced, record.in_controlled_shutdown = existing.fenced, existing.in_controlled_shutdown
    delta = MetadataDelta(image)
    delta.replay(record)
    known = delta.apply(image.offset, image.epoch)[0].brokers[record.broker_id] == existing
    return ControllerResult([] if known else [versioned(record)], None)


def _without(
    image: MetadataImage, context: ControllerContext, broker_id: int, slice_size: int = SLICE
) -> ControllerResult[None]:
    """Remove a broker from every ISR that has another member, and from every leadership."""
    slice_ = isr_without(image, broker_id, context, slice_size, is_another_process=True)
    return ControllerResult(slice_.records, None, again=not slice_.complete)


def _unregistered(image: MetadataImage, context: ControllerContext, broker_id: int) -> ControllerResult[None]:
    """Unregister a broker without a znode."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return ControllerResult([], None)
    without = _without(image, context, broker_id)
    context.heartbeats.forget(broker_id)
    record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch)
    return without._replace(records=[*without.records, *([] if without.again else [versioned(record)])])


def _electing(named: Sequence[TopicPartition]) -> ControllerOperation[Any]:
    topics: dict[str, ElectLeadersTopic] = {}
    for topic, number in named:
        topics.setdefault(topic, ElectLeadersTopic(topic=topic)).partitions.append(number)
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=list(topics.values()))
    return lambda image, context: handle_elect_leaders(image, request, context)


def _moving(moves: Sequence[tuple[TopicPartition, Sequence[int]]]) -> ControllerOperation[Any]:
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
                "a reassignment requested in ZooKeeper was rejected for %d of %d partitions, the first is %s",
                len(refused),
                len(moves),
                refused[0],
            )
        return result

    return move
