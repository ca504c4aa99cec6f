"""`Record` and how the library's messages become some: the pure twin of `_received.pyx`, and its reference.

A record is the library's message and nothing else, asked when somebody asks the record: what makes an object more for
a record, or calls a method of the interpreter's for it, costs as much as the library takes for one.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat, takewhile
from typing import Any, Generic

from ottla.api.records import RK, RV


class Record(Generic[RK, RV]):
    """A record that was read. Its bytes are its own, and stay for as long as it does.

    `message` is confluent-kafka's; where there are deserializers it holds what they gave. Equal are records of
    equal messages.
    """

    __slots__ = ("message",)

    message: Any

    def __init__(self, message: Any) -> None:
        self.message = message

    @property
    def key(self) -> RK | None:
        key: RK | None = self.message.key()
        return key

    @property
    def value(self) -> RV | None:
        value: RV | None = self.message.value()
        return value

    @property
    def topic(self) -> str:
        topic: str = self.message.topic()
        return topic

    @property
    def partition(self) -> int:
        partition: int = self.message.partition()
        return partition

    @property
    def offset(self) -> int:
        offset: int = self.message.offset()
        return offset

    @property
    def leader_epoch(self) -> int | None:
        """Of the leader that wrote it (KIP-320)."""
        epoch: int | None = self.message.leader_epoch()
        return epoch

    @property
    def timestamp_ms(self) -> int | None:
        """When it was made, or with `message.timestamp.type=LogAppendTime` appended; None where it has none."""
        kind, timestamp = self.message.timestamp()
        return int(timestamp) if kind else None

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return tuple(self.message.headers() or ())

    def __eq__(self, other: object) -> bool:
        return bool(self.message == other.message) if isinstance(other, Record) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), *parts_of(self.message))

    def __repr__(self) -> str:
        return f"<Record {self.topic}-{self.partition} at {self.offset}: key {self.key!r}, value {self.value!r}>"


def records_of(messages: list[Any]) -> list[Record[Any, Any]]:
    """A record of each message, up to the first that is an error."""
    if messages and any(map(type(messages[0]).error, messages)):
        messages = list(takewhile(lambda message: message.error() is None, messages))
    records = list(map(object.__new__, repeat(Record, len(messages))))
    deque(map(Record.__dict__["message"].__set__, records, messages), 0)
    return records


def parts_of(message: Any) -> tuple[Any, ...]:
    """What a message is made of again in another process."""
    return (
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.headers(),
        message.timestamp(),
        message.leader_epoch(),
    )


def restored(kind: Any, *parts: Any) -> Any:
    """A record of a message of such parts."""
    import confluent_kafka

    names = ("topic", "partition", "offset", "key", "value", "headers", "timestamp", "leader_epoch")
    known = {name: part for name, part in zip(names, parts, strict=True) if part is not None}
    return kind(confluent_kafka.Message(**known))
