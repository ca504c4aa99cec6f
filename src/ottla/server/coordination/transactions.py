"""The transaction coordinator in this broker: a coordinator host on `__transaction_state`.

The package `coordinator.transaction` is loaded when this broker first coordinates a partition of the topic or serves a
request for a transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.kafka.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.coordinator.runtime import CoordinatorTimer
from ottla.metadata.publisher import MetadataPublisher
from ottla.server.coordination.coordinator_host import BrokerServices, CoordinatorHost
from ottla.server.coordination.internal_topic import InternalTopic
from ottla.timeline import SnapshotRegistry

if TYPE_CHECKING:
    from ottla.coordinator.transaction.context import ProducerIds
    from ottla.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla.coordinator.transaction.markers import MarkerChannel
    from ottla.coordinator.transaction.shard import TransactionShard
    from ottla.server.coordination.transaction_shards import TransactionShards

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


class TransactionCoordination(CoordinatorHost["TransactionShard"]):
    """Shards with transactional ids; request handlers use `coordinator`."""

    CODE = "ottla.server.coordination.transaction_shards"
    __slots__ = ("_make_shards", "_shards")

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

        def make_shards() -> TransactionShards:
            from ottla.server.coordination.transaction_shards import (  # imported here: many brokers have none
                TransactionShards,
            )

            return TransactionShards(
                config, host, publisher, producer_ids, markers, self.runtime, group_partition=group_partition
            )

        self._make_shards = make_shards
        self._shards: TransactionShards | None = None
        super().__init__(
            TRANSACTION_TOPIC,
            host,
            serde=lambda: self.shards.serde,
            make_shard=self._make_shard,
            compression="none",
            write_timeout_ms=WRITE_TIMEOUT_MS,
        )

    @property
    def shards(self) -> TransactionShards:
        """The factory of shards; the first use loads the coordinator."""
        if self._shards is None:
            self._shards = self._make_shards()
        return self._shards

    @property
    def coordinator(self) -> TransactionCoordinator:
        """The coordinator for request handlers."""
        return self.shards.coordinator

    def _make_shard(self, partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer) -> TransactionShard:
        return self.shards.make(partition, registry, timer)
