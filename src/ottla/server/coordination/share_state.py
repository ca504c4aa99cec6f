"""The share coordinator in this broker: a coordinator host on `__share_group_state`.

This module is loaded when the cluster has the topic, or when share groups are first used. The package
`coordinator.share` is loaded when this broker first coordinates a partition of the topic or serves a request for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import KafkaError
from ottla.common.kafka.internal_topics import SHARE_GROUP_STATE_TOPIC
from ottla.coordinator.runtime import CoordinatorTimer
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.record.compression import CODEC_NAMES
from ottla.server.coordination.coordinator_host import BrokerServices, CoordinatorHost
from ottla.server.coordination.internal_topic import InternalTopic
from ottla.timeline import SnapshotRegistry

if TYPE_CHECKING:
    from ottla.coordinator.share.coordinator import ShareCoordinator
    from ottla.coordinator.share.shard import ShareCoordinatorShard
    from ottla.server.coordination.share_shards import ShareShards

SHARE_STATE_TOPIC = InternalTopic(
    SHARE_GROUP_STATE_TOPIC,
    partitions="share.coordinator.state.topic.num.partitions",
    replication_factor="share.coordinator.state.topic.replication.factor",
    configs=lambda config: {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": str(config.get_int("share.coordinator.state.topic.min.isr")),
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "segment.bytes": str(config.get_int("share.coordinator.state.topic.segment.bytes")),
    },
)


class ShareStateCoordination(CoordinatorHost["ShareCoordinatorShard"]):
    """Shards with share partitions; request handlers and the persister use `coordinator`."""

    CODE = "ottla.server.coordination.share_shards"
    __slots__ = ("_config", "_host", "_publisher", "_shards")

    def __init__(self, config: BrokerConfig, host: BrokerServices, publisher: MetadataPublisher) -> None:
        self._config = config
        self._host = host
        self._publisher = publisher
        self._shards: ShareShards | None = None
        super().__init__(
            SHARE_STATE_TOPIC,
            host,
            serde=lambda: self.shards.serde,
            make_shard=self._make_shard,
            compression=CODEC_NAMES[config.get_int("share.coordinator.state.topic.compression.codec")],
            write_timeout_ms=config.get_int("share.coordinator.write.timeout.ms"),
        )

    @property
    def shards(self) -> ShareShards:
        """The factory of shards; the first use loads the coordinator."""
        if self._shards is None:
            from ottla.server.coordination.share_shards import ShareShards  # imported here: many brokers have none

            self._shards = ShareShards(self._config, self._host, self._publisher, self.runtime, prune=self._prune)
        return self._shards

    @property
    def coordinator(self) -> ShareCoordinator:
        """The coordinator for request handlers."""
        return self.shards.coordinator

    def follow(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Delete the states of deleted topics, too."""
        super().follow(image, changes)
        deleted = frozenset(topic.topic_id for topic in changes.deleted_topics)
        if deleted and self._shards is not None:
            self._shards.coordinator.topics_deleted(deleted)

    def _make_shard(self, partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer) -> ShareCoordinatorShard:
        return self.shards.make(partition, registry, timer)

    def _prune(self, partition: int, offset: int) -> bool:
        """Delete the records below `offset`; False if this broker can't now: a later pass tries again."""
        try:
            self._replicas.find(SHARE_GROUP_STATE_TOPIC, partition).delete_records(offset)
        except KafkaError:
            return False
        return True
