"""Gauges of a broker's log cleaner; named after Kafka's metrics (LogCleaner and LogCleanerManager).

A state is read at each scrape; dirty ratio and delay are those of the cleaner's last search for work.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.platform.clock import Clock
from ottla.metrics.registry import MetricsRegistry
from ottla.storage.directory.log_cleaner import LogCleaner, PassReport
from ottla.storage.directory.log_directory import LogDirectory

_CLEANER = "kafka_log_logcleaner_"
_MANAGER = "kafka_log_logcleanermanager_"


def register_cleaner_gauges(registry: MetricsRegistry, cleaner: LogCleaner, clock: Clock) -> None:
    """Register the gauges of one cleaner."""

    def of_last_passes(value: Callable[[PassReport], float]) -> Callable[[], float]:
        return lambda: max((value(report) for report in cleaner.reports.values()), default=0)

    def recopied_percent() -> float:
        read = sum(report.written_bytes + report.dropped_bytes for report in cleaner.reports.values())
        return 100 * sum(report.written_bytes for report in cleaner.reports.values()) / read if read else 0

    for directory in cleaner.logs.directories:
        _register_uncleanable(registry, cleaner, directory)
    registry.gauge(
        f"{_MANAGER}max_dirty_percent",
        "Largest dirty ratio of the logs.",
        read=lambda: int(100 * cleaner.max_dirty_ratio),
    )
    registry.gauge(
        f"{_MANAGER}time_since_last_run_ms",
        "Time since the cleaner's last search for a log to clean.",
        read=lambda: clock.time_ms() - cleaner.last_run_ms,
    )
    registry.gauge(
        f"{_CLEANER}deadthreadcount",
        "Cleaner processes that died in their last round and were not used again.",
        read=lambda: len(cleaner.dead),
    )
    registry.gauge(
        f"{_CLEANER}max_compaction_delay_secs",
        "Longest time that a record exceeds max.compaction.lag.ms.",
        read=lambda: cleaner.max_overdue_ms // 1000,
    )
    registry.gauge(
        f"{_CLEANER}max_clean_time_secs",
        "Longest last pass of any log.",
        read=of_last_passes(lambda report: report.seconds),
    )
    registry.gauge(
        f"{_CLEANER}max_buffer_utilization_percent",
        "Largest utilization of the key map in the last pass of any log.",
        read=of_last_passes(lambda report: 100 * report.map_utilization),
    )
    registry.gauge(
        f"{_CLEANER}cleaner_recopy_percent",
        "Share of bytes that recopied segments retained in the last pass of each log.",
        read=recopied_percent,
    )


def _register_uncleanable(registry: MetricsRegistry, cleaner: LogCleaner, directory: LogDirectory) -> None:
    """Gauges of the uncleanable partitions of one directory."""
    labels = {"logDirectory": directory.path}
    registry.gauge(
        f"{_MANAGER}uncleanable_partitions_count",
        "Compacted partitions that can't be cleaned; the broker's log has the reason.",
        labels,
        read=lambda: sum(key in directory.logs for key in cleaner.uncleanable),
    )
    registry.gauge(
        f"{_MANAGER}uncleanable_bytes",
        "Size of the partitions that can't be cleaned.",
        labels,
        read=lambda: sum(directory.logs[key].size_bytes for key in cleaner.uncleanable if key in directory.logs),
    )
