"""Context of the data handlers: replicas and their parked operations."""

from __future__ import annotations

from typing import Protocol

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.platform.channel import Part
from ottla.common.platform.clock import Clock
from ottla.protocol.codec import MAX_REQUEST_ELEMENTS
from ottla.protocol.fetch import ParsedFetchRequest
from ottla.replica.fetch_session import FetchContext, FetchSessionCache
from ottla.replica.manager import ReplicaManager
from ottla.replica.purgatory import Purgatory
from ottla.server.handlers.data.produce_transactions import TransactionGate
from ottla.server.metadata.metadata_cache import MetadataCache
from ottla.server.requests.failures import Failures
from ottla.server.requests.off_loop_work import OffLoopWork
from ottla.server.requests.request import Request
from ottla.server.requests.request_limits import RequestLimits
from ottla.server.requests.statistics import BrokerStatistics


class PendingFetch(Protocol):
    """A fetch in progress.

    Implementations: `server.handlers.data.consumer_fetch.ConsumerFetch` and
    `server.handlers.data.limited_fetch.LimitedFetch`.
    """

    def serve(self) -> list[Part] | None:
        """Answer, or park."""
        ...


class ConsumerFetching(Protocol):
    """Creates the fetch of a consumer.

    Implementations: `server.handlers.data.consumer_fetch.ConsumerFetch` and, while clients have quotas,
    `server.handlers.data.limited_fetch.limited_fetch`; `server.wiring.contexts` selects.
    """

    def __call__(
        self, context: DataContext, request: Request, fetch: ParsedFetchRequest, session: FetchContext, /
    ) -> PendingFetch:
        """Return the fetch, which has not begun."""


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
        "consumer_fetch",
        "failures",
        "fetch_max_bytes",
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

    consumer_fetch: ConsumerFetching
    """Replaced while clients have quotas, by the creator of the contexts."""

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

    def element_limit(self, byte_count: int) -> int:
        """Maximum of topics and partitions in a request of that size, before it is parsed."""
        if byte_count <= UNLIMITED_BYTES:
            return MAX_REQUEST_ELEMENTS
        return min(MAX_REQUEST_ELEMENTS, ELEMENTS_PER_PARTITION * self.partition_limit())

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed broker settings."""
        self.fetch_max_bytes = config.get_int("fetch.max.bytes")
        self.transactions.use_config(config)
