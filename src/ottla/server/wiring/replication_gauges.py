"""Gauges of a broker's replicas; named after Kafka's metrics.

Partitions are counted in one pass, which serves all gauges of a scrape; nothing is counted between scrapes.
"""

from __future__ import annotations

from ottla.common.platform.clock import Clock
from ottla.metrics.registry import MetricsRegistry
from ottla.replica.manager import ReplicaManager

TALLY_LIFETIME_S = 1.0
"""Scrapes and their gauges within this time share one pass over the partitions."""

_MANAGER = "kafka_server_replicamanager_"

_GAUGES = (
    ("partitions", f"{_MANAGER}partitioncount", "Partitions on this broker."),
    ("leaders", f"{_MANAGER}leadercount", "Partitions that this broker leads."),
    (
        "under_replicated",
        f"{_MANAGER}underreplicatedpartitions",
        "Partitions led here with fewer in-sync replicas than replicas.",
    ),
    (
        "under_min_isr",
        f"{_MANAGER}underminisrpartitioncount",
        "Partitions led here with fewer in-sync replicas than min.insync.replicas: acks=all is refused.",
    ),
    (
        "at_min_isr",
        f"{_MANAGER}atminisrpartitioncount",
        "Partitions led here with exactly min.insync.replicas in-sync replicas.",
    ),
    ("offline", f"{_MANAGER}offlinereplicacount", "Replicas on this broker with a failed disk."),
    (
        "late_transactions",
        f"{_MANAGER}partitionswithlatetransactionscount",
        "Partitions led here with a hanging transaction, open for five minutes longer than "
        "transaction.max.timeout.ms: it blocks read_committed consumers.",
    ),
    ("producer_ids", f"{_MANAGER}produceridcount", "Producer ids known to the partitions on this broker."),
)


class ReplicaTally:
    """Partition counts of this broker, at most TALLY_LIFETIME_S old."""

    __slots__ = (
        "_clock",
        "_counted_s",
        "_max_transaction_timeout_ms",
        "_replicas",
        "at_min_isr",
        "late_transactions",
        "leaders",
        "offline",
        "partitions",
        "producer_ids",
        "under_min_isr",
        "under_replicated",
    )

    def __init__(self, replicas: ReplicaManager, clock: Clock, max_transaction_timeout_ms: int) -> None:
        self._replicas = replicas
        self._max_transaction_timeout_ms = max_transaction_timeout_ms
        self._clock = clock
        self._counted_s: float | None = None
        self._reset()

    def _reset(self) -> None:
        self.partitions = self.leaders = self.offline = 0
        self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.late_transactions = self.producer_ids = 0

    def refreshed(self) -> ReplicaTally:
        """Returns itself, counted again if due."""
        now_s = self._clock.monotonic()
        if self._counted_s is None or now_s - self._counted_s >= TALLY_LIFETIME_S:
            self._counted_s = now_s
            self._count()
        return self

    def _count(self) -> None:
        self._reset()
        now_ms = self._clock.time_ms()
        for partition in self._replicas.partitions():
            producers = partition.log.producers
            self.partitions += 1
            self.offline += partition.offline or partition.log.failed
            self.producer_ids += len(producers)
            if not partition.is_leader:
                continue
            self.late_transactions += producers.has_late_transaction(now_ms, self._max_transaction_timeout_ms)
            in_sync, replicas = len(partition.state.isr), len(partition.state.replicas)
            needed = min(partition.log.config.min_insync_replicas, replicas)
            self.leaders += 1
            self.under_replicated += in_sync < replicas
            self.under_min_isr += in_sync < needed
            self.at_min_isr += in_sync == needed


def register_replication_gauges(
    registry: MetricsRegistry, replicas: ReplicaManager, clock: Clock, max_transaction_timeout_ms: int
) -> None:
    """Register the gauges of one broker's replicas."""
    tally = ReplicaTally(replicas, clock, max_transaction_timeout_ms)
    for attribute, name, text in _GAUGES:
        registry.gauge(name, text, read=lambda attribute=attribute: getattr(tally.refreshed(), attribute))  # type: ignore[misc]
    registry.gauge(
        "kafka_server_replicafetchermanager_maxlag",
        "Largest lag of a follower replica on this broker behind its leader's high watermark, in records.",
        {"clientId": "Replica"},
        read=replicas.fetchers.max_lag,
    )
    registry.gauge(
        "kafka_server_replicaalterlogdirsmanager_maxlag",
        "Largest lag of a replica being moved between data directories of this broker, in records.",
        read=replicas.moves.max_lag,
    )
    registry.gauge(
        "kafka_server_replicaalterlogdirsmanager_failedpartitionscount",
        "Replicas that failed to move between data directories of this broker, retried later.",
        read=replicas.moves.failed_count,
    )
    registry.gauge(
        "ottla_damaged_replicas",
        "Replicas on this broker known to be damaged and not yet repaired.",
        read=lambda: len(replicas.repair),
    )
