"""Builder of key filters for the closed segments of topics with `ottla.search.index=key`, one segment at a time.

A step (`run_due`) begins with the next segment that has none, or whose filters were not checked since the start; its
end begins the next one. A worker of the log cleaner reads the segment, in another process than the broker. Only durable
segments are read, and none of a log that is being cleaned: it gets other segments.

A segment that cannot have filters (a damaged batch, messages of format v0 or v1) is logged and left without, until a
start or a compaction. Searches then read it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import NamedTuple

from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import Clock
from ottla.storage.compaction.sources import Source
from ottla.storage.compaction.worker import KeyFilterTask, RoundFailure, Worker, WorkerReport
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.log.log import Log
from ottla.storage.segment.segment import KEY_FILTER_PRESENT, KEY_FILTER_REFUSED, KEY_FILTER_UNKNOWN, Segment

logger = logging.getLogger(__name__)

MIN_AGE_MS = 1_000
"""Time since the last write of a segment, so that every later write changes its modification time."""


class BuilderSettings(NamedTuple):
    """Limits of the worker."""

    io_buffer_bytes: int
    max_bytes_per_second: float


class KeyFilterBuilder:
    """Owned by the loop."""

    __slots__ = ("_clock", "_is_building", "_logs", "_stopped", "_worker", "settings")

    def __init__(self, logs: LogManager, settings: BuilderSettings, worker: Worker, clock: Clock) -> None:
        """`worker` is for this builder alone."""
        self._logs = logs
        self.settings = settings
        """May be replaced; a running task continues with the old ones."""
        self._worker = worker
        self._clock = clock
        self._is_building = False
        self._stopped = False

    def run_due(self) -> None:
        """Begin with a segment, unless one is in progress."""
        if self._stopped or self._is_building:
            return
        try:
            due = next(self._due(), None)
        except OSError as error:
            logger.warning("key filters can't be built, retrying: %s", error, extra=RATE_LIMITED)
            return
        if due is None:
            return
        log, segment, source = due
        self._is_building = True
        cuts = segment.data.truncation_count
        task = KeyFilterTask(
            log.directory,
            source,
            self.settings.io_buffer_bytes,
            log.config.max_decompressed_message_bytes,
            self.settings.max_bytes_per_second,
        )
        self._worker.begin(task, lambda outcome: self._ended(log, segment, cuts, outcome))

    def stop(self) -> None:
        """Begin no more, and end a task in progress."""
        self._stopped = True
        if self._is_building:
            self._worker.stop()

    def _due(self) -> Iterator[tuple[Log, Segment, Source]]:
        now_ms = self._clock.time_ms()
        for directory in self._logs.directories:
            for log in directory.logs_with_key_filters():
                if log.failed or log.cleaner_works or log.cleaning is not None:
                    continue
                for segment, later in itertools.pairwise(log.segments):
                    if later.base_offset > log.recovery_point:
                        break
                    if segment.key_filter_state != KEY_FILTER_UNKNOWN or not segment.data.size_bytes:
                        continue
                    mtime_ms = segment.data.mtime_ms()
                    if now_ms - mtime_ms >= MIN_AGE_MS:
                        size = segment.data.size_bytes
                        yield log, segment, Source(segment.base_offset, later.base_offset, size, 0, mtime_ms)

    def _ended(self, log: Log, segment: Segment, cuts: int, outcome: WorkerReport) -> None:
        self._is_building = False
        is_in_use = self._logs.get_log(log.topic, log.partition) is log and segment in log.segments.in_order
        is_same = is_in_use and segment.data.truncation_count == cuts
        if not isinstance(outcome, RoundFailure):
            if is_same:
                segment.key_filter_state = KEY_FILTER_PRESENT
        elif outcome.lacks_room or outcome.worker_died:
            path, reason = segment.data.path, outcome.reason
            logger.warning("key filters of %s can't be built, retrying: %s", path, reason, extra=RATE_LIMITED)
            return
        elif is_same and not self._stopped:
            segment.key_filter_state = KEY_FILTER_REFUSED
            logger.warning("%s has no key filters, searches read it: %s", segment.data.path, outcome.reason)
        self.run_due()
