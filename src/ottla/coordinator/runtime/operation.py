"""Declaration of a coordinator operation: its name, the key that selects its shard, and its responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.common.errors import KafkaError

ContextT = TypeVar("ContextT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
ContextT_contra = TypeVar("ContextT_contra", contravariant=True)
RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
ResponseT_co = TypeVar("ResponseT_co", covariant=True)


class ShardCall(Protocol):
    """Runs an operation on its shard.

    Implementations: the rows of `coordinator.group.operations`, `coordinator.transaction.operations` and
    `coordinator.share.operations`. They call methods of `coordinator.group.shard.GroupCoordinatorShard`,
    `coordinator.transaction.shard.TransactionShard` and `coordinator.share.shard.ShareCoordinatorShard`.
    """

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """`run(context, request, shard)` returns a CoordinatorResult. An operation that reads is `run(context, request,
        shard, last committed offset)` and returns the response itself. Raises KafkaError to reject the request."""


class OperationRefusal(Protocol[ContextT_contra, RequestT_contra, ResponseT_co]):
    """Builds the response for an error.

    Implementations: the rows of `coordinator.group.operations` and `coordinator.transaction.operations`, by
    `coordinator.group.responses` and `coordinator.transaction.responses`; the rows of `coordinator.share.operations`.
    """

    def __call__(self, context: ContextT_contra, request: RequestT_contra, error: KafkaError, /) -> ResponseT_co:
        """Return the response."""


class OperationAnswer(Protocol[ContextT_contra, RequestT_contra, ResponseT_co]):
    """Builds the response from the shard's result.

    Implementations: the rows of `coordinator.group.operations`, `coordinator.transaction.operations` and
    `coordinator.share.operations`.
    """

    def __call__(self, context: ContextT_contra, request: RequestT_contra, result: Any, /) -> ResponseT_co:
        """Return the response."""


class CoordinatorOperation(NamedTuple, Generic[ContextT, RequestT, ResponseT]):
    """Argument of `CoordinatorRuntime.submit` and `answer`; runs with a context (the client) and a request."""

    name: str
    """Apache Kafka's name of the operation; used in failures, log lines and metrics."""
    key: Callable[[RequestT], str]
    """Returns the key that selects the shard, such as the group id. Raises KafkaError for an invalid key."""
    run: ShardCall
    refused: OperationRefusal[ContextT, RequestT, ResponseT]
    answered: OperationAnswer[ContextT, RequestT, ResponseT] | None = None
    """None returns the result unchanged."""
    reads: bool = False
    """True reads the committed state and writes nothing."""
