"""Table of the share coordinator's shard operations, one row for each API.

A request is one share partition with its entry of the message; the response is its entry of the response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.share_keys import MAX_GROUP_ID_BYTES, coordinator_key
from ottla.common.kafka.share_state import SharePartitionKey, ShareState, ShareStateSummary, StateBatch
from ottla.coordinator.runtime import CoordinatorOperation
from ottla.coordinator.share.shard import MAX_BATCHES
from ottla.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)

TOPICS_DELETED = "delete-state-of-deleted-topics"
"""Name of the operation that removes the states of deleted topics."""


class StateRequest(NamedTuple):
    """One share partition of a request."""

    key: SharePartitionKey
    data: Any
    """The entry of the request, a `PartitionData`."""


ShareOperation = CoordinatorOperation[None, StateRequest, Any]


def _key(request: StateRequest) -> str:
    if len(request.key.group_id.encode()) > MAX_GROUP_ID_BYTES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A group id has at most {MAX_GROUP_ID_BYTES} bytes.")
    return coordinator_key(request.key)


def _refused(result: Callable[..., Any]) -> Callable[[None, StateRequest, KafkaError], Any]:
    def refused(context: None, request: StateRequest, error: KafkaError) -> Any:
        return result(
            partition=request.key.partition, error_code=error.code, error_message=error.message or error.code.name
        )

    return refused


def _done(result: Callable[..., Any]) -> Callable[[None, StateRequest, Any], Any]:
    return lambda context, request, answer: result(partition=request.key.partition)


INITIALIZE: ShareOperation = CoordinatorOperation(
    "initialize-share-group-state",
    key=_key,
    run=lambda context, request, shard: shard.initialize(
        request.key, request.data.state_epoch, request.data.start_offset
    ),
    refused=_refused(initialize_share_group_state.PartitionResult),
    answered=_done(initialize_share_group_state.PartitionResult),
)


def _state(context: None, request: StateRequest, state: ShareState) -> read_share_group_state.PartitionResult:
    return read_share_group_state.PartitionResult(
        partition=request.key.partition,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=[
            read_share_group_state.StateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=batch.state,
                delivery_count=batch.delivery_count,
            )
            for batch in state.batches
        ],
    )


READ: ShareOperation = CoordinatorOperation(
    "read-update-leader-epoch-state",
    key=_key,
    run=lambda context, request, shard: shard.read(request.key, request.data.leader_epoch),
    refused=_refused(read_share_group_state.PartitionResult),
    answered=_state,
)


def _write(context: None, request: StateRequest, shard: Any) -> Any:
    data = request.data
    if len(data.state_batches) > MAX_BATCHES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A share partition has at most {MAX_BATCHES} state batches.")
    batches = tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in data.state_batches
    )
    return shard.write(
        request.key, data.state_epoch, data.leader_epoch, data.start_offset, data.delivery_complete_count, batches
    )


WRITE: ShareOperation = CoordinatorOperation(
    "write-share-group-state",
    key=_key,
    run=_write,
    refused=_refused(write_share_group_state.PartitionResult),
    answered=_done(write_share_group_state.PartitionResult),
)

DELETE: ShareOperation = CoordinatorOperation(
    "delete-share-group-state",
    key=_key,
    run=lambda context, request, shard: shard.delete(request.key),
    refused=_refused(delete_share_group_state.PartitionResult),
    answered=_done(delete_share_group_state.PartitionResult),
)


def _summary(
    context: None, request: StateRequest, summary: ShareStateSummary
) -> read_share_group_state_summary.PartitionResult:
    return read_share_group_state_summary.PartitionResult(
        partition=request.key.partition,
        state_epoch=summary.state_epoch,
        leader_epoch=summary.leader_epoch,
        start_offset=summary.start_offset,
        delivery_complete_count=summary.delivery_complete_count,
    )


SUMMARIZE: ShareOperation = CoordinatorOperation(
    "read-share-group-state-summary",
    key=_key,
    run=lambda context, request, shard, committed: shard.summarize(request.key, request.data.leader_epoch, committed),
    refused=_refused(read_share_group_state_summary.PartitionResult),
    answered=_summary,
    reads=True,
)
