"""The parts of one node that serve requests, made once; `server.broker` owns their life."""

from __future__ import annotations

from typing import Any

from ottla.common.broker_configs import BrokerConfig
from ottla.common.machine import Machine
from ottla.metadata.publisher import MetadataPublisher
from ottla.metrics.registry import MetricsRegistry
from ottla.replica.fetch_session import FetchSessionCache
from ottla.replica.manager import ReplicaManager
from ottla.replica.membership import Membership
from ottla.replica.purgatory import Purgatory
from ottla.replica.statistics import ReplicationStatistics
from ottla.server.control import Control
from ottla.server.coordination.coordination import Coordination, CoordinatorType, Host
from ottla.server.coordination.groups import GroupCoordination
from ottla.server.failures import Failures
from ottla.server.in_flight import InFlight
from ottla.server.producer_id_source import ProducerIdSource
from ottla.server.replication_settings import replication_settings
from ottla.server.statistics import BrokerStatistics
from ottla.server.topic_arrivals import TopicArrivals
from ottla.storage.log_manager import LogManager


class BrokerParts:
    """Made in the order in which they need one another; contexts of handlers are made of them."""

    __slots__ = (
        "control",
        "coordinations",
        "failures",
        "groups",
        "in_flight",
        "logs",
        "machine",
        "producer_ids",
        "publisher",
        "purgatory",
        "replicas",
        "sessions",
        "statistics",
        "topic_arrivals",
    )

    def __init__(
        self,
        config: BrokerConfig,
        machine: Machine,
        control: Control,
        membership: Membership,
        *,
        logs: LogManager,
        publisher: MetadataPublisher,
        failures: Failures,
        registry: MetricsRegistry,
    ) -> None:
        """`config` with the dynamic settings that are known by now."""
        self.machine = machine
        self.control = control
        self.logs = logs
        self.publisher = publisher
        self.failures = failures
        self.statistics = BrokerStatistics(registry)
        self.in_flight = InFlight()
        self.purgatory = Purgatory(machine.scheduler, failures)
        self.replicas = ReplicaManager(
            membership,
            logs,
            self.purgatory,
            config.topic_properties,
            clock=machine.clock,
            scheduler=machine.scheduler,
            pool=machine.pool,
            settings=replication_settings(config),
            statistics=ReplicationStatistics(registry),
        )
        host = Host(membership.node_id, machine, self.replicas, self.in_flight, failures)
        self.groups = GroupCoordination(config, host, publisher)
        self.coordinations: dict[int, Coordination[Any]] = {CoordinatorType.GROUP: self.groups}
        """What this broker coordinates, by what FindCoordinator calls it."""
        self.topic_arrivals = TopicArrivals(self.replicas, machine.scheduler)
        self.sessions = FetchSessionCache(
            config.get_int("max.incremental.fetch.session.cache.slots"), machine.rng, self.purgatory
        )
        self.producer_ids = ProducerIdSource(control.channel, membership.node_id, membership.broker_epoch)

    def use_config(self, config: BrokerConfig) -> None:
        """Go on with these settings."""
        self.replicas.use_topic_properties(config.topic_properties)
        self.logs.use_producer_expiration(config.get_int("producer.id.expiration.ms"))
        for coordination in self.coordinations.values():
            coordination.use_config(config)
