"""Shards with transactional ids, and the transaction coordinator; loaded when this broker first coordinates one."""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.config.broker_configs import BrokerConfig
from ottla.coordinator.runtime import CoordinatorRuntime, CoordinatorTimer
from ottla.coordinator.transaction.config import TransactionCoordinatorConfig
from ottla.coordinator.transaction.context import ProducerIds, ShardContext
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.markers import MarkerChannel
from ottla.coordinator.transaction.memory import MemoryUsage, TransactionMemory, total
from ottla.coordinator.transaction.records import TransactionRecordSerde
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.metadata.image import transaction_version
from ottla.metadata.publisher import MetadataPublisher
from ottla.server.coordination.coordinator_host import BrokerServices
from ottla.timeline import SnapshotRegistry


def transaction_coordinator_config(config: BrokerConfig) -> TransactionCoordinatorConfig:
    """The broker's `transaction.*` and `transactional.id.*` settings."""
    return TransactionCoordinatorConfig(
        transaction_max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
        transactional_id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
        transaction_abort_timed_out_transaction_cleanup_interval_ms=config.get_int(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        ),
        transaction_remove_expired_transaction_cleanup_interval_ms=config.get_int(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        ),
        max_bytes=config.get_int("transaction.coordinator.max.bytes"),
    )


class TransactionShards:
    """Creates the shards of `runtime`, with the settings and the memory limits that they share."""

    __slots__ = ("_context", "_runtime", "coordinator", "serde")

    def __init__(
        self,
        config: BrokerConfig,
        host: BrokerServices,
        publisher: MetadataPublisher,
        producer_ids: ProducerIds,
        markers: MarkerChannel,
        runtime: CoordinatorRuntime[TransactionShard],
        *,
        group_partition: Callable[[str], int],
    ) -> None:
        """`group_partition(group id)` is the group's partition of `__consumer_offsets`."""
        settings = transaction_coordinator_config(config)
        clock = host.node_runtime.clock
        self._runtime = runtime
        context = self._context = ShardContext(
            config=lambda: settings,
            transaction_version=lambda: transaction_version(publisher.image),
            clock=clock,
            producer_ids=producer_ids,
            markers=markers,
            memory=TransactionMemory(lambda: settings.max_bytes, clock, self._held),
            writes=lambda: runtime,
        )
        self.serde = TransactionRecordSerde(context.transaction_version)
        self.coordinator = TransactionCoordinator(
            runtime,
            context,
            image=lambda: publisher.image,
            group_partition=group_partition,
            scheduler=host.node_runtime.scheduler,
        )

    def make(self, partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer) -> TransactionShard:
        """The empty shard of a partition."""
        return TransactionShard(self._context, partition, registry, timer)

    def _held(self) -> MemoryUsage:
        return total(shard.held for _, shard in self._runtime.active_shards())
