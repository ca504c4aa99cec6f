"""Whether a log takes appends, and what an error of the disk means for it.

Invariant: after a failure that leaves in doubt what is on disk (a torn append that can't be cut off, half a truncation,
a failed sync, any error but lack of room) the log refuses every further append with KAFKA_STORAGE_ERROR, until a start
has checked its files.

Left out: what the failure means for other logs of the directory (`log_manager`, which is told).
"""

from __future__ import annotations

import errno

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.storage.segment.results import LogEvents
from ottla.storage.segment.segment import TornAppendError

TRANSIENT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""The disk works, there is just no room: what was refused may succeed the next time."""


class LogHealth:
    """The health of one log. All parts of the log ask and tell this one."""

    __slots__ = ("closed", "events", "failed", "partition", "writable")

    def __init__(self, partition: TopicPartition, events: LogEvents) -> None:
        self.partition = partition
        self.events = events
        self.failed = False
        self.closed = False
        self.writable = True
        """Neither failed nor closed."""

    @property
    def name(self) -> str:
        """`topic-partition`, for messages."""
        topic, partition = self.partition
        return f"{topic}-{partition}"

    def fail(self) -> None:
        """What is on disk is unknown: no more appends."""
        self.failed = True
        self.writable = False

    def close(self) -> None:
        """The files were let go of."""
        self.closed = True
        self.writable = False

    def refusal(self) -> KafkaError:
        """Why nothing is appended, for the client."""
        reason = "closed" if self.closed else "offline after a disk error"
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is {reason}")

    def report(self, error: OSError, action: str) -> None:
        """Tell the manager of an error that was dealt with."""
        self.events.log_failed(self.partition, error, action, lasting=self.failed)

    def storage_error(self, error: OSError, action: str) -> KafkaError:
        """Note what a failed change means for the log; the error for the client."""
        if isinstance(error, TornAppendError) or error.errno not in TRANSIENT_ERRORS:
            self.fail()
        return self.read_error(error, action)

    def read_error(self, error: OSError, action: str = "a read") -> KafkaError:
        """Take note of a failure that changed nothing; the error for the client."""
        self.report(error, action)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{action} of {self.name} failed: {error.strerror or error}")
