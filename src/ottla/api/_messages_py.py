"""Records and deliveries of librdkafka messages: the pure Python twin of `_messages.pyx`, and its reference.

A record wraps the library's message, and reads it only when a field of the record is accessed. The library itself fills
the delivery of a sent record. An additional object per record, or a method call of the interpreter, costs as much as
the library needs for a record.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from itertools import repeat, takewhile
from typing import Any, Generic

from ottla.api.errors import library_error
from ottla.api.records import RK, RV, RecordMetadata
from ottla.client.librdkafka.rdkafka import headers_of
from ottla.client.wire.time_limit import require_seconds
from ottla.common.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

Failure = tuple[ErrorCode, str]
Waiting = list[tuple["Delivery", threading.Event]]


class Record(Generic[RK, RV]):
    """A record that was read. It owns its bytes, which stay valid for its lifetime.

    `message` is that of confluent-kafka; with deserializers it contains the deserialized objects. Records of equal
    messages are equal.
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
        """Epoch of the leader that wrote the record (KIP-320)."""
        epoch: int | None = self.message.leader_epoch()
        return epoch

    @property
    def timestamp_ms(self) -> int | None:
        """Creation time, or with `message.timestamp.type=LogAppendTime` append time; None without a timestamp."""
        kind, timestamp = self.message.timestamp()
        return int(timestamp) if kind else None

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return headers_of(self.message)

    def __eq__(self, other: object) -> bool:
        return bool(self.message == other.message) if isinstance(other, Record) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), *parts_of(self.message))

    def __repr__(self) -> str:
        return f"<Record {self.topic}-{self.partition} at {self.offset}: key {self.key!r}, value {self.value!r}>"


def records_of(messages: list[Any]) -> list[Record[Any, Any]]:
    """The records of the messages before the first error."""
    if messages and any(map(type(messages[0]).error, messages)):
        messages = list(takewhile(lambda message: message.error() is None, messages))
    records = list(map(object.__new__, repeat(Record, len(messages))))
    deque(map(Record.__dict__["message"].__set__, records, messages), 0)
    return records


def parts_of(message: Any) -> tuple[Any, ...]:
    """The parts of a message, from which another process can restore it."""
    return (
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        list(headers_of(message)) or None,
        message.timestamp(),
        message.leader_epoch(),
    )


def restored(kind: Any, *parts: Any) -> Any:
    """A record of a message with these parts."""
    import confluent_kafka

    names = ("topic", "partition", "offset", "key", "value", "headers", "timestamp", "leader_epoch")
    known = {name: part for name, part in zip(names, parts, strict=True) if part is not None}
    return kind(confluent_kafka.Message(**known))


class Delivery:
    """The outcome of a sent record: a future that is filled when the broker has responded.

    `Deliveries` creates classes with the fields that all records of a topic share, and slots stay unset until there is
    a result: creation runs no interpreter code. The library calls the object itself: a bound method would be another
    object for the garbage collector, which visits all records in flight.
    """

    __slots__ = ("_failure", "_offset", "_on_delivery", "_partition")

    topic: str
    _untold: Callable[[Delivery], object]
    _waiting: Waiting
    _tells = False
    _on_delivery: Callable[[Delivery], object]

    @property
    def done(self) -> bool:
        """True once the outcome is known."""
        return hasattr(self, "_offset")

    @property
    def error(self) -> KafkaError | None:
        """The error of a failed delivery."""
        failure: Failure | None = getattr(self, "_failure", None)
        return None if failure is None else KafkaError(*failure)

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait for the delivery; without `timeout_s` as long as `delivery.timeout.ms` permits.

        Raises the KafkaError of the failure, and KafkaError REQUEST_TIMED_OUT after `timeout_s`.
        """
        if not self.done:
            wait_for(self, self._waiting, timeout_s)
        if hasattr(self, "_failure"):
            raise KafkaError(*self._failure)
        return RecordMetadata(self.topic, self._partition, self._offset)

    def __call__(self, error: Any, message: Any) -> None:
        """The library's delivery report; called once, in any thread that serves reports."""
        if error is not None:
            self._failure = failure_of(error, self.topic)
        partition, offset = message.partition(), message.offset()
        self._partition = -1 if partition is None else partition
        self._offset = -1 if offset is None else offset
        if error is not None or self._tells or self._waiting:
            self._settle()

    def refuse(self, reason: Any) -> KafkaError:
        """Handle a record that the library rejected; returns the error."""
        self._failure = failure = failure_of(reason, self.topic)
        self._partition = self._offset = -1
        self._settle()
        return KafkaError(*failure)

    def _settle(self) -> None:
        callback = None
        if hasattr(self, "_on_delivery"):
            callback = self._on_delivery
            del self._on_delivery
        elif hasattr(self, "_failure"):
            callback = self._untold
        tell(self, self._waiting, callback)


class Deliveries:
    """Shared state of the deliveries of one topic of a producer; `untold` receives failures without `on_delivery`."""

    def __init__(self, topic: str, untold: Callable[[Delivery], object]) -> None:
        shared = {"__slots__": (), "topic": topic, "_untold": staticmethod(untold), "_waiting": []}
        self._silent: type[Delivery] = type("Delivery", (Delivery,), shared)
        self._telling: type[Delivery] = type("Delivery", (Delivery,), {**shared, "_tells": True})

    def one(self, on_delivery: Callable[[Delivery], object] | None = None) -> Delivery:
        """The delivery of a record."""
        if on_delivery is None:
            return self._silent()
        delivery = self._telling()
        delivery._on_delivery = on_delivery
        return delivery

    def many(self, count: int) -> list[Delivery]:
        """The deliveries of `count` records."""
        return list(map(object.__new__, repeat(self._silent, count)))


def failure_of(reason: Any, topic: str) -> Failure:
    """The failure of a record from an error of the library."""
    error = library_error(reason, f"a record for topic {topic!r} was not delivered")
    return error.code, error.message


def wait_for(delivery: Delivery, waiting: Waiting, timeout_s: float | None) -> None:
    """Wait for the outcome. Raises KafkaError REQUEST_TIMED_OUT, ValueError for a `timeout_s` of NaN."""
    require_seconds(timeout_s)
    each = (delivery, threading.Event())
    waiting.append(each)
    try:
        # Check again after registering: the delivery thread sets the outcome first, then wakes waiters.
        if not delivery.done and not each[1].wait(timeout_s):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no response from {delivery.topic!r} within {timeout_s:g} s")
    finally:
        waiting.remove(each)


def tell(delivery: Delivery, waiting: Waiting, callback: Callable[[Delivery], object] | None) -> None:
    """Wake the waiters of a completed delivery, and call its callback."""
    for waited_for, event in tuple(waiting):
        if waited_for is delivery:
            event.set()
    if callback is not None:
        try:
            callback(delivery)
        except Exception:
            logger.exception("on_delivery of a record of topic %r failed", delivery.topic)
