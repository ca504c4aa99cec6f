"""Context of the administration handlers: the metadata, the controller, and the log directories."""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.platform.disk import Disk
from ottla.replica.manager import ReplicaManager
from ottla.server.metadata.metadata_cache import MetadataCache
from ottla.server.metadata.topic_creation import TopicCreation
from ottla.server.requests.controller_requests import ControllerQueue
from ottla.server.requests.failures import Failures
from ottla.server.requests.request_limits import RequestLimits
from ottla.storage.directory.log_manager import LogManager


class AdminContext:
    """Dependencies of the administration handlers."""

    __slots__ = (
        "check_partition_count",
        "config",
        "config_checks",
        "decisions",
        "disk",
        "failures",
        "keeps_software",
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
        decisions: ControllerQueue,
        topics: TopicCreation,
        replicas: ReplicaManager,
        logs: LogManager,
        disk: Disk,
        limits: RequestLimits,
        failures: Failures,
    ) -> None:
        self.config = config
        self.config_checks: list[Callable[[BrokerConfig], None]] = []
        """Checks of new configs of this broker; each raises OperatorError if it can't apply them."""
        self.keeps_software = False
        """Whether connections keep the name and version of the client's library, for client metrics (KIP-714)."""
        self.metadata = metadata
        self.decisions = decisions
        self.topics = topics
        self.replicas = replicas
        self.logs = logs
        self.disk = disk
        self.check_partition_count = limits.check_partition_count
        self.failures = failures

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed broker settings."""
        self.config = config
