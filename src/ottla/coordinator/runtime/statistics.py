"""Counters of one coordinator runtime, as plain integers for the metrics of the server."""

from __future__ import annotations

from collections import defaultdict


class CoordinatorStatistics:
    """Counters since the start of the process; times in milliseconds."""

    __slots__ = (
        "append_failures",
        "batches_appended",
        "bytes_appended",
        "load_failures",
        "load_time_max_ms",
        "load_time_total_ms",
        "loads",
        "operations",
        "records_appended",
        "records_loaded",
        "records_skipped",
        "write_timeouts",
    )

    def __init__(self) -> None:
        self.operations: defaultdict[str, int] = defaultdict(int)
        """Number of operations that ran, by name."""
        self.batches_appended = 0
        self.records_appended = 0
        self.bytes_appended = 0
        self.append_failures = 0
        self.write_timeouts = 0
        self.loads = 0
        self.load_failures = 0
        self.records_loaded = 0
        self.records_skipped = 0
        """Number of undecodable records in loads."""
        self.load_time_total_ms = 0.0
        self.load_time_max_ms = 0.0
