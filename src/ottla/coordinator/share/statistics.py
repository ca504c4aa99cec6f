"""Counters of one share coordinator, as plain numbers for the metrics of the server."""

from __future__ import annotations


class ShareCoordinatorStatistics:
    """Counters since the start of the process; times in milliseconds."""

    __slots__ = ("last_pruned_offsets", "write_latency_max_ms", "write_latency_total_ms", "write_requests", "writes")

    def __init__(self) -> None:
        self.writes = 0
        """Records of writes and of reads with a new leader epoch."""
        self.write_requests = 0
        self.write_latency_total_ms = 0.0
        self.write_latency_max_ms = 0.0
        self.last_pruned_offsets: dict[int, int] = {}
        """First offset that was kept, by partition of the topic."""

    def write_answered(self, latency_ms: float) -> None:
        """Count one WriteShareGroupState request."""
        self.write_requests += 1
        self.write_latency_total_ms += latency_ms
        self.write_latency_max_ms = max(self.write_latency_max_ms, latency_ms)

    @property
    def write_latency_avg_ms(self) -> float:
        """Average of the WriteShareGroupState requests."""
        return self.write_latency_total_ms / max(1, self.write_requests)
