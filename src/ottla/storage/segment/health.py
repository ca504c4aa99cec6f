"""Health of a log: whether it accepts appends, and the effect of disk errors on it.

Invariant: after a failure with unknown content on disk (a torn append that can't be truncated, half a truncation, a
failed sync, any error except lack of space) the log rejects every further append with KAFKA_STORAGE_ERROR, until a
start has checked its files.

The effect on other logs of the directory is in `log_manager`, which gets the error.
"""

from __future__ import annotations

import errno

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.storage.segment.data import TornAppendError
from ottla.storage.segment.results import LogEvents

TRANSIENT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""Errors of a full disk that works: a rejected operation may succeed the next time."""


class LogHealth:
    """Health of one log, shared by all its components."""

    __slots__ = ("closed", "events", "failed", "partition", "writable")

    def __init__(self, partition: TopicPartition, events: LogEvents) -> None:
        self.partition = partition
        self.events = events
        self.failed = False
        self.closed = False
        self.writable = True
        """Whether the log has neither failed nor closed."""

    @property
    def name(self) -> str:
        """`topic-partition`, for messages."""
        topic, partition = self.partition
        return f"{topic}-{partition}"

    def fail(self) -> None:
        """Reject appends from now on: the content on disk is unknown."""
        self.failed = True
        self.writable = False

    def close(self) -> None:
        """Record that the files are closed."""
        self.closed = True
        self.writable = False

    def refusal(self) -> KafkaError:
        """Return the error for rejected appends, for the client."""
        reason = "closed" if self.closed else "offline after a disk error"
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is {reason}")

    def report(self, error: OSError, action: str) -> None:
        """Report a handled error to the manager."""
        self.events.log_failed(self.partition, error, action, lasting=self.failed)

    def storage_error(self, error: OSError, action: str) -> KafkaError:
        """Apply the consequences of a failed change to the log; returns the error for the client."""
        if isinstance(error, TornAppendError) or error.errno not in TRANSIENT_ERRORS:
            self.fail()
        return self.read_error(error, action)

    def read_error(self, error: OSError, action: str = "a read") -> KafkaError:
        """Report a failure that changed nothing; returns the error for the client."""
        self.report(error, action)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{action} of {self.name} failed: {error.strerror or error}")
