"""What operations of a coordinator return, and how a shard's typed records become bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.common.errors import KafkaError

R = TypeVar("R")
RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")

Appended = Callable[[KafkaError | None], None]
"""Told once the records of a result are committed (None) or that they will not be (why not)."""


class CoordinatorRecord(NamedTuple):
    """A record as it lies in the log; no value: a tombstone."""

    key: bytes
    value: bytes | None


class CoordinatorResult(NamedTuple, Generic[RecordT, ResponseT]):
    """What an operation wants to happen: records to append, and the response once they are committed."""

    records: Sequence[RecordT] = ()
    """They take effect together: one batch, unless `atomic` is off."""
    response: ResponseT = None  # type: ignore[assignment]
    appended: Appended | None = None
    """Called before the operation's `done`, for soft state that waits for the outcome."""
    replay: bool = True
    """Off: the operation has made the change itself (soft state), so the records are only for the next load; on failure
    `appended` must undo what needs undoing, since nothing is reverted for it."""
    atomic: bool = True
    """Off: records may be spread over several batches, for housekeeping of any size; some may take effect although the
    operation fails."""
    reserve_bytes: int = 0
    """Room that the batch must leave below `max.message.bytes`: later records of the same state may need more, and
    could not be refused."""


class CoordinatorSerde(Protocol[R]):
    """Typed records <-> bytes. Pure."""

    def encode(self, record: R) -> CoordinatorRecord: ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """None for a record of a type that is not known here: it is skipped. Raises KafkaError for damaged bytes."""
        ...

    def without_value(self, key: bytes) -> R | None:
        """What to replay for a record whose value can't be read; None to keep what was known before.

        Raises KafkaError where the key can't be read either.
        """
        ...


EMPTY_RESULT: CoordinatorResult[Any, None] = CoordinatorResult()
"""Nothing to append, nothing to say; what most timers return."""
