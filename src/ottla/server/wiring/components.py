"""Builds the objects with which one broker serves requests, and applies changed settings to them.

`server.broker` starts and stops them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.kafka.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.common.platform.runtime import NodeRuntime
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.metadata.publisher import MetadataPublisher
from ottla.metrics.registry import MetricsRegistry
from ottla.quota.windows import Windows
from ottla.replica.directory_assignments import DirectoryAssignments
from ottla.replica.fetch_session import FetchSessionCache
from ottla.replica.manager import ReplicaManager
from ottla.replica.membership import Membership
from ottla.replica.purgatory import Purgatory
from ottla.replica.statistics import ReplicationStatistics
from ottla.server.coordination.coordinator_host import BrokerServices, CoordinatorHost, CoordinatorType
from ottla.server.coordination.groups import GroupCoordination
from ottla.server.coordination.transactions import TransactionCoordination
from ottla.server.metadata.replication_settings import replication_settings
from ottla.server.metadata.topic_ready_waiters import TopicReadyWaiters
from ottla.server.requests.client_quotas import ClientQuotas
from ottla.server.requests.control import Control
from ottla.server.requests.failures import Failures
from ottla.server.requests.in_flight import InFlight
from ottla.server.requests.statistics import BrokerStatistics
from ottla.server.transactions.marker_writer import MarkerWriter
from ottla.server.transactions.producer_id_source import ProducerIdSource
from ottla.server.transactions.transaction_markers import TransactionMarkers
from ottla.server.transactions.transaction_partitions import TransactionPartitions, VerificationStatistics
from ottla.server.wiring.share_groups import ShareGroups
from ottla.storage.directory.log_manager import LogManager


class BrokerComponents:
    """Components in the order of their dependencies; handler contexts are built from them."""

    __slots__ = (
        "control",
        "coordinations",
        "failures",
        "groups",
        "in_flight",
        "logs",
        "marker_writer",
        "node_runtime",
        "producer_ids",
        "publisher",
        "purgatory",
        "quotas",
        "registry",
        "replicas",
        "scheduler",
        "services",
        "sessions",
        "share_groups",
        "statistics",
        "topic_arrivals",
        "transaction_markers",
        "transaction_partitions",
        "transactions",
    )

    def __init__(
        self,
        config: BrokerConfig,
        node_runtime: NodeRuntime,
        control: Control,
        membership: Membership,
        *,
        logs: LogManager,
        publisher: MetadataPublisher,
        failures: Failures,
        registry: MetricsRegistry,
    ) -> None:
        """`config` includes the currently known dynamic settings."""
        self.node_runtime = node_runtime
        self.control = control
        self.logs = logs
        self.publisher = publisher
        self.failures = failures
        self.registry = registry
        self.statistics = BrokerStatistics(registry)
        windows = Windows(config.get_int("quota.window.num"), config.get_int("quota.window.size.seconds"))
        self.quotas = ClientQuotas(windows, node_runtime.clock, registry)
        self.in_flight = InFlight()
        self.purgatory = Purgatory(node_runtime.scheduler, failures)
        self.replicas = ReplicaManager(
            membership,
            logs,
            self.purgatory,
            config.topic_properties,
            clock=node_runtime.clock,
            scheduler=node_runtime.scheduler,
            pool=node_runtime.pool,
            settings=replication_settings(config),
            statistics=ReplicationStatistics(registry),
            assignments=DirectoryAssignments(membership, control.channel, node_runtime.scheduler),
        )
        self.scheduler = EndOfTickScheduler(node_runtime.scheduler)
        host = self.services = BrokerServices(
            membership.node_id, node_runtime, self.scheduler, self.replicas, self.in_flight, failures
        )
        self.producer_ids = ProducerIdSource(control.channel, membership.node_id, membership.broker_epoch)
        self._make_transaction_components(config, host, membership, registry)
        self.groups = GroupCoordination(
            config,
            host,
            publisher,
            self.transaction_partitions,
            persister=lambda: self.share_groups.persister,
            log_ends=lambda: self.share_groups.log_ends,
        )
        self.coordinations: dict[int, CoordinatorHost[Any]] = {
            CoordinatorType.GROUP: self.groups,
            CoordinatorType.TRANSACTION: self.transactions,
        }
        """Coordinators of this broker, by FindCoordinator's key type."""
        self.share_groups = ShareGroups(
            config,
            host,
            publisher,
            registry,
            coordinations=self.coordinations,
            network=membership.peers,
            address_of=self.replicas.cluster.address_of,
        )
        self.topic_arrivals = TopicReadyWaiters(self.replicas, node_runtime.scheduler)
        self.sessions = FetchSessionCache(
            config.get_int("max.incremental.fetch.session.cache.slots"), node_runtime.rng, self.purgatory
        )

    def _make_transaction_components(
        self, config: BrokerConfig, host: BrokerServices, membership: Membership, registry: MetricsRegistry
    ) -> None:
        """Create the transaction coordinator, its partition verification, and its marker channel."""
        publisher = self.publisher
        coordinators: dict[str, Callable[[], CoordinatorRuntime[Any]]] = {
            GROUP_METADATA_TOPIC: lambda: self.groups.runtime,
            TRANSACTION_STATE_TOPIC: lambda: self.transactions.runtime,
        }
        self.marker_writer = MarkerWriter(self.replicas, self.purgatory, coordinators, self.failures)
        self.transaction_markers = TransactionMarkers(
            membership.node_id,
            self.marker_writer,
            membership.peers,
            image=lambda: publisher.image,
            address_of=self.replicas.cluster.address_of,
            scheduler=self.scheduler,
            failures=self.failures,
        )
        self.transactions = TransactionCoordination(
            config,
            host,
            publisher,
            self.producer_ids,
            self.transaction_markers,
            group_partition=self._group_partition,
        )
        self.transaction_partitions = TransactionPartitions(
            membership.node_id,
            lambda: self.transactions.coordinator,
            membership.peers,
            coordinator_of=lambda transactional_id: self.transactions.leader(transactional_id, publisher.image),
            address_of=self.replicas.cluster.address_of,
            clock=host.node_runtime.clock,
            statistics=VerificationStatistics(registry),
        )

    def _group_partition(self, group_id: str) -> int:
        return self.groups.partition_for(group_id)

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed broker settings."""
        self.replicas.use_topic_properties(config.topic_properties)
        self.quotas.use_config(config)
        self.logs.cordon(config.get_list("cordoned.log.dirs"))
        self.control.controller.directories_changed()
        self.logs.use_producer_expiration(config.get_int("producer.id.expiration.ms"))
        self.logs.use_transaction_verification(enabled=config.get_bool("transaction.partition.verification.enable"))
        for coordination in self.coordinations.values():
            coordination.use_config(config)
