"""The transaction coordinator in this broker: a coordinator host on `__transaction_state`."""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.kafka.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.coordinator.runtime import CoordinatorTimer
from ottla.coordinator.transaction.config import TransactionCoordinatorConfig
from ottla.coordinator.transaction.context import ProducerIds, ShardContext
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.markers import MarkerChannel
from ottla.coordinator.transaction.memory import MemoryUsage, TransactionMemory, total
from ottla.coordinator.transaction.records import TransactionRecordSerde
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.metadata.image import transaction_version
from ottla.metadata.publisher import MetadataPublisher
from ottla.server.coordination.coordinator_host import BrokerServices, CoordinatorHost
from ottla.server.coordination.internal_topic import InternalTopic
from ottla.timeline import SnapshotRegistry

TRANSACTION_TOPIC = InternalTopic(
    TRANSACTION_STATE_TOPIC,
    partitions="transaction.state.log.num.partitions",
    replication_factor="transaction.state.log.replication.factor",
    configs=lambda config: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config.get_int("transaction.state.log.min.isr")),
        "segment.bytes": str(config.get_int("transaction.state.log.segment.bytes")),
        "unclean.leader.election.enable": "false",
    },
)

WRITE_TIMEOUT_MS = 5_000
"""Maximum wait for the replication of a request's record; a decision stays, and the client retries."""


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


class TransactionCoordination(CoordinatorHost[TransactionShard]):
    """Shards with transactional ids; request handlers use `coordinator`."""

    __slots__ = ("_context", "coordinator")

    def __init__(
        self,
        config: BrokerConfig,
        host: BrokerServices,
        publisher: MetadataPublisher,
        producer_ids: ProducerIds,
        markers: MarkerChannel,
        *,
        group_partition: Callable[[str], int],
    ) -> None:
        """`group_partition(group id)` is the group's partition of `__consumer_offsets`."""
        settings = transaction_coordinator_config(config)
        context = self._context = ShardContext(
            config=lambda: settings,
            transaction_version=lambda: transaction_version(publisher.image),
            clock=host.node_runtime.clock,
            producer_ids=producer_ids,
            markers=markers,
            memory=TransactionMemory(lambda: settings.max_bytes, host.node_runtime.clock, self._held),
            writes=lambda: self.runtime,
        )
        super().__init__(
            TRANSACTION_TOPIC,
            host,
            serde=TransactionRecordSerde(context.transaction_version),
            make_shard=self._make_shard,
            compression="none",
            write_timeout_ms=WRITE_TIMEOUT_MS,
        )
        self.coordinator = TransactionCoordinator(
            self.runtime,
            context,
            image=lambda: publisher.image,
            group_partition=group_partition,
            scheduler=host.node_runtime.scheduler,
        )

    def _make_shard(self, partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer) -> TransactionShard:
        return TransactionShard(self._context, partition, registry, timer)

    def _held(self) -> MemoryUsage:
        return total(shard.held for _, shard in self.runtime.active_shards())
