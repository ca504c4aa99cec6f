"""Results of coordinator operations, and the codec interface for a shard's typed records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.common.errors import KafkaError

R = TypeVar("R")
RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")

Appended = Callable[[KafkaError | None], None]
"""Called once when the records of a result are committed (None) or have failed (the error)."""


class CoordinatorRecord(NamedTuple):
    """A record in the log's format; without value it is a tombstone."""

    key: bytes
    value: bytes | None


class CoordinatorResult(NamedTuple, Generic[RecordT, ResponseT]):
    """Result of an operation: records to append, and the response to send once they are committed."""

    records: Sequence[RecordT] = ()
    """They take effect together, in one batch, unless `atomic` is False."""
    response: ResponseT = None  # type: ignore[assignment]
    appended: Appended | None = None
    """Called before the operation's `done`, for soft state that depends on the outcome."""
    replay: bool = True
    """False: the operation has changed soft state itself, so the records only serve the next load. On failure
    `appended` has to undo the change, since nothing is reverted for it."""
    atomic: bool = True
    """False: records may be spread over several batches, for housekeeping of any size. Some may take effect although
    the operation fails."""
    reserve_bytes: int = 0
    """Room that the batch must leave below `max.message.bytes`: later records of the same state may be larger, and
    could not be rejected."""


class CoordinatorSerde(Protocol[R]):
    """Pure codec for typed records."""

    def encode(self, record: R) -> CoordinatorRecord: ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """Return None for a record of an unknown type, which is skipped. Raises KafkaError for corrupt bytes."""
        ...

    def without_value(self, key: bytes) -> R | None:
        """Return the record to replay for a key with an undecodable value; None leaves the previous state unchanged.

        Raises KafkaError if the key can't be decoded either.
        """
        ...


EMPTY_RESULT: CoordinatorResult[Any, None] = CoordinatorResult()
"""No records and no response; the result of most timers."""
