"""What handlers of this room may touch: the metadata, who decides on it, and the log directories."""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.broker_configs import BrokerConfig
from ottla.common.disk import Disk
from ottla.replica.manager import ReplicaManager
from ottla.server.decisions import Decisions
from ottla.server.failures import Failures
from ottla.server.metadata_cache import MetadataCache
from ottla.server.request_limits import RequestLimits
from ottla.server.topic_creation import TopicCreation
from ottla.storage.log_manager import LogManager


class AdminContext:
    """What administers and describes a cluster."""

    __slots__ = (
        "check_partition_count",
        "config",
        "config_checks",
        "decisions",
        "disk",
        "failures",
        "logs",
        "metadata",
        "replicas",
        "topics",
    )

    def __init__(
        self,
        config: BrokerConfig,
        *,
        metadata: MetadataCache,
        decisions: Decisions,
        topics: TopicCreation,
        replicas: ReplicaManager,
        logs: LogManager,
        disk: Disk,
        limits: RequestLimits,
        failures: Failures,
    ) -> None:
        self.config = config
        self.config_checks: list[Callable[[BrokerConfig], None]] = []
        """Whether settings can be followed that this broker shall have; each raises OperatorError where not."""
        self.metadata = metadata
        self.decisions = decisions
        self.topics = topics
        self.replicas = replicas
        self.logs = logs
        self.disk = disk
        self.check_partition_count = limits.check_partition_count
        self.failures = failures

    def use_config(self, config: BrokerConfig) -> None:
        """Go on with these settings."""
        self.config = config
