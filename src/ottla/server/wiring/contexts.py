"""Contexts of a node: the dependencies of each handler package and of the dispatchers.

The context of a new handler package is created here; its APIs are added to `server.wiring.apis`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_def import ConfigResourceType
from ottla.common.platform.channel import Channel
from ottla.common.platform.shares import FairQueue
from ottla.metadata.image import MetadataImage
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.handlers.data.context import DataContext
from ottla.server.handlers.data.produce_transactions import TransactionGate
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.quorum.context import QuorumContext, ZooKeeperContext
from ottla.server.handlers.share.context import ShareContext
from ottla.server.handlers.share.partition_context import SharePartitionContext
from ottla.server.handlers.transactions.context import TransactionContext
from ottla.server.metadata.metadata_cache import MetadataCache
from ottla.server.metadata.topic_creation import MAX_REPLICATION_FACTOR, OnDemandCounts, TopicCreation
from ottla.server.requests.controller_requests import ControllerQueue
from ottla.server.requests.dispatch import DispatcherContext
from ottla.server.requests.off_loop_work import OffLoopWork
from ottla.server.requests.pool_share import PoolShare
from ottla.server.requests.request_limits import RequestLimits
from ottla.server.wiring.components import BrokerComponents

if TYPE_CHECKING:
    from ottla.server.handlers.telemetry.context import TelemetryContext

logger = logging.getLogger(__name__)


class Contexts:
    """One context per handler package."""

    __slots__ = (
        "admin",
        "data",
        "dispatcher",
        "groups",
        "quorum",
        "share",
        "share_partitions",
        "telemetry",
        "topics",
        "transactions",
        "zookeeper",
        "zookeeper_offsets",
    )

    def __init__(self, config: BrokerConfig, parts: BrokerComponents) -> None:
        control, node_runtime = parts.control, parts.node_runtime
        cluster_id = parts.logs.meta_properties.cluster_id
        metadata = MetadataCache(config.node_id, cluster_id, parts.publisher, control.metadata.log)
        limits = RequestLimits(parts.publisher)
        decisions = ControllerQueue(control.controller, parts.replicas)
        counts = OnDemandCounts(
            config.get_int("num.partitions"), min(config.get_int("default.replication.factor"), MAX_REPLICATION_FACTOR)
        )
        self.topics = TopicCreation(metadata, control.channel, parts.topic_arrivals, counts)
        parts.share_groups.topics = self.topics
        closed_listeners: list[Callable[[Channel], None]] = []
        self.dispatcher = DispatcherContext(
            clock=node_runtime.clock,
            purgatory=parts.purgatory,
            limits=limits,
            controller=control.channel,
            statistics=parts.statistics,
            failures=parts.failures,
            fair_queue=FairQueue(node_runtime.clock.monotonic, parts.scheduler),
            closed_listeners=closed_listeners,
        )
        self.data = _data_context(parts, metadata, limits)
        self.groups = GroupContext(
            config,
            groups=parts.groups,
            coordinations=parts.coordinations,
            share_coordination=lambda: parts.share_groups.coordination,
            metadata=metadata,
            topics=self.topics,
            failures=parts.failures,
        )
        self.transactions = TransactionContext(
            parts.transactions, parts.producer_ids, parts.marker_writer, limits.check_partition_count
        )
        self.share = ShareContext(metadata, parts.share_groups)
        self.admin = AdminContext(
            config,
            metadata=metadata,
            decisions=decisions,
            topics=self.topics,
            replicas=parts.replicas,
            logs=parts.logs,
            disk=node_runtime.disk,
            limits=limits,
            failures=parts.failures,
        )
        self.share_partitions = _share_partition_context(config, parts, metadata, limits, closed_listeners)
        quorum = control.metadata.quorum
        self.quorum = None if quorum is None else QuorumContext(quorum, decisions)
        reign = control.metadata.zookeeper
        self.zookeeper = (
            None if reign is None else ZooKeeperContext(config.inter_broker_listener, reign.service, decisions)
        )
        self.zookeeper_offsets = control.metadata.offsets
        self.telemetry: TelemetryContext | None = None
        """None where no receiver of client metrics exists."""

    def receive_telemetry(self, config: BrokerConfig, parts: BrokerComponents) -> None:
        """Receive client metrics (KIP-714)."""
        from ottla.server.handlers.telemetry.context import TelemetryContext  # imported here: few brokers need it

        self.telemetry = TelemetryContext(parts.node_runtime, parts.publisher, config.get_int("telemetry.max.bytes"))
        self.admin.keeps_software = True

    def warn_of_lost_client_metrics(self, image: MetadataImage) -> None:
        """Log a warning if clients are asked for metrics that this broker does not receive."""
        if self.telemetry is not None:
            return
        names = sorted(each.name for each in image.configs if each.type is ConfigResourceType.CLIENT_METRICS)
        if names:
            logger.warning(
                "client metrics subscription %s%s has no effect on this broker: start it with --metrics-port, and "
                "install ottla[telemetry]",
                names[0],
                f" and {len(names) - 1} more" if len(names) > 1 else "",
            )

    def use_limits(self, *, limited: bool) -> None:
        """Set whether any client has quotas that fetches must check."""
        self.data.has_quotas = limited

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed broker settings."""
        self.data.use_config(config)
        self.groups.use_config(config)
        self.share_partitions.use_config(config)
        self.admin.use_config(config)


def _share_partition_context(
    config: BrokerConfig,
    parts: BrokerComponents,
    metadata: MetadataCache,
    limits: RequestLimits,
    closed_listeners: list[Callable[[Channel], None]],
) -> SharePartitionContext:
    context = SharePartitionContext(
        config,
        services=parts.services,
        metadata=metadata,
        publisher=parts.publisher,
        purgatory=parts.purgatory,
        limits=limits,
        statistics=parts.statistics,
        registry=parts.registry,
        closed_listeners=closed_listeners,
        persister=lambda: parts.share_groups.persister,
    )
    context.dead_letters = parts.share_groups.dead_letters
    return context


def _data_context(parts: BrokerComponents, metadata: MetadataCache, limits: RequestLimits) -> DataContext:
    node_runtime = parts.node_runtime
    return DataContext(
        metadata=metadata,
        replicas=parts.replicas,
        purgatory=parts.purgatory,
        sessions=parts.sessions,
        limits=limits,
        work=OffLoopWork(node_runtime.pool, PoolShare(node_runtime.pool), parts.in_flight),
        clock=node_runtime.clock,
        statistics=parts.statistics,
        failures=parts.failures,
        transactions=TransactionGate(
            parts.transaction_partitions, parts.replicas, clock=node_runtime.clock, scheduler=parts.scheduler
        ),
    )
