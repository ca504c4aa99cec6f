"""The log below a coordinator, as the runtime needs it. Implemented on replicas by the server, in memory by tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.common.errors import KafkaError

ReadDone = Callable[[bytes | bytearray | memoryview | None, KafkaError | None], None]


class LogOffsets(NamedTuple):
    """Bounds of one partition; ends exclusive."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int


class CoordinatorLog(Protocol):
    """The partitions of one internal topic. All methods belong to the loop and raise KafkaError.

    Whoever implements it also calls `CoordinatorRuntime.high_watermark_updated(partition, offset)` whenever the high
    watermark of a partition that this broker leads has risen; it may do so inside `append`.
    """

    def append(self, partition: int, leader_epoch: int, batch: bytearray) -> int:
        """Append one record batch, as the leader in `leader_epoch` and as for acks=all; returns the log end offset.

        `batch` may be patched in place (base offset, leader epoch) and is not kept. Raises NOT_LEADER_OR_FOLLOWER in
        any other leader epoch, NOT_ENOUGH_REPLICAS below min.insync.replicas, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE.
        """
        ...

    def max_batch_bytes(self, partition: int) -> int:
        """`max.message.bytes` of the topic."""
        ...

    def offsets(self, partition: int) -> LogOffsets:
        """Where the log starts and ends now. Raises NOT_LEADER_OR_FOLLOWER where this broker does not lead."""
        ...

    def read(self, partition: int, offset: int, max_bytes: int, done: ReadDone) -> None:
        """Read stored batches from the one that holds `offset` on, beyond the high watermark too.

        The file is read off the loop (BlockingPool); `done(records, None)` or `done(None, error)` follows exactly once,
        never before this call has returned. At least one batch comes whole, however large; a last one may be cut.
        Empty: there is no batch between `offset` and the log end.
        """
        ...
