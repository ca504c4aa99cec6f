"""Shards with share partitions, and the share coordinator; loaded when this broker first coordinates one."""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.config.broker_configs import BrokerConfig
from ottla.coordinator.runtime import CoordinatorRuntime, CoordinatorTimer
from ottla.coordinator.share.config import ShareCoordinatorConfig
from ottla.coordinator.share.context import ShardContext
from ottla.coordinator.share.coordinator import ShareCoordinator
from ottla.coordinator.share.memory import ShareMemory
from ottla.coordinator.share.records import ShareRecordSerde
from ottla.coordinator.share.shard import ShareCoordinatorShard
from ottla.coordinator.share.statistics import ShareCoordinatorStatistics
from ottla.metadata.publisher import MetadataPublisher
from ottla.server.coordination.coordinator_host import BrokerServices
from ottla.timeline import SnapshotRegistry


def share_coordinator_config(config: BrokerConfig) -> ShareCoordinatorConfig:
    """The broker's `share.coordinator.*` settings."""
    return ShareCoordinatorConfig(
        updates_per_snapshot=config.get_int("share.coordinator.snapshot.update.records.per.snapshot"),
        cold_snapshot_interval_ms=config.get_int("share.coordinator.cold.partition.snapshot.interval.ms"),
        prune_interval_ms=config.get_int("share.coordinator.state.topic.prune.interval.ms"),
        max_bytes=config.get_int("share.coordinator.max.bytes"),
    )


class ShareShards:
    """Creates the shards of `runtime`, with the settings and the memory limit that they share."""

    __slots__ = ("_context", "_runtime", "coordinator", "serde")

    def __init__(
        self,
        config: BrokerConfig,
        host: BrokerServices,
        publisher: MetadataPublisher,
        runtime: CoordinatorRuntime[ShareCoordinatorShard],
        *,
        prune: Callable[[int, int], bool],
    ) -> None:
        """`prune(partition, offset)` deletes the records below an offset; see `ShardContext`."""
        settings = share_coordinator_config(config)
        clock = host.node_runtime.clock
        self._runtime = runtime
        statistics = ShareCoordinatorStatistics()
        self._context = ShardContext(
            config=settings,
            image=lambda: publisher.image,
            clock=clock,
            memory=ShareMemory(lambda: settings.max_bytes, clock, self._held_bytes),
            prune=prune,
            statistics=statistics,
        )
        self.serde = ShareRecordSerde()
        self.coordinator = ShareCoordinator(runtime, statistics, clock=clock, scheduler=host.node_runtime.scheduler)

    def make(self, partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer) -> ShareCoordinatorShard:
        """The empty shard of a partition."""
        return ShareCoordinatorShard(self._context, partition, registry, timer)

    def _held_bytes(self) -> int:
        return sum(shard.held_bytes for _, shard in self._runtime.active_shards())
