"""Interceptors of producers and consumers (KIP-42). Their exceptions are logged and have no other effect."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from ottla.api.messages import Delivery, Record
from ottla.api.records import ProducerRecord
from ottla.common.kafka.topic_partition import TopicPartition

logger = logging.getLogger(__name__)
T = TypeVar("T")


class ProducerInterceptor(Protocol):
    """Intercepts records before they are sent, and their acknowledgements."""

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """Called with a record of the caller; the returned record is sent."""
        ...

    def on_acknowledgement(self, delivery: Delivery) -> None:
        """Called with the outcome of a record, in the producer's thread."""
        ...


class ConsumerInterceptor(Protocol):
    """Intercepts records that a consumer returns, and commits."""

    def on_consume(self, records: list[Record[Any, Any]]) -> list[Record[Any, Any]]:
        """Called with records; the returned ones are passed to the caller instead."""
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Called with committed offsets."""
        ...


@contextmanager
def logged(interceptor: object, method: str) -> Iterator[None]:
    """Log exceptions of an interceptor call in the block."""
    try:
        yield
    except Exception:
        logger.exception("%s of %r failed", method, interceptor)


def require(returned: Any, kind: type[T]) -> T:
    """Check the result of an interceptor. Raises TypeError, for `logged`: the previous value is then used."""
    if not isinstance(returned, kind):
        raise TypeError(f"it returned {type(returned).__name__}, not {kind.__name__}")
    return returned
