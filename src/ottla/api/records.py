"""Records to send, and the metadata of delivered ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # a TypeVar without a default is sufficient at run time

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
"""An encoder. It is not called for None, a missing key or a tombstone."""
Deserializer = Callable[[bytes], RK]
"""A decoder; None stays None."""


def deserialize(
    message: Any, key_deserializer: Deserializer[RK] | None, value_deserializer: Deserializer[RV] | None
) -> None:
    """Replace key and value of a message of the library by the results of the deserializers; raises their errors."""
    if key_deserializer is not None and (key := message.key()) is not None:
        message.set_key(key_deserializer(key))
    if value_deserializer is not None and (value := message.value()) is not None:
        message.set_value(value_deserializer(value))


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
    """Location of a delivered record. `offset` is -1 with acks=0, for which brokers return none."""

    topic: str
    partition: int
    offset: int
