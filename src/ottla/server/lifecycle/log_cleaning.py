"""Log cleaner of a broker: its settings, its schedule, and the report files for `ottla log cleaner`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import Clock
from ottla.common.platform.disk import Disk
from ottla.common.platform.runtime import NodeRuntime
from ottla.server.lifecycle.background import PeriodicSteps
from ottla.server.requests.in_flight import InFlight, TrackedPool
from ottla.storage.directory.cleaner_report import CleanerReport, LogReport, format_report, parse_report, reports_of
from ottla.storage.directory.log_cleaner import CleanerSettings, LogCleaner
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.checkpoints import CheckpointCorruption, write_unsynced
from ottla.storage.files.names import CLEANER_REPORT_FILE

if TYPE_CHECKING:
    from ottla.storage.compaction.worker import Worker
    from ottla.storage.directory.key_filters import KeyFilterBuilder

logger = logging.getLogger(__name__)

LEAST_BUFFER_BYTES = 1024 * 1024
"""Bytes of the key map of one process, as in Apache Kafka."""

LEAST_BYTES_PER_SECOND = 1024.0

_STEP = "log cleaner"


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """Too small settings are raised to the minimum, since a setting may change at runtime."""
    threads = config.get_int("log.cleaner.threads")
    return CleanerSettings(
        threads=threads,
        dedupe_buffer_bytes=max(config.get_int("log.cleaner.dedupe.buffer.size"), threads * LEAST_BUFFER_BYTES),
        load_factor=config.get_float("log.cleaner.io.buffer.load.factor"),
        io_buffer_bytes=config.get_int("log.cleaner.io.buffer.size"),
        max_bytes_per_second=max(config.get_float("log.cleaner.io.max.bytes.per.second"), LEAST_BYTES_PER_SECOND),
    )


class LogCleaning:
    """Owner of the cleaner; applies its settings."""

    __slots__ = (
        "_backoff_ms",
        "_clock",
        "_disk",
        "_key_filters",
        "_make_worker",
        "_pool",
        "_reported",
        "_steps",
        "_writing",
        "cleaner",
    )

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        runtime: NodeRuntime,
        make_worker: Callable[[], Worker],
        *,
        in_flight: InFlight,
        steps: PeriodicSteps,
    ) -> None:
        """`in_flight` counts the work in the pool. The first `use_config` starts looking for work."""
        self._steps = steps
        self._backoff_ms = -1
        self._disk: Disk = runtime.disk
        self._clock: Clock = runtime.clock
        self._pool = TrackedPool(runtime.pool, in_flight)
        self._reported: dict[str, list[LogReport]] = {}
        """Content of each directory's report file; unknown without an entry."""
        self._writing: set[str] = set()
        """Directories whose report file is being written."""
        self.cleaner = LogCleaner(
            logs,
            cleaner_settings(config),
            make_worker,
            pool=self._pool,
            clock=runtime.clock,
            rng=runtime.rng,
        )
        self._make_worker = make_worker
        self._key_filters: KeyFilterBuilder | None = None
        """Created for the first topic with `ottla.search.index`."""
        for directory in logs.directories:
            self._take_up(directory)

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed broker settings."""
        self.cleaner.settings = cleaner_settings(config)
        backoff_ms = config.get_int("log.cleaner.backoff.ms")
        if backoff_ms != self._backoff_ms:
            self._backoff_ms = backoff_ms
            self._steps.add(_STEP, backoff_ms, self._run)

    def stop(self) -> None:
        """End passes and the building of key filters. Blocks as `LogCleaner.stop`."""
        self.cleaner.stop()
        if self._key_filters is not None:
            self._key_filters.stop()

    def _run(self) -> None:
        self.cleaner.run_due()
        directories = self.cleaner.logs.directories
        for directory in directories:
            self._write_report(directory)
        if any(directory.logs_with_key_filters() for directory in directories):
            self._build_key_filters()

    def _build_key_filters(self) -> None:
        from ottla.storage.directory.key_filters import BuilderSettings, KeyFilterBuilder  # imported here: few topics

        limits = self.cleaner.settings
        settings = BuilderSettings(limits.io_buffer_bytes // max(limits.threads, 1), limits.max_bytes_per_second)
        if self._key_filters is None:
            self._key_filters = KeyFilterBuilder(self.cleaner.logs, settings, self._make_worker(), self._clock)
        self._key_filters.settings = settings
        self._key_filters.run_due()

    def _take_up(self, directory: LogDirectory) -> None:
        """Read the last passes of an earlier run."""
        path = f"{directory.path}/{CLEANER_REPORT_FILE}"
        try:
            report = parse_report(self._disk.read_bytes(path), path)
        except FileNotFoundError:
            return
        except (OSError, CheckpointCorruption) as error:
            logger.warning("%s; the last passes of the log cleaner are unknown", error)
            return
        for log in report.logs:
            if log.last_pass is not None and (log.topic, log.partition) in directory.logs:
                self.cleaner.reports[log.topic, log.partition] = log.last_pass

    def _write_report(self, directory: LogDirectory) -> None:
        reports = reports_of(self.cleaner, directory.compacted_logs())
        is_current = reports == self._reported.get(directory.path, [])
        if is_current or directory.health.offline is not None or directory.path in self._writing:
            return
        self._reported[directory.path] = reports
        self._writing.add(directory.path)
        data = format_report(CleanerReport(self._clock.time_ms(), reports))
        path = f"{directory.path}/{CLEANER_REPORT_FILE}"

        def written(_: object, error: BaseException | None) -> None:
            self._writing.discard(directory.path)
            if error is not None and not isinstance(error, OSError):
                raise error
            if error is not None:
                self._reported.pop(directory.path, None)
                logger.warning("writing %s failed: %s", path, error, extra=RATE_LIMITED)

        self._pool.submit(lambda: write_unsynced(self._disk, path, data), written)
