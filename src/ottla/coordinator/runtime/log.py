"""Log interface of the coordinator runtime. Implemented on replicas by the server, in memory by tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ottla.common.errors import KafkaError
from ottla.record.control import EndMarker

ReadDone = Callable[[bytes | bytearray | memoryview | None, KafkaError | None], None]
VerificationDone = Callable[[Any, KafkaError | None], None]


class LogOffsets(NamedTuple):
    """Offsets of one partition; ends are exclusive."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int


class Transaction(NamedTuple):
    """The transaction of an operation, as named by its client (KIP-98)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    add: bool
    """True adds the partition to the transaction. Otherwise the client has done that before, which is verified
    (KIP-890)."""


class CoordinatorLog(Protocol):
    """The partitions of one internal topic. All methods run on the loop and raise KafkaError.

    Implementations also call `CoordinatorRuntime.high_watermark_updated(partition, offset)` whenever the high watermark
    of a partition that this broker leads has risen; they may do so inside `append`.

    Implementation: `server.coordination.log`.
    """

    def append(self, partition: int, leader_epoch: int, batch: bytearray, guard: Any = None) -> int:
        """Append one record batch as the leader in `leader_epoch`, with acks=all; return the log end offset.

        `batch` may be patched in place (base offset, leader epoch) and is not retained; `guard` is the result of
        `verify_transaction` for a transactional batch. Raises NOT_LEADER_OR_FOLLOWER in any other leader epoch,
        NOT_ENOUGH_REPLICAS below min.insync.replicas, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE; INVALID_PRODUCER_EPOCH
        and INVALID_TXN_STATE for a transaction.
        """
        ...

    def append_end_marker(self, partition: int, leader_epoch: int, marker: EndMarker) -> int:
        """Append the control batch that ends a transaction, in the same way; return the log end offset.

        Raises the errors of `append`, and TRANSACTION_COORDINATOR_FENCED.
        """
        ...

    def verify_transaction(self, partition: int, transaction: Transaction, done: VerificationDone) -> None:
        """Verify with the coordinator of `transaction` that it contains the partition, or add the partition to it.

        Calls `done(guard, None)`, where the guard is for `append`, or `done(None, error)` exactly once, possibly before
        this call has returned. No request is sent if the transaction is already open in this partition.
        """
        ...

    def max_batch_bytes(self, partition: int) -> int:
        """Return `max.message.bytes` of the topic."""
        ...

    def offsets(self, partition: int) -> LogOffsets:
        """Return the current offsets. Raises NOT_LEADER_OR_FOLLOWER if this broker is not the leader."""
        ...

    def read(self, partition: int, offset: int, max_bytes: int, done: ReadDone) -> None:
        """Read stored batches from the one with `offset` on, beyond the high watermark too.

        The file is read off the loop (BlockingPool); calls `done(records, None)` or `done(None, error)` exactly once,
        never before this call has returned. The first batch is complete, however large; the last one may be cut off. An
        empty result means that no batch exists between `offset` and the log end.
        """
        ...
