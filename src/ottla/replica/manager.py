"""All partitions that this broker holds, kept in step with the metadata image.

The manager owns the set: `apply` is called for each published image with what changed, creates and removes logs, and
tells partitions who leads. A lookup for produce or fetch is two dictionary reads, by name or by id alike. A partition
begins with the high watermark of `replication-offset-checkpoint`, which the log manager reads and writes.

Left out: what an image is made of and how it is published (metadata), where logs come from (storage).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from ottla.common.clock import BlockingPool
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid
from ottla.common.logs import RATE_LIMITED
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.replica.fetch_session import TopicKey
from ottla.replica.partition import HighWatermarkListener, Partition, PartitionState
from ottla.replica.purgatory import Purgatory
from ottla.storage.append_rules import PRODUCER_CODEC
from ottla.storage.log_config import LogConfig
from ottla.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

TopicProperties = Callable[[Mapping[str, str]], Mapping[str, str]]
"""A topic's overrides to its effective settings (`BrokerConfig.topic_properties`)."""


class ReplicaManager:
    """The partitions of one broker."""

    __slots__ = (
        "_image",
        "_listeners",
        "_logs",
        "_node_id",
        "_pool",
        "_purgatory",
        "_topic_properties",
        "_topics",
        "_unopened",
        "inspected_topics",
    )

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        purgatory: Purgatory,
        pool: BlockingPool,
        topic_properties: TopicProperties,
    ) -> None:
        self._node_id = node_id
        self._logs = logs
        self._purgatory = purgatory
        self._pool = pool
        self._topic_properties = topic_properties
        self._image = MetadataImage()
        self._topics: dict[TopicKey, dict[int, Partition]] = {}
        """Each topic's partitions under its name and under its id: both keys share one dictionary."""
        self._listeners: dict[str, HighWatermarkListener] = {}
        self._unopened: dict[tuple[Uuid, int], None] = {}
        """Partitions that belong here but whose log could not be opened, in the order of the attempts."""
        self.inspected_topics: dict[TopicKey, None] = {}
        """Topics, by name and by id, whose settings may make an append decompress or compress."""

    # --- lookup ----------------------------------------------------------------------------------------------------

    def find(self, topic: TopicKey, index: int) -> Partition:
        """The partition by topic name or id. Raises KafkaError when it is not here."""
        partitions = self._topics.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        raise self._missing(topic, index)

    def _missing(self, topic: TopicKey, index: int) -> KafkaError:
        known = self._image.topic(topic) if isinstance(topic, str) else self._image.topic_by_id(topic)
        if known is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if isinstance(topic, str) else ErrorCode.UNKNOWN_TOPIC_ID
            return KafkaError(code)
        partition = known.partitions.get(index)
        if partition is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._node_id in partition.replicas:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def log_config(self, topic: TopicKey, index: int) -> LogConfig | None:
        """The settings of a log that is here, None otherwise."""
        partition = self._topics.get(topic, {}).get(index)
        return None if partition is None else partition.log.config

    def partitions(self) -> Iterator[Partition]:
        """All partitions here, by topic as created and by number."""
        for topic, partitions in self._topics.items():
            if isinstance(topic, str):
                yield from partitions.values()

    def listen(self, topic: str, listener: HighWatermarkListener) -> None:
        """Tell `listener` of every rise of a high watermark in the topic of that name, also of partitions to come."""
        self._listeners[topic] = listener
        for partition in self._topics.get(topic, {}).values():
            partition.high_watermark_listener = listener

    # --- metadata --------------------------------------------------------------------------------------------------

    def set_strays_aside(self, image: MetadataImage) -> None:
        """Rename logs of topics that the cluster does not have: a deletion that a crash cut short, or foreign data.

        They would stand in the way of a new topic of that name. Nothing is removed: that is the operator's to decide.
        """
        for log in self._logs.logs():
            topic = image.topic(log.topic)
            known = topic is not None and log.partition in topic.partitions
            if known and log.topic_id in (None, topic.topic_id if topic is not None else None):
                continue
            try:
                directory = self._logs.set_aside(log.topic, log.partition)
            except KafkaError as error:
                logger.error("%s", error)
                continue
            logger.warning("%s belongs to no topic of this cluster; its data is kept in %s", log.name, directory)

    def apply(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Follow one step of the metadata, the first of which names everything there is."""
        self._image = image
        for topic in changes.deleted_topics:
            self._remove(topic)
        for topic, index in changes.changed_partitions:
            self._update(image, topic, index)
        for resource in changes.changed_configs:
            if resource.type == resource.type.TOPIC:
                self._reconfigure(image, resource.name)

    def use_topic_properties(self, topic_properties: TopicProperties) -> None:
        """The broker's own settings changed, and with them the defaults of topics."""
        self._topic_properties = topic_properties
        for topic in self._image.topics:
            self._reconfigure(self._image, topic)

    def _reconfigure(self, image: MetadataImage, topic: str) -> None:
        partitions = self._topics.get(topic)
        if partitions:
            config = self._log_config(image, topic)
            for partition in partitions.values():
                partition.log.config = config
            self._note_inspection(image.topics[topic], config)

    def _note_inspection(self, topic: TopicImage, config: LogConfig) -> None:
        for key in (topic.name, topic.topic_id):
            if config.compacted or config.compression_type != PRODUCER_CODEC:
                self.inspected_topics[key] = None
            else:
                self.inspected_topics.pop(key, None)

    def _log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        return LogConfig.from_properties(self._topic_properties(image.topic_configs(topic)))

    def _update(self, image: MetadataImage, topic: TopicImage, index: int) -> None:
        state = topic.partitions[index]
        if self._node_id not in state.replicas:
            return
        partitions = self._topics.get(topic.topic_id)
        if partitions is None:
            partitions = {}
            self._topics[topic.name] = self._topics[topic.topic_id] = partitions
        partition = partitions.get(index)
        if partition is None:
            partition = self._create(image, topic, index)
            if partition is None:
                return
            partitions[index] = partition
        partition.update_state(_partition_state(state))

    def _create(self, image: MetadataImage, topic: TopicImage, index: int) -> Partition | None:
        config = self._log_config(image, topic.name)
        try:
            log = self._logs.create_log(topic.name, index, topic.topic_id, config)
        except KafkaError as error:
            logger.error(
                "%s-%d: the log can't be opened, the partition is offline: %s",
                topic.name,
                index,
                error,
                extra=RATE_LIMITED,
            )
            self._unopened[topic.topic_id, index] = None
            return None
        self._unopened.pop((topic.topic_id, index), None)
        self._note_inspection(topic, config)
        high_watermark = self._logs.checkpointed_high_watermark(topic.name, index) or 0
        partition = Partition(
            topic.name, index, topic.topic_id, log, self._node_id, self._purgatory, self._pool, high_watermark
        )
        partition.high_watermark_listener = self._listeners.get(topic.name)
        return partition

    def open_missing(self) -> None:
        """Try again what could not be opened: a full disk may have space by now. Called now and then."""
        for topic_id, index in list(self._unopened):
            topic = self._image.topic_by_id(topic_id)
            if topic is None:
                del self._unopened[topic_id, index]
            else:
                self._update(self._image, topic, index)

    def _remove(self, topic: TopicImage) -> None:
        partitions = self._topics.pop(topic.topic_id, None)
        if partitions is None:
            return
        if self._topics.get(topic.name) is partitions:
            del self._topics[topic.name]
            self.inspected_topics.pop(topic.name, None)
        self.inspected_topics.pop(topic.topic_id, None)
        for partition in partitions.values():
            partition.stop()
            try:
                self._logs.delete_log(topic.name, partition.index)
            except KafkaError as error:
                logger.error("%s", error)


def _partition_state(image: PartitionImage) -> PartitionState:
    return PartitionState(image.leader, image.leader_epoch, image.partition_epoch, image.replicas, image.isr)
