"""The group coordinator in this broker: a coordinator host on `__consumer_offsets`.

The package `coordinator.group` is loaded when this broker first coordinates a partition of the topic or serves a
request for a group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.kafka.internal_topics import GROUP_METADATA_TOPIC
from ottla.coordinator.runtime import CoordinatorTimer
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage, share_groups_enabled
from ottla.metadata.publisher import MetadataPublisher
from ottla.record.compression import CODEC_NAMES
from ottla.server.coordination.coordinator_host import BrokerServices, CoordinatorHost
from ottla.server.coordination.internal_topic import InternalTopic
from ottla.server.transactions.transaction_partitions import TransactionPartitions
from ottla.timeline import SnapshotRegistry

if TYPE_CHECKING:
    from ottla.common.kafka.share_state import SharePersister
    from ottla.coordinator.group.coordinator import GroupCoordinator
    from ottla.coordinator.group.shard import GroupCoordinatorShard
    from ottla.server.coordination.group_shards import GroupShards
    from ottla.server.coordination.log_ends import LogEnds
    from ottla.server.coordination.share_groups import ShareGroupService

OFFSETS_TOPIC = InternalTopic(
    GROUP_METADATA_TOPIC,
    partitions="offsets.topic.num.partitions",
    replication_factor="offsets.topic.replication.factor",
    configs=lambda config: {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
    },
)


class GroupCoordination(CoordinatorHost["GroupCoordinatorShard"]):
    """Shards with groups; request handlers use `coordinator`."""

    CODE = "ottla.server.coordination.group_shards"
    __slots__ = (
        "_config",
        "_host",
        "_log_ends",
        "_new_partitions",
        "_publisher",
        "_shards",
        "_share_groups",
        "persister",
    )

    def __init__(
        self,
        config: BrokerConfig,
        host: BrokerServices,
        publisher: MetadataPublisher,
        transactions: TransactionPartitions | None = None,
        *,
        persister: Callable[[], SharePersister],
        log_ends: Callable[[], LogEnds],
    ) -> None:
        """`transactions` verifies those that commit offsets; `persister` returns the access to share coordinators,
        `log_ends` that to high watermarks, both for share groups."""
        self._config = config
        self._new_partitions = config.get_int(OFFSETS_TOPIC.partitions)
        self._host = host
        self._publisher = publisher
        self._shards: GroupShards | None = None
        self._share_groups: ShareGroupService | None = None
        self.persister = persister
        self._log_ends = log_ends
        super().__init__(
            OFFSETS_TOPIC,
            host,
            serde=lambda: self.shards.serde,
            make_shard=self._make_shard,
            compression=CODEC_NAMES[config.get_int("offsets.topic.compression.codec")],
            write_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
            transactions=transactions,
        )

    @property
    def shards(self) -> GroupShards:
        """The factory of shards; the first use loads the coordinator."""
        if self._shards is None:
            from ottla.server.coordination.group_shards import GroupShards  # imported here: many brokers have no groups

            self._shards = GroupShards(self._config, self._host, self._publisher, self.runtime)
        return self._shards

    @property
    def coordinator(self) -> GroupCoordinator:
        """The coordinator for request handlers."""
        return self.shards.coordinator

    @property
    def share_groups(self) -> ShareGroupService:
        """Share groups for request handlers; the first use loads them."""
        if self._share_groups is None:
            from ottla.coordinator.group.share_operations import ShareGroupOperations  # imported here, as above
            from ottla.server.coordination.share_groups import ShareGroupService

            self._share_groups = ShareGroupService(
                self.coordinator,
                ShareGroupOperations(self.runtime),
                self.persister(),
                image=lambda: self._publisher.image,
                end_offsets=self._log_ends().find,
                scheduler=self._host.node_runtime.scheduler,
                failures=self._host.failures,
            )
        return self._share_groups

    def _make_shard(
        self, _partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer
    ) -> GroupCoordinatorShard:
        return self.shards.make(registry, timer)

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` of a group, even before the topic exists.

        A transaction may need it before any client has looked up the group's coordinator.
        """
        return self.partition_of(group_id, self.runtime.partition_count or self._new_partitions)

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed broker settings."""
        self._config = config
        if self._shards is not None:
            self._shards.use_config(config)

    def follow(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Notify the shards of created, extended and deleted topics, too."""
        super().follow(image, changes)
        if self._shards is None:
            return
        changed = frozenset(
            [*(topic.name for topic, _ in changes.changed_partitions), *(t.name for t in changes.deleted_topics)]
        )
        deleted = [(topic.name, topic.topic_id) for topic in changes.deleted_topics]
        if changed or deleted:
            self._shards.coordinator.image_changed(changed, deleted)
        if deleted and share_groups_enabled(image):
            self.share_groups.topics_deleted(frozenset(topic_id for _, topic_id in deleted))

    def stop(self) -> None:
        """Answer waiting requests, and cancel requests to share coordinators."""
        super().stop()
        if self._share_groups is not None:
            self._share_groups.close()
