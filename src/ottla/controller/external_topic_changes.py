"""Topics and partitions that tools write into ZooKeeper's tree beside a running controller.

Apache Kafka's tools worked like that before 3.0: `kafka-topics --zookeeper` writes settings, then
`/brokers/topics/TOPIC`, and adds partitions by writing that znode again. Each topic's znode is watched, and read while
this controller has no pending writes: if it then differs from the image, the change is external.

- An unknown topic is created, and unknown partitions are added, with their assignments.
- Other changes are overwritten. (In Apache Kafka the next controller adopts them.) Replicas are moved by
  `/admin/reassign_partitions`, and old tools drop the topic's id, by which brokers know their data.

Left out: settings that tools change, and deletions, which have a znode of their own (`znode_requests`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ProtocolError
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.generation import Generation
from ottla.controller.driver import Controller
from ottla.controller.result import ControllerContext, ControllerResult
from ottla.controller.znode_requests import note_refusal
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.metadata.log import LeaderAndEpoch
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.metadata.snapshot import partition_record
from ottla.protocol.messages.metadata_records import ConfigRecord, TopicRecord
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.configs import decode_config
from ottla.protocol.znodes.operations import SetData, Znode
from ottla.protocol.znodes.session import ZooKeeperError, ZooKeeperSession
from ottla.protocol.znodes.topics import Assignment, TopicAssignment, encode_topic
from ottla.zookeeper.log import ZooKeeperLog
from ottla.zookeeper.reading import assigned_topic, assignment_of, never_led

logger = logging.getLogger(__name__)


TOPICS_AT_ONCE = 256
"""Maximum number of concurrent reads when a controller starts."""


class ExternalTopicChanges:
    """Watches topics while this node's controller is active; a `LeadershipListener`, notified after the controller."""

    __slots__ = ("_asked", "_controller", "_due", "_generation", "_log", "_session", "_waits", "_watches")

    def __init__(self, session: ZooKeeperSession, log: ZooKeeperLog, controller: Controller) -> None:
        self._session = session
        self._log = log
        self._controller = controller
        self._generation = Generation()
        self._watches: dict[str, object] = {}
        """The valid watch of each topic: the one of its last read."""
        self._due: dict[str, None] = {}
        """Topics to read, in this order."""
        self._asked = 0
        self._waits = False

    def on_leader_change(self, _leader: LeaderAndEpoch, active: bool) -> None:
        """See `LeadershipListener`."""
        self._generation.renew()
        self._watches.clear()
        self._due.clear()
        self._asked = 0
        self._waits = False
        if active:
            self._look()

    def _look(self) -> None:
        self._session.children(
            paths.BROKER_TOPICS, self._generation.during(self._listed), self._generation.during(self._look)
        )

    def _listed(self, names: list[str] | None, error: ZooKeeperError | None) -> None:
        if names is None:
            self._log.restart_term(error)
            return
        self._due.update((name, None) for name in sorted(names) if name not in self._watches)
        self._read()

    def _changed(self, name: str, watch: object) -> None:
        if self._watches.get(name) is watch:
            self._due[name] = None
            self._read()

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        while self._due and self._asked < TOPICS_AT_ONCE:
            if not self._log.settled:
                self._wait()
                return
            name = next(iter(self._due))
            del self._due[name]
            watch = self._watches[name] = object()
            self._asked += 1
            seen, changed = partial(self._seen, name), partial(self._changed, name, watch)
            self._session.get(paths.topic(name), self._generation.during(seen), self._generation.during(changed))

    def _wait(self) -> None:
        """Wait until pending writes are complete."""
        if not self._waits:
            self._waits = True
            self._log.write((), self._generation.during(self._written))

    def _written(self, error: BaseException | None) -> None:
        self._waits = False
        if error is None:
            self._read()

    def _seen(self, name: str, node: Znode | None, error: ZooKeeperError | None) -> None:
        self._asked -= 1
        if error is not None:
            self._log.restart_term(error)
            return
        if node is None:
            self._watches.pop(name, None)  # it is listed when it is created again
        elif not self._log.settled:
            # Responses arrive in call order: the data is complete only if no write was pending before and after it.
            self._due[name] = None
        else:
            self._compare(name, node)
        self._read()

    def _compare(self, name: str, node: Znode) -> None:
        try:
            found = assigned_topic(name, node)
        except ProtocolError as failure:
            logger.error("ignoring an external change of a topic znode: %s", failure)
            return
        topic = self._log.latest.topics.get(name)
        if topic is None:
            path = paths.entity(paths.CONFIG_TOPICS, name)
            self._session.get(path, self._generation.during(partial(self._settings, name, found, path)))
            return
        known = {number: assignment_of(each) for number, each in topic.partitions.items()}
        held = TopicAssignment(topic.topic_id, known)
        more = {number: each for number, each in found.partitions.items() if number not in known}
        if more:
            self._run(partial(_grown, name=name, topic_id=topic.topic_id, more=more))
        elif found != held:
            logger.warning("overwriting an external change of the znode of topic %s", name)
            self._log.write([[SetData(paths.topic(name), encode_topic(held))]], lambda _error: None)

    def _settings(
        self, name: str, found: TopicAssignment, path: str, node: Znode | None, error: ZooKeeperError | None
    ) -> None:
        """Read the settings of an unknown topic; tools write them before the topic."""
        if error is not None:
            self._log.restart_term(error)
        elif not self._log.settled:
            self._due[name] = None
            self._read()
        else:
            try:
                values = {} if node is None else decode_config(path, node.data)
            except ProtocolError as failure:
                logger.error("ignoring an external change of a topic znode: %s", failure)
                return
            self._log.learn(paths.topic(name))
            if node is not None:
                self._log.learn(path)
            self._run(partial(_created, name=name, found=found, values=values))

    # -- operations ----------------------------------------------------------------------------------------------------

    def _run(self, operation: Callable[[MetadataImage, ControllerContext], ControllerResult[None]]) -> None:
        self._controller.submit(operation, note_refusal)


