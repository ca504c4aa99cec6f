"""The group coordinator in this broker: a coordinator host on `__consumer_offsets`."""

from __future__ import annotations

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.kafka.internal_topics import GROUP_METADATA_TOPIC
from ottla.coordinator.group.config import GroupCoordinatorConfig
from ottla.coordinator.group.context import ShardContext
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.member_memory import MemberMemory
from ottla.coordinator.group.records import GroupRecordSerde
from ottla.coordinator.group.shard import GroupCoordinatorShard
from ottla.coordinator.runtime import CoordinatorTimer
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.record.compression import CODEC_NAMES
from ottla.server.coordination.coordinator_host import BrokerServices, CoordinatorHost
from ottla.server.coordination.internal_topic import InternalTopic
from ottla.server.transactions.transaction_partitions import TransactionPartitions
from ottla.timeline import SnapshotRegistry

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

_MINUTE_MS = 60_000


def group_coordinator_config(config: BrokerConfig) -> GroupCoordinatorConfig:
    """The broker's `group.*` and `offsets.*` settings."""
    return GroupCoordinatorConfig(
        group_min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        group_max_size=config.get_int("group.max.size"),
        group_member_max_bytes=config.get_int("group.coordinator.member.max.bytes"),
        group_max_bytes=config.get_int("group.coordinator.group.max.bytes"),
        groups_max_bytes=config.get_int("group.coordinator.max.bytes"),
        offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.get_int("offsets.retention.minutes") * _MINUTE_MS,
        offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
        group_consumer_session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
        group_consumer_heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
        group_consumer_assignment_interval_ms=config.get_int("group.consumer.assignment.interval.ms"),
        group_consumer_min_session_timeout_ms=config.get_int("group.consumer.min.session.timeout.ms"),
        group_consumer_max_session_timeout_ms=config.get_int("group.consumer.max.session.timeout.ms"),
        group_consumer_min_heartbeat_interval_ms=config.get_int("group.consumer.min.heartbeat.interval.ms"),
        group_consumer_max_heartbeat_interval_ms=config.get_int("group.consumer.max.heartbeat.interval.ms"),
        group_consumer_min_assignment_interval_ms=config.get_int("group.consumer.min.assignment.interval.ms"),
        group_consumer_max_assignment_interval_ms=config.get_int("group.consumer.max.assignment.interval.ms"),
        group_consumer_max_size=config.get_int("group.consumer.max.size"),
        group_consumer_assignors=config.get_list("group.consumer.assignors"),
        group_consumer_migration_policy=(config.get_str("group.consumer.migration.policy") or "").lower(),
        group_consumer_regex_refresh_interval_ms=config.get_int("group.consumer.regex.refresh.interval.ms"),
    )


class GroupCoordination(CoordinatorHost[GroupCoordinatorShard]):
    """Shards with groups; request handlers use `coordinator`."""

    __slots__ = ("_config", "_host", "_memory", "_new_partitions", "_publisher", "coordinator")

    def __init__(
        self,
        config: BrokerConfig,
        host: BrokerServices,
        publisher: MetadataPublisher,
        transactions: TransactionPartitions | None = None,
    ) -> None:
        """`transactions` verifies transactions that commit offsets."""
        self._config = group_coordinator_config(config)
        self._new_partitions = config.get_int(OFFSETS_TOPIC.partitions)
        self._host = host
        self._memory = MemberMemory(lambda: self._config, host.node_runtime.clock, self._held_bytes)
        self._publisher = publisher
        super().__init__(
            OFFSETS_TOPIC,
            host,
            serde=GroupRecordSerde(),
            make_shard=self._make_shard,
            compression=CODEC_NAMES[config.get_int("offsets.topic.compression.codec")],
            write_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
            transactions=transactions,
        )
        self.coordinator = GroupCoordinator(self.runtime, lambda: self._config, lambda: publisher.image)

    def _make_shard(
        self, _partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer
    ) -> GroupCoordinatorShard:
        return GroupCoordinatorShard(
            ShardContext(
                config=lambda: self._config,
                image=lambda: self._publisher.image,
                clock=self._host.node_runtime.clock,
                rng=self._host.node_runtime.rng,
                registry=registry,
                timer=timer,
                memory=self._memory,
            )
        )

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` of a group, even before the topic exists.

        A transaction may need it before any client has looked up the group's coordinator.
        """
        return self.partition_of(group_id, self.runtime.partition_count or self._new_partitions)

    def _held_bytes(self) -> int:
        return sum(shard.context.groups.held_bytes() for _, shard in self.runtime.active_shards())

    def use_config(self, config: BrokerConfig) -> None:
        """Nothing to do: shards read their settings at each use."""
        self._config = group_coordinator_config(config)

    def follow(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Notify the shards of created, extended and deleted topics, too."""
        super().follow(image, changes)
        changed = frozenset(
            [*(topic.name for topic, _ in changes.changed_partitions), *(t.name for t in changes.deleted_topics)]
        )
        deleted = [(topic.name, topic.topic_id) for topic in changes.deleted_topics]
        if changed or deleted:
            self.coordinator.image_changed(changed, deleted)
