"""Declaration of a coordinator operation: its name, the key that selects its shard, and its responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.common.errors import KafkaError

ContextT = TypeVar("ContextT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class CoordinatorOperation(NamedTuple, Generic[ContextT, RequestT, ResponseT]):
    """Argument of `CoordinatorRuntime.submit` and `answer`; runs with a context (the client) and a request."""

    name: str
    """Apache Kafka's name of the operation; used in failures, log lines and metrics."""
    key: Callable[[RequestT], str]
    """Returns the key that selects the shard, such as the group id. Raises KafkaError for an invalid key."""
    run: Callable[..., Any]
    """`run(context, request, shard)` returns a CoordinatorResult. An operation that reads is `run(context, request,
    shard, last committed offset)` and returns the response itself. Raises KafkaError to reject the request."""
    refused: Callable[[ContextT, RequestT, KafkaError], ResponseT]
    """Builds the response for an error."""
    answered: Callable[[ContextT, RequestT, Any], ResponseT] | None = None
    """Builds the response from the shard's result; None returns the result unchanged."""
    reads: bool = False
    """True reads the committed state and writes nothing."""
