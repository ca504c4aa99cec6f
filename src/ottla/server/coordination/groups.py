"""The group coordinator in this broker: its runtime on `__consumer_offsets`, kept in step with the metadata image.

A partition that this broker leads is loaded, one that it no longer leads is given up, in the order of the images. The
replicas have followed an image before it comes here, so that the log of a new partition is there.
"""

from __future__ import annotations

import gc

from ottla.common.broker_configs import BrokerConfig
from ottla.common.clock import BlockingPool, Clock, Rng, Scheduler
from ottla.coordinator.group.config import GroupCoordinatorConfig
from ottla.coordinator.group.context import ShardContext
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.member_memory import MemberMemory
from ottla.coordinator.group.records import GroupRecordSerde
from ottla.coordinator.group.shard import GroupCoordinatorShard
from ottla.coordinator.runtime import CoordinatorRuntime, CoordinatorTimer
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.topic_names import GROUP_METADATA_TOPIC
from ottla.record.compression import CODEC_NAMES
from ottla.replica.manager import ReplicaManager
from ottla.server.coordination.log import ReplicaCoordinatorLog
from ottla.server.failures import Failures
from ottla.server.in_flight import InFlight
from ottla.timeline import SnapshotRegistry

_MINUTE_MS = 60_000


def group_coordinator_config(config: BrokerConfig) -> GroupCoordinatorConfig:
    """The broker's settings `group.*` and `offsets.*`."""
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


class GroupCoordination:
    """Owner of the runtime; request handlers use `coordinator`."""

    __slots__ = ("_clock", "_config", "_memory", "_node_id", "_publisher", "_rng", "coordinator", "runtime")

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        rng: Rng,
        scheduler: Scheduler,
        pool: BlockingPool,
        publisher: MetadataPublisher,
        replicas: ReplicaManager,
        in_flight: InFlight,
        failures: Failures,
    ) -> None:
        self._config = group_coordinator_config(config)
        self._node_id = config.node_id
        self._clock = clock
        self._rng = rng
        self._memory = MemberMemory(lambda: self._config, clock, self._held_bytes)
        self._publisher = publisher
        self.runtime: CoordinatorRuntime[GroupCoordinatorShard] = CoordinatorRuntime(
            name=GROUP_METADATA_TOPIC,
            log=ReplicaCoordinatorLog(GROUP_METADATA_TOPIC, replicas, pool, in_flight),
            serde=GroupRecordSerde(),
            shard_factory=self._make_shard,
            clock=clock,
            scheduler=scheduler,
            failures=failures,
            compression=CODEC_NAMES[config.get_int("offsets.topic.compression.codec")],
            write_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
            # What was loaded stays until leadership goes: the collector need not look at it again and again.
            after_large_load=gc.freeze,
        )
        self.coordinator = GroupCoordinator(self.runtime, lambda: self._config, lambda: publisher.image)
        replicas.listen(GROUP_METADATA_TOPIC, self.runtime.high_watermark_updated)

    def _make_shard(
        self, _partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer
    ) -> GroupCoordinatorShard:
        return GroupCoordinatorShard(
            ShardContext(
                config=lambda: self._config,
                image=lambda: self._publisher.image,
                clock=self._clock,
                rng=self._rng,
                registry=registry,
                timer=timer,
                memory=self._memory,
            )
        )

    def _held_bytes(self) -> int:
        return sum(shard.context.groups.held_bytes() for _, shard in self.runtime.active_shards())

    def use_config(self, config: BrokerConfig) -> None:
        """Go on with these settings of the broker; shards ask for them at each use."""
        self._config = group_coordinator_config(config)

    def follow(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Load what this broker leads now, give up the rest, tell the shards of topics that came, grew or went."""
        if any(topic.name == GROUP_METADATA_TOPIC for topic in changes.deleted_topics):
            self.runtime.stop()
        groups = image.topic(GROUP_METADATA_TOPIC)
        if groups is not None:
            self.runtime.start(len(groups.partitions))
        for topic, index in changes.changed_partitions:
            if topic.name == GROUP_METADATA_TOPIC:
                partition = topic.partitions[index]
                if partition.leader == self._node_id:
                    self.runtime.become_leader(index, partition.leader_epoch)
                else:
                    self.runtime.resign(index, partition.leader_epoch)
        changed = frozenset(
            [*(topic.name for topic, _ in changes.changed_partitions), *(t.name for t in changes.deleted_topics)]
        )
        deleted = [(topic.name, topic.topic_id) for topic in changes.deleted_topics]
        if changed or deleted:
            self.coordinator.image_changed(changed, deleted)

    def stop(self) -> None:
        """Write what is pending and answer whoever waits: the coordinator moves."""
        self.runtime.stop()
