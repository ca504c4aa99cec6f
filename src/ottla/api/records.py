"""What is sent, and where it got to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # at run time one without a default does

    Bytes = bytes | str
    K = TypeVar("K", default=Bytes)
    V = TypeVar("V", default=Bytes)
    RK = TypeVar("RK", default=bytes)
    RV = TypeVar("RV", default=bytes)
else:
    from typing import TypeVar

    Bytes = bytes | str
    K, V, RK, RV = TypeVar("K"), TypeVar("V"), TypeVar("RK"), TypeVar("RV")

Headers = Sequence[tuple[str, bytes | None]]
Serializer = Callable[[K], bytes | None]
"""An encoder. It is not asked for None, which is a record's missing key or a tombstone."""
Deserializer = Callable[[bytes], RK]
"""A decoder; None stays None."""


@dataclass(slots=True)
class ProducerRecord(Generic[K, V]):
    """A record to send; `partition` None leaves the choice to the partitioner, `timestamp_ms` None to the clock."""

    topic: str
    value: V | None
    key: K | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class RecordMetadata(NamedTuple):
    """Where a record got to. `offset` is -1 with acks=0, which tells none."""

    topic: str
    partition: int
    offset: int
