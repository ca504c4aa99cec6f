"""What is sent, what is received, and what became of what was sent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from ottla.api.errors import library_error
from ottla.common.errors import ErrorCode, KafkaError

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

logger = logging.getLogger(__name__)

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


class Record(NamedTuple, Generic[RK, RV]):
    """A record that was read. Its bytes are its own, and stay for as long as it does.

    `message` is confluent-kafka's; what is not asked for often is read from it.
    """

    message: Any
    key: RK | None
    value: RV | None

    @property
    def topic(self) -> str:
        return str(self.message.topic())

    @property
    def partition(self) -> int:
        return int(self.message.partition())

    @property
    def offset(self) -> int:
        return int(self.message.offset())

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

    def __repr__(self) -> str:
        return f"<Record {self.topic}-{self.partition} at {self.offset}: key {self.key!r}, value {self.value!r}>"


class Delivery:
    """What becomes of a record that was sent: a future that is filled when its broker has answered."""

    __slots__ = ("_event", "_offset", "_on_delivery", "_partition", "_seen", "_untold", "error", "topic")

    def __init__(
        self, topic: str, on_delivery: Callable[[Delivery], object] | None, untold: Callable[[Delivery], object]
    ) -> None:
        """`untold` gets it when it failed and there is no `on_delivery`."""
        self.topic = topic
        self.error: KafkaError | None = None
        """Why it failed, once it did."""
        self._on_delivery = on_delivery
        self._untold = untold
        self._event: threading.Event | None = None
        self._seen = False

    @property
    def done(self) -> bool:
        """Whether its fate is known."""
        return self._seen

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait until it is delivered; for ever where no time is given, which `delivery.timeout.ms` bounds.

        Raises the KafkaError that it failed with, and KafkaError REQUEST_TIMED_OUT after `timeout_s`.
        """
        if not self._seen:
            self._event = event = self._event or threading.Event()
            # Looked at again only now: who fills it looks for the event after it has said so.
            if not self._seen and not event.wait(timeout_s):
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no answer of {self.topic!r} within {timeout_s:g} s")
        if self.error is not None:
            raise self.error
        return RecordMetadata(self.topic, self._partition, self._offset)

    def report(self, error: Any, message: Any) -> None:
        """The library's delivery report; called once, from whichever thread serves it."""
        self._partition = message.partition()
        self._offset = message.offset()
        if error is not None:
            self.error = self._failure(error)
        self._settle()

    def refuse(self, reason: Any) -> KafkaError:
        """The library would not take it; gives its error."""
        self.error = self._failure(reason)
        self._settle()
        return self.error

    def _failure(self, reason: Any) -> KafkaError:
        return library_error(reason, f"a record for topic {self.topic!r} was not delivered")

    def _settle(self) -> None:
        self._seen = True
        if self._event is not None:
            self._event.set()
        if self._on_delivery is not None:
            try:
                self._on_delivery(self)
            except Exception:
                logger.exception("on_delivery of a record of topic %r failed", self.topic)
        elif self.error is not None:
            self._untold(self)
