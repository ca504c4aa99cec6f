"""What is sent, and what became of it."""

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


class Delivery:
    """What becomes of a record that was sent: a future that is filled when its broker has answered.

    Each topic of a producer has a class of its own (`deliveries_of`) with what all of them share, and slots are unset
    until there is something to say: to make one takes nothing of the interpreter, which would cost as much as the
    library takes for a record. The library calls the object itself: a method of it would be one more for the garbage
    collector, which looks at all that are on their way.
    """

    __slots__ = ("_error", "_event", "_offset", "_on_delivery", "_partition")

    topic: str
    _untold: Callable[[Delivery], object]
    _waiting: list[threading.Event]
    """Of all threads that wait for one of the class."""

    @property
    def done(self) -> bool:
        """Whether its fate is known."""
        return hasattr(self, "_offset")

    @property
    def error(self) -> KafkaError | None:
        """Why it failed, once it did."""
        return getattr(self, "_error", None)

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait until it is delivered; for ever where no time is given, which `delivery.timeout.ms` bounds.

        Raises the KafkaError that it failed with, and KafkaError REQUEST_TIMED_OUT after `timeout_s`.
        """
        if not self.done:
            self._event = event = getattr(self, "_event", None) or threading.Event()
            self._waiting.append(event)
            try:
                # Looked at again only now: who fills it looks for those who wait after it has said so.
                if not self.done and not event.wait(timeout_s):
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no answer of {self.topic!r} within {timeout_s:g} s")
            finally:
                self._waiting.remove(event)
        if self.error is not None:
            raise self.error
        return RecordMetadata(self.topic, self._partition, self._offset)

    def told_by(self, on_delivery: Callable[[Delivery], object]) -> Callable[[Any, Any], None]:
        """What the library is to call in place of the object itself."""
        self._on_delivery = on_delivery
        return self._report_and_tell

    def __call__(self, error: Any, message: Any) -> None:
        """The library's delivery report; once, from whichever thread serves it."""
        if error is not None:
            self._error = self._failure(error)
        self._partition = message.partition()
        self._offset = message.offset()
        if error is not None or self._waiting:
            self._settle()

    def _report_and_tell(self, error: Any, message: Any) -> None:
        if error is not None:
            self._error = self._failure(error)
        self._partition = message.partition()
        self._offset = message.offset()
        self._settle()

    def refuse(self, reason: Any) -> KafkaError:
        """The library would not take it; gives its error."""
        self._error = failure = self._failure(reason)
        self._partition = self._offset = -1
        self._settle()
        return failure

    def _failure(self, reason: Any) -> KafkaError:
        return library_error(reason, f"a record for topic {self.topic!r} was not delivered")

    def _settle(self) -> None:
        event, on_delivery = getattr(self, "_event", None), getattr(self, "_on_delivery", None)
        if event is not None:
            event.set()
        if on_delivery is not None:
            try:
                on_delivery(self)
            except Exception:
                logger.exception("on_delivery of a record of topic %r failed", self.topic)
        elif self.error is not None:
            self._untold(self)


def deliveries_of(topic: str, untold: Callable[[Delivery], object]) -> type[Delivery]:
    """The class of deliveries of a producer's topic; `untold` gets those that failed and have no `on_delivery`."""
    shared = {"__slots__": (), "topic": topic, "_untold": staticmethod(untold), "_waiting": []}
    return type("Delivery", (Delivery,), shared)
