"""What a program hangs into its producers and consumers (KIP-42). What it raises is logged and has no other effect."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from ottla.api.messages import Delivery, Record
from ottla.api.records import ProducerRecord
from ottla.client.wire.model import Position

logger = logging.getLogger(__name__)
T = TypeVar("T")


class ProducerInterceptor(Protocol):
    """Sees every record on its way out and back."""

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """A record as the caller gave it; what is returned is sent."""
        ...

    def on_acknowledgement(self, delivery: Delivery) -> None:
        """The fate of a record; in the producer's thread."""
        ...


class ConsumerInterceptor(Protocol):
    """Sees what a consumer gives out and commits."""

    def on_consume(self, records: list[Record[Any, Any]]) -> list[Record[Any, Any]]:
        """What is returned is given out in their place."""
        ...

    def on_commit(self, offsets: Mapping[Position, int]) -> None:
        """Offsets that were committed."""
        ...


@contextmanager
def logged(interceptor: object, method: str) -> Iterator[None]:
    """Log what the block raises, which calls a method of an interceptor."""
    try:
        yield
    except Exception:
        logger.exception("%s of %r failed", method, interceptor)


def require(returned: Any, kind: type[T]) -> T:
    """What a method of an interceptor returned. Raises TypeError, for `logged`: what was there before counts then."""
    if not isinstance(returned, kind):
        raise TypeError(f"it returned {type(returned).__name__}, not {kind.__name__}")
    return returned
