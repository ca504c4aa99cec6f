"""Logs of one data directory that need a flush: complete segments, and settings of `flush.ms`."""

from __future__ import annotations

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.clock import BlockingPool, Clock
from ottla.storage.directory.held_logs import HeldLogs
from ottla.storage.files.log_config import MAX_LONG, LogConfig


class DueFlushes:
    """Flushes of one directory."""

    __slots__ = ("_by_time", "_clock", "_held", "_needed")

    def __init__(self, clock: Clock, held: HeldLogs) -> None:
        self._clock = clock
        self._held = held
        self._needed: dict[TopicPartition, None] = {}
        self._by_time: dict[TopicPartition, None] = {}
        """Logs with a `flush.ms`: a step that runs each second must not scan all logs for the few."""

    def add(self, partition: TopicPartition) -> None:
        """Flush the log with the next `start`."""
        self._needed[partition] = None

    def use_config(self, partition: TopicPartition, config: LogConfig) -> None:
        """Apply the settings of a log."""
        if config.flush_ms == MAX_LONG:
            self._by_time.pop(partition, None)
        else:
            self._by_time[partition] = None

    def forget(self, partition: TopicPartition) -> None:
        """Drop a log that was removed."""
        self._needed.pop(partition, None)
        self._by_time.pop(partition, None)

    def clear(self) -> None:
        """Drop all logs."""
        self._needed.clear()
        self._by_time.clear()

    def start(self, pool: BlockingPool) -> int:
        """Start flushes of logs that need one or are past `flush.ms`; returns the number. Checkpoints follow."""
        now = self._clock.time_ms()
        due = {key: log for key in self._needed if (log := self._held.get(key)) is not None}
        self._needed.clear()
        for key in self._by_time:
            log = self._held.get(key)
            if (
                log is not None
                and log.recovery_point < log.log_end_offset
                and now - log.last_flush_ms >= log.config.flush_ms
            ):
                due[key] = log
        for log in due.values():
            if not log.failed:
                log.request_flush(pool, _ignore_outcome)
        return len(due)


def _ignore_outcome(error: BaseException | None) -> None:
    """Ignore a failed flush: the log itself has handled it."""
