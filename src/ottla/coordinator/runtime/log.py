"""The log below a coordinator, as the runtime needs it. Implemented on replicas by the server, in memory by tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ottla.common.errors import KafkaError
from ottla.record.control import EndMarker

ReadDone = Callable[[bytes | bytearray | memoryview | None, KafkaError | None], None]
VerificationDone = Callable[[Any, KafkaError | None], None]


class LogOffsets(NamedTuple):
    """Bounds of one partition; ends exclusive."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int


class Transaction(NamedTuple):
    """The transaction that an operation belongs to, as its client names it (KIP-98)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    add: bool
    """The partition is added to it by the way; otherwise the client has done that, which is verified (KIP-890)."""


class CoordinatorLog(Protocol):
    """The partitions of one internal topic. All methods belong to the loop and raise KafkaError.

    Whoever implements it also calls `CoordinatorRuntime.high_watermark_updated(partition, offset)` whenever the high
    watermark of a partition that this broker leads has risen; it may do so inside `append`.
    """

    def append(self, partition: int, leader_epoch: int, batch: bytearray, guard: Any = None) -> int:
        """Append one record batch, as the leader in `leader_epoch` and as for acks=all; returns the log end offset.

        `batch` may be patched in place (base offset, leader epoch) and is not kept; `guard` is what
        `verify_transaction` gave for one of a transaction. Raises NOT_LEADER_OR_FOLLOWER in any other leader epoch,
        NOT_ENOUGH_REPLICAS below min.insync.replicas, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE; INVALID_PRODUCER_EPOCH
        and INVALID_TXN_STATE for a transaction.
        """
        ...

    def append_end_marker(self, partition: int, leader_epoch: int, marker: EndMarker) -> int:
        """Append the control batch that ends a transaction, in the same way; returns the log end offset.

        Raises what `append` does, and TRANSACTION_COORDINATOR_FENCED.
        """
        ...

    def verify_transaction(self, partition: int, transaction: Transaction, done: VerificationDone) -> None:
        """Ask the coordinator of `transaction` whether the partition is in it, or add it there.

        `done(guard, None)`, where the guard is for `append`, or `done(None, error)` follows exactly once, possibly
        before this call has returned. The coordinator is not asked where the transaction is open here already.
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
