"""Retention of all logs of one data directory, and the expiration of producers, in steps."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from ottla.common.errors import KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)

SEGMENTS_A_STEP = 32
"""Segments that retention deletes in one step: each costs up to four renames, together a few milliseconds."""


def producer_expiration_steps(logs: Sequence[Log], now_ms: int) -> Iterator[int]:
    """Remove expired producers, one log a step: each yields the number of producers removed."""
    for log in logs:
        yield log.remove_expired_producers(now_ms)


class DirectoryRetention:
    """Passes over the logs of one directory."""

    __slots__ = ("_logs", "_sizes_at_last_pass")

    def __init__(self, logs: Mapping[TopicPartition, Log]) -> None:
        self._logs = logs
        self._sizes_at_last_pass: dict[TopicPartition, int] = {}

    def steps(self, now: int) -> Iterator[int]:
        """Delete expired segments, and release idle reservations, at `now` in milliseconds.

        Each step yields the number of segments taken out of use. Logs may be added, removed and changed between steps.
        Failures are logged and do not affect other logs.
        """
        for key, log in list(self._logs.items()):
            gone = SEGMENTS_A_STEP
            while gone == SEGMENTS_A_STEP and self._logs.get(key) is log:
                try:
                    gone = log.delete_old_segments(now, SEGMENTS_A_STEP)
                except KafkaError as error:
                    logger.error("%s", error)
                    gone = 0
                yield gone
            if self._logs.get(key) is not log:
                continue
            size = log.log_end_offset
            if self._sizes_at_last_pass.get(key) == size:
                log.release_idle_reserve()
            self._sizes_at_last_pass[key] = size

    def forget(self, partition: TopicPartition) -> None:
        """Drop a log that was removed."""
        self._sizes_at_last_pass.pop(partition, None)

    def clear(self) -> None:
        """Drop all logs."""
        self._sizes_at_last_pass.clear()