def _created(
    image: MetadataImage, context: ControllerContext, name: str, found: TopicAssignment, values: Mapping[str, str]
) -> ControllerResult[None]:
    if name in image.topics:
        return ControllerResult([], None)
    topic_id = found.topic_id
    if topic_id is None or topic_id in image.topics_by_id:
        topic_id = context.new_uuid()
    logger.info("creating topic %s, which was written to ZooKeeper outside the controller", name)
    records = [versioned(TopicRecord(name=name, topic_id=topic_id))]
    records += (
        versioned(ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=name, name=key, value=value))
        for key, value in values.items()
    )
    return ControllerResult([*records, *_partitions(image, topic_id, found.partitions)], None)


def _grown(
    image: MetadataImage, _context: ControllerContext, name: str, topic_id: Uuid, more: Mapping[int, Assignment]
) -> ControllerResult[None]:
    topic = image.topics_by_id.get(topic_id)
    if topic is None or topic.partitions.keys() & more.keys():
        return ControllerResult([], None)  # the topic was deleted meanwhile, or has the partitions
    logger.info("adding %d partitions to topic %s, written to ZooKeeper outside the controller", len(more), name)
    return ControllerResult(list(_partitions(image, topic_id, more)), None)


def _partitions(image: MetadataImage, topic_id: Uuid, assigned: Mapping[int, Assignment]) -> list[ApiMessageAndVersion]:
    """Return records with the first live replica as leader, as in Apache Kafka; without one, the first that
    registers."""
    records = []
    for number, each in assigned.items():
        partition = never_led(each)
        alive = tuple(broker_id for broker_id in each.replicas if _is_active(image, broker_id))
        if alive:
            partition = PartitionImage(
                each.replicas,
                isr=alive,
                leader=alive[0],
                leader_epoch=0,
                partition_epoch=0,
                adding_replicas=each.adding,
                removing_replicas=each.removing,
            )
        records.append(versioned(partition_record(topic_id, number, partition)))
    return records


def _is_active(image: MetadataImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.active
