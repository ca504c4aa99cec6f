"""Shards with groups, and the group coordinator; loaded when this broker first coordinates groups."""

from __future__ import annotations

from ottla.common.config.broker_configs import BrokerConfig
from ottla.coordinator.group.config import GroupCoordinatorConfig
from ottla.coordinator.group.context import ShardContext
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.member_memory import MemberMemory
from ottla.coordinator.group.records import GroupRecordSerde
from ottla.coordinator.group.shard import GroupCoordinatorShard
from ottla.coordinator.runtime import CoordinatorRuntime, CoordinatorTimer
from ottla.metadata.publisher import MetadataPublisher
from ottla.server.coordination.coordinator_host import BrokerServices
from ottla.timeline import SnapshotRegistry

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
        group_share_session_timeout_ms=config.get_int("group.share.session.timeout.ms"),
        group_share_min_session_timeout_ms=config.get_int("group.share.min.session.timeout.ms"),
        group_share_max_session_timeout_ms=config.get_int("group.share.max.session.timeout.ms"),
        group_share_heartbeat_interval_ms=config.get_int("group.share.heartbeat.interval.ms"),
        group_share_min_heartbeat_interval_ms=config.get_int("group.share.min.heartbeat.interval.ms"),
        group_share_max_heartbeat_interval_ms=config.get_int("group.share.max.heartbeat.interval.ms"),
        group_share_assignment_interval_ms=config.get_int("group.share.assignment.interval.ms"),
        group_share_min_assignment_interval_ms=config.get_int("group.share.min.assignment.interval.ms"),
        group_share_max_assignment_interval_ms=config.get_int("group.share.max.assignment.interval.ms"),
        group_share_max_size=config.get_int("group.share.max.size"),
        group_share_initialize_retry_interval_ms=config.get_int("group.share.initialize.retry.interval.ms"),
    )


class GroupShards:
    """Creates the shards of `runtime`, with the settings and the memory limits that they share."""

    __slots__ = ("_clock", "_publisher", "_rng", "_runtime", "config", "coordinator", "memory", "serde")

    def __init__(
        self,
        config: BrokerConfig,
        host: BrokerServices,
        publisher: MetadataPublisher,
        runtime: CoordinatorRuntime[GroupCoordinatorShard],
    ) -> None:
        self.config = group_coordinator_config(config)
        self._clock = host.node_runtime.clock
        self._rng = host.node_runtime.rng
        self._publisher = publisher
        self._runtime = runtime
        self.serde = GroupRecordSerde()
        self.memory = MemberMemory(lambda: self.config, self._clock, self._held_bytes)
        self.coordinator = GroupCoordinator(runtime, lambda: self.config, lambda: publisher.image)

    def make(self, registry: SnapshotRegistry, timer: CoordinatorTimer) -> GroupCoordinatorShard:
        """An empty shard."""
        return GroupCoordinatorShard(
            ShardContext(
                config=lambda: self.config,
                image=lambda: self._publisher.image,
                clock=self._clock,
                rng=self._rng,
                registry=registry,
                timer=timer,
                memory=self.memory,
            )
        )

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed broker settings: shards read theirs at each use."""
        self.config = group_coordinator_config(config)

    def _held_bytes(self) -> int:
        return sum(shard.context.groups.held_bytes() for _, shard in self._runtime.active_shards())
