"""Share coordinator API for request handlers and the persister: one call for a message of any of its APIs.

A request names share partitions of one group, each of which may be in another shard. Its response has an entry for
each, in the order of the request, and is complete when the last one is committed. Client errors are returned in
responses, never raised. Authorization is done by the request handlers.

The number of waiting requests is bounded by connections, with one request each, and by the persister. A request with
thousands of share partitions runs in slices on the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.share_state import SharePartitionKey
from ottla.common.platform.clock import Clock, Scheduler
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.runtime.slices import SlicedWork
from ottla.coordinator.share import operations
from ottla.coordinator.share.operations import ShareOperation, StateRequest
from ottla.coordinator.share.shard import ShareCoordinatorShard
from ottla.coordinator.share.statistics import ShareCoordinatorStatistics
from ottla.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
)
from ottla.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
)
from ottla.protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
)
from ottla.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from ottla.protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)

BEGUN_AT_ONCE = 64
"""Number of share partitions of one request that are processed in the tick of its arrival."""


class _Api(NamedTuple):
    """An API: the operation on each share partition, and the parts of its response."""

    operation: ShareOperation
    topic_result: Callable[..., Any]
    response: Callable[..., Any]


_APIS: Mapping[type, _Api] = {
    InitializeShareGroupStateRequest: _Api(
        operations.INITIALIZE, InitializeStateResult, InitializeShareGroupStateResponse
    ),
    ReadShareGroupStateRequest: _Api(operations.READ, ReadStateResult, ReadShareGroupStateResponse),
    WriteShareGroupStateRequest: _Api(operations.WRITE, WriteStateResult, WriteShareGroupStateResponse),
    DeleteShareGroupStateRequest: _Api(operations.DELETE, DeleteStateResult, DeleteShareGroupStateResponse),
    ReadShareGroupStateSummaryRequest: _Api(
        operations.SUMMARIZE, ReadStateSummaryResult, ReadShareGroupStateSummaryResponse
    ),
}


class ShareCoordinator:
    """Coordinates the share partitions of all `__share_group_state` partitions that this broker leads."""

    __slots__ = ("_clock", "_runtime", "_sliced", "statistics")

    def __init__(
        self,
        runtime: CoordinatorRuntime[ShareCoordinatorShard],
        statistics: ShareCoordinatorStatistics,
        *,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        self._runtime = runtime
        self.statistics = statistics
        self._clock = clock
        self._sliced = SlicedWork(clock, scheduler)

    def answer(self, message: Any, done: Callable[[Any], None]) -> None:
        """Answer a request of one of the five APIs; calls `done(response)` once, possibly before this returns.

        As in Apache Kafka, the response is empty if the request has no group id, or a topic without partitions.
        Errors of entries: those of `ShareCoordinatorShard` and of `CoordinatorRuntime.schedule_write`.
        """
        api = _APIS[type(message)]
        if not message.group_id or not message.topics or not all(topic.partitions for topic in message.topics):
            done(api.response())
            return
        if api.operation is operations.WRITE:
            done = self._timed(done)
        pending = _PendingResponse(api, message, done)
        steps = self._run(api, message, pending)
        if pending.left <= BEGUN_AT_ONCE:
            for _ in steps:
                pass
        else:
            self._sliced.add(steps)

    def _run(self, api: _Api, message: Any, pending: _PendingResponse) -> Iterator[None]:
        for row, topic in enumerate(message.topics):
            for column, data in enumerate(topic.partitions):
                key = SharePartitionKey(message.group_id, topic.topic_id, data.partition)
                self._runtime.answer(api.operation, None, StateRequest(key, data), pending.entry(row, column))
                yield

    def _timed(self, done: Callable[[Any], None]) -> Callable[[Any], None]:
        started_s = self._clock.monotonic()

        def answered(response: Any) -> None:
            self.statistics.write_answered((self._clock.monotonic() - started_s) * 1000)
            done(response)

        return answered

    def topics_deleted(self, topic_ids: Collection[Uuid]) -> None:
        """Delete the states of deleted topics. A shard that is not loaded now deletes them later by itself."""
        self._runtime.schedule_write_all(
            operations.TOPICS_DELETED, lambda shard: shard.topics_deleted(topic_ids), lambda _results: None
        )


class _PendingResponse:
    """Response of one request, until its last entry has arrived."""

    __slots__ = ("_done", "_response", "left")

    def __init__(self, api: _Api, message: Any, done: Callable[[Any], None]) -> None:
        self._done = done
        self._response = api.response(
            results=[
                api.topic_result(topic_id=topic.topic_id, partitions=[None] * len(topic.partitions))
                for topic in message.topics
            ]
        )
        self.left = sum(len(topic.partitions) for topic in message.topics)

    def entry(self, row: int, column: int) -> Callable[[Any], None]:
        """The callback for one entry."""

        def arrived(result: Any) -> None:
            self._response.results[row].partitions[column] = result
            self.left -= 1
            if not self.left:
                self._done(self._response)

        return arrived
