"""What a broker shows of its log cleaner; names as on Kafka's dashboards (LogCleaner and LogCleanerManager).

A state is read when it is scraped; dirty ratio and delay are those that the cleaner found when it last looked for work.
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
    """Make the gauges of one cleaner."""

    def of_last_passes(value: Callable[[PassReport], float]) -> Callable[[], float]:
        return lambda: max((value(report) for report in cleaner.reports.values()), default=0)

    def recopied_percent() -> float:
        read = sum(report.written_bytes + report.dropped_bytes for report in cleaner.reports.values())
        return 100 * sum(report.written_bytes for report in cleaner.reports.values()) / read if read else 0

    for directory in cleaner.logs.directories:
        _register_uncleanable(registry, cleaner, directory)
    registry.gauge(
        f"{_MANAGER}max_dirty_percent",
        "Share of a log that is not cleaned yet, of the dirtiest.",
        read=lambda: int(100 * cleaner.max_dirty_ratio),
    )
    registry.gauge(
        f"{_MANAGER}time_since_last_run_ms",
        "Since the cleaner last looked for a log to clean.",
        read=lambda: clock.time_ms() - cleaner.last_run_ms,
    )
    registry.gauge(
        f"{_CLEANER}deadthreadcount",
        "Processes of the cleaner that died in their last round and were not needed again since.",
        read=lambda: len(cleaner.dead),
    )
    registry.gauge(
        f"{_CLEANER}max_compaction_delay_secs",
        "How long a record waits beyond max.compaction.lag.ms, at most.",
        read=lambda: cleaner.max_overdue_ms // 1000,
    )
    registry.gauge(
        f"{_CLEANER}max_clean_time_secs",
        "Time that the last pass over a log took, at most.",
        read=of_last_passes(lambda report: report.seconds),
    )
    registry.gauge(
        f"{_CLEANER}max_buffer_utilization_percent",
        "How full the map of keys was in the last pass over a log, at most.",
        read=of_last_passes(lambda report: 100 * report.map_utilization),
    )
    registry.gauge(
        f"{_CLEANER}cleaner_recopy_percent",
        "Of the bytes of segments that were written anew, how many stayed; over the last pass of each log.",
        read=recopied_percent,
    )


def _register_uncleanable(registry: MetricsRegistry, cleaner: LogCleaner, directory: LogDirectory) -> None:
    """What can't be cleaned in one directory."""
    labels = {"logDirectory": directory.path}
    registry.gauge(
        f"{_MANAGER}uncleanable_partitions_count",
        "Compacted partitions that can't be cleaned, for a reason that the log of the broker names.",
        labels,
        read=lambda: sum(key in directory.logs for key in cleaner.uncleanable),
    )
    registry.gauge(
        f"{_MANAGER}uncleanable_bytes",
        "What partitions that can't be cleaned hold.",
        labels,
        read=lambda: sum(directory.logs[key].size_bytes for key in cleaner.uncleanable if key in directory.logs),
    )
