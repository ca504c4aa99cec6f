"""Context of the data handlers: replicas and their parked operations."""

from __future__ import annotations

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.platform.clock import Clock
from ottla.protocol.codec import MAX_REQUEST_ELEMENTS
from ottla.replica.fetch_session import FetchSessionCache
from ottla.replica.manager import ReplicaManager
from ottla.replica.purgatory import Purgatory
from ottla.server.handlers.data.produce_transactions import TransactionGate
from ottla.server.metadata.metadata_cache import MetadataCache
from ottla.server.requests.failures import Failures
from ottla.server.requests.off_loop_work import OffLoopWork
from ottla.server.requests.request_limits import RequestLimits
from ottla.server.requests.statistics import BrokerStatistics

UNLIMITED_BYTES = 16 * 1024
"""A smaller request of a hot API takes negligible time, whatever it names."""
ELEMENTS_PER_PARTITION = 4
"""A fetch names a topic and a partition, and may also forget both."""


class DataContext:
    """Dependencies of Produce, Fetch and the other APIs that read or write partitions of this broker."""

    __slots__ = (
        "check_partition_count",
        "clock",
        "compute_pool",
        "failures",
        "fetch_max_bytes",
        "has_quotas",
        "in_flight",
        "metadata",
        "partition_limit",
        "pool",
        "purgatory",
        "replicas",
        "sessions",
        "statistics",
        "transactions",
    )

    def __init__(
        self,
        *,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        sessions: FetchSessionCache,
        limits: RequestLimits,
        work: OffLoopWork,
        clock: Clock,
        statistics: BrokerStatistics,
        failures: Failures,
        transactions: TransactionGate,
    ) -> None:
        self.metadata = metadata
        self.replicas = replicas
        self.purgatory = purgatory
        self.sessions = sessions
        self.check_partition_count = limits.check_partition_count
        self.partition_limit = limits.partition_limit
        self.pool, self.compute_pool, self.in_flight = work
        self.clock = clock
        self.statistics = statistics
        self.failures = failures
        self.transactions = transactions
        self.fetch_max_bytes = 0
        self.has_quotas = False
        """Whether any client has quotas that fetches must check."""

    def element_limit(self, byte_count: int) -> int:
        """Maximum of topics and partitions in a request of that size, before it is parsed."""
        if byte_count <= UNLIMITED_BYTES:
            return MAX_REQUEST_ELEMENTS
        return min(MAX_REQUEST_ELEMENTS, ELEMENTS_PER_PARTITION * self.partition_limit())

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed broker settings."""
        self.fetch_max_bytes = config.get_int("fetch.max.bytes")
        self.transactions.use_config(config)
