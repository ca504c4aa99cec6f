"""One kind of work of a coordinator, declared as a row: its name, whose shard it runs on, and how it is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.common.errors import KafkaError

ContextT = TypeVar("ContextT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class CoordinatorOperation(NamedTuple, Generic[ContextT, RequestT, ResponseT]):
    """What `CoordinatorRuntime.submit` and `answer` run. The context says who asks, the request what for."""

    name: str
    """As Apache Kafka's coordinators name it; in failures, log lines and metrics."""
    key: Callable[[RequestT], str]
    """Whose shard it is, such as the group id. Raises KafkaError for a key that nobody can have."""
    run: Callable[..., Any]
    """`run(context, request, shard)` returns a CoordinatorResult; one that reads is `run(context, request, shard, last
    committed offset)` and returns the response itself. Raises KafkaError to refuse."""
    refused: Callable[[ContextT, RequestT, KafkaError], ResponseT]
    """The response that carries an error."""
    answered: Callable[[ContextT, RequestT, Any], ResponseT] | None = None
    """The response made of the shard's; None: it is that."""
    reads: bool = False
    """Sees what is committed and writes nothing."""
