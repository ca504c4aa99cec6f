"""Share groups of this broker: the group coordinator's operations, and their requests to share coordinators (KIP-932).

The group coordinator is pure and returns the requests with its response. They are sent once its records are committed,
and their outcome is reported to the same group:

| operation | request | outcome |
| --- | --- | --- |
| heartbeat with new partitions | initialize; the response does not wait | the partitions can be assigned |
| AlterShareGroupOffsets | initialize with a start offset | in the response |
| DeleteShareGroupOffsets, DeleteGroups | delete | in the response; the group is deleted last |
| deletion of a topic | delete | the group forgets the topic |
| DescribeShareGroupOffsets | summary | in the response |

A request that fails leaves the group's list as it was: the next heartbeat or the next request repeats it. Left out:
retries of one request (`SharePersister`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.share_state import SharePartitionKey, SharePersister, ShareStateSummary
from ottla.common.platform.clock import Scheduler
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.modern.share.offsets import InitializedTopic
from ottla.coordinator.group.modern.share.work import (
    DeletedState,
    InitializedState,
    OffsetAlteration,
    OffsetDeletion,
    ShareHeartbeat,
    StateDeletion,
    StateInitialization,
)
from ottla.coordinator.group.response_collector import ResponseCollector
from ottla.coordinator.group.responses import error_code
from ottla.coordinator.group.share_operations import ShareGroupOperations
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.server.requests.failures import Failures

R = TypeVar("R")

KEYS_AT_ONCE = 1_000
"""Share partitions of one operation whose requests are sent together; the persister combines them."""

UNKNOWN = -1
"""Start offset, leader epoch or lag that is not known."""

EndOffsets = Callable[[str, Sequence[int]], Awaitable[Mapping[int, int]]]
"""Takes a topic and partitions; returns the high watermarks that are known."""


class ShareGroupService:
    """Share group requests of one broker; each method calls `done` once."""

    __slots__ = (
        "_coordinator",
        "_end_offsets",
        "_failures",
        "_image",
        "_operations",
        "_persister",
        "_scheduler",
        "_tasks",
    )

    def __init__(
        self,
        coordinator: GroupCoordinator,
        operations: ShareGroupOperations,
        persister: SharePersister,
        *,
        image: Callable[[], MetadataImage],
        end_offsets: EndOffsets,
        scheduler: Scheduler,
        failures: Failures,
    ) -> None:
        self._coordinator = coordinator
        self._operations = operations
        self._persister = persister
        self._image = image
        self._end_offsets = end_offsets
        self._scheduler = scheduler
        self._failures = failures
        self._tasks: set[asyncio.Task[None]] = set()
        """Strong references: the loop has none."""

    @property
    def operations(self) -> ShareGroupOperations:
        """Operations that need no share coordinator."""
        return self._operations

    def close(self) -> None:
        """Cancel the requests that are in progress."""
        for task in self._tasks:
            task.cancel()

    # -- requests ------------------------------------------------------------------------------------------------------

    def heartbeat(
        self,
        context: RequestContext,
        request: ShareGroupHeartbeatRequest,
        done: Callable[[ShareGroupHeartbeatResponse], None],
    ) -> None:
        """Handle ShareGroupHeartbeat; the initialization of new partitions starts with the response."""

        def heard(result: ShareHeartbeat) -> None:
            done(result.response)
            if result.initialization is not None:
                self._start(self._initialize(result.initialization))

        self._operations.heartbeat(context, request, heard)

    def alter_offsets(
        self,
        context: RequestContext,
        request: AlterShareGroupOffsetsRequest,
        done: Callable[[AlterShareGroupOffsetsResponse], None],
    ) -> None:
        """Handle AlterShareGroupOffsets."""

        def changed(result: OffsetAlteration) -> None:
            if result.initialization is None:
                done(result.response)
            else:
                self._start(self._alter(result.response, result.initialization, done))

        self._operations.alter_offsets(context, request, changed)

    def delete_offsets(
        self,
        context: RequestContext,
        request: DeleteShareGroupOffsetsRequest,
        done: Callable[[DeleteShareGroupOffsetsResponse], None],
    ) -> None:
        """Handle DeleteShareGroupOffsets."""

        def changed(result: OffsetDeletion) -> None:
            if result.deletion is None:
                done(result.response)
            else:
                self._start(self._delete_offsets(result.response, result.deletion, done))

        self._operations.delete_offsets(context, request, changed)

    def delete_groups(
        self, context: RequestContext, request: DeleteGroupsRequest, done: Callable[[DeleteGroupsResponse], None]
    ) -> None:
        """Handle DeleteGroups for groups of any type: the state of share groups is deleted before the group."""
        names = list(dict.fromkeys(request.groups_names))

        def state_deleted(errors: list[KafkaError | None]) -> None:
            refused = {name: error for name, error in zip(names, errors, strict=True) if error is not None}
            self._delete_groups(context, names, refused, done)

        collector = ResponseCollector[KafkaError | None](len(names), state_deleted)
        for index, name in enumerate(names):
            self._delete_all_state(name, partial(collector.put, index))

    def describe_offsets(
        self,
        request: DescribeShareGroupOffsetsRequest,
        done: Callable[[DescribeShareGroupOffsetsResponse], None],
    ) -> None:
        """Handle DescribeShareGroupOffsets."""
        self._start(self._describe_groups(request, done))

    def topics_deleted(self, topic_ids: frozenset[Uuid]) -> None:
        """Delete the state of deleted topics in the groups of this broker."""

        def changed(deletions: list[StateDeletion]) -> None:
            for deletion in deletions:
                self._start(self._delete_in_background(deletion))

        self._operations.topics_deleted(topic_ids, changed)

    # -- initialization ------------------------------------------------------------------------------------------------

    async def _initialize(self, initialization: StateInitialization) -> dict[SharePartitionKey, KafkaError]:
        """Initialize partitions and report the outcome to the group; return the errors."""

        async def initialize(key: SharePartitionKey) -> None:
            await self._persister.initialize(key, initialization.state_epoch, initialization.start_offsets[key])

        keys = list(initialization.start_offsets)
        errors = _errors(keys, await self._each(keys, initialize))
        outcome = InitializedState(initialization.group_id, frozenset(keys) - errors.keys(), frozenset(errors))
        error = await _awaited(partial(self._operations.state_initialized, outcome))
        if error is not None:
            errors = {key: errors.get(key, error) for key in keys}
        return errors

    async def _alter(
        self,
        response: AlterShareGroupOffsetsResponse,
        initialization: StateInitialization,
        done: Callable[[AlterShareGroupOffsetsResponse], None],
    ) -> None:
        errors = await self._initialize(initialization)
        for topic in response.responses:
            for partition in topic.partitions:
                key = SharePartitionKey(initialization.group_id, topic.topic_id, partition.partition_index)
                error = errors.get(key)
                if error is not None and not partition.error_code:
                    partition.error_code, partition.error_message = error_code(error), error.message or None
        done(response)

    # -- deletion ------------------------------------------------------------------------------------------------------

    async def _delete(self, deletion: StateDeletion) -> dict[Uuid, KafkaError]:
        """Delete state and report the outcome to the group; return the first error of each topic."""
        keys = [key for of_topic in deletion.keys.values() for key in of_topic]
        errors: dict[Uuid, KafkaError] = {}
        for key, error in _errors(keys, await self._each(keys, self._persister.delete)).items():
            errors.setdefault(key.topic_id, error)
        outcome = DeletedState(deletion.group_id, frozenset(deletion.keys) - errors.keys(), frozenset(errors))
        failed = await _awaited(partial(self._operations.state_deleted, outcome))
        if failed is not None:
            errors = {topic_id: errors.get(topic_id, failed) for topic_id in deletion.keys}
        return errors

    async def _delete_in_background(self, deletion: StateDeletion) -> None:
        for error in (await self._delete(deletion)).values():
            self._failures.warn(f"deletion of the share state of group {deletion.group_id}", error.message)
            return

    async def _delete_offsets(
        self,
        response: DeleteShareGroupOffsetsResponse,
        deletion: StateDeletion,
        done: Callable[[DeleteShareGroupOffsetsResponse], None],
    ) -> None:
        errors = await self._delete(deletion)
        for topic in response.responses:
            error = errors.get(topic.topic_id)
            if error is not None and not topic.error_code:
                topic.error_code, topic.error_message = error_code(error), error.message or None
        done(response)

    def _delete_all_state(self, group_id: str, done: Callable[[KafkaError | None], None]) -> None:
        """Delete the state of a share group. `done` gets the error that prevents its deletion."""

        def changed(deletion: StateDeletion | None, error: KafkaError | None) -> None:
            if error is not None and error.code is ErrorCode.NON_EMPTY_GROUP:
                done(error)
            elif deletion is None:
                done(None)  # a group of another type, or without state; other errors occur again in the deletion
            else:
                self._start(self._delete_before_group(deletion, done))

        self._operations.delete_all_state(group_id, changed)

    async def _delete_before_group(self, deletion: StateDeletion, done: Callable[[KafkaError | None], None]) -> None:
        errors = await self._delete(deletion)
        first = next(iter(errors.values()), None)
        done(None if first is None else KafkaError(ErrorCode.GROUP_DELETION_FAILED, first.message))

    def _delete_groups(
        self,
        context: RequestContext,
        names: Sequence[str],
        refused: Mapping[str, KafkaError],
        done: Callable[[DeleteGroupsResponse], None],
    ) -> None:
        def deleted(response: DeleteGroupsResponse) -> None:
            results = {result.group_id: result for result in response.results}
            for name, error in refused.items():
                results[name] = DeletableGroupResult(group_id=name, error_code=error.code)
            done(DeleteGroupsResponse(results=[results[name] for name in names]))

        kept = [name for name in names if name not in refused]
        self._coordinator.delete_groups(context, DeleteGroupsRequest(groups_names=kept), deleted)

    # -- offsets -------------------------------------------------------------------------------------------------------

    async def _describe_groups(
        self,
        request: DescribeShareGroupOffsetsRequest,
        done: Callable[[DescribeShareGroupOffsetsResponse], None],
    ) -> None:
        groups = [await self._describe_group(group) for group in request.groups]
        done(DescribeShareGroupOffsetsResponse(groups=groups))

    async def _describe_group(
        self, group: DescribeShareGroupOffsetsRequestGroup
    ) -> DescribeShareGroupOffsetsResponseGroup:
        """Only partitions with state cause requests; a named partition without state has an unknown offset."""
        response = DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id)
        read_topics: tuple[list[InitializedTopic] | None, KafkaError | None] = await _result(
            partial(self._operations.initialized_topics, group.group_id)
        )
        topics, error = read_topics
        missing = error is not None and error.code is ErrorCode.GROUP_ID_NOT_FOUND
        if error is not None and not (missing and group.topics is not None):
            response.error_code, response.error_message = error_code(error), error.message or None
            return response
        stored = {
            SharePartitionKey(group.group_id, topic.topic_id, number)
            for topic in topics or ()
            for number in topic.partitions
        }
        asked = group.topics
        if asked is None:
            asked = [
                DescribeShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=topic.partitions)
                for topic in topics or ()
            ]
        image = self._image()
        for asked_topic in asked:
            known = image.topic(asked_topic.topic_name)
            row = DescribeShareGroupOffsetsResponseTopic(topic_name=asked_topic.topic_name)
            if known is not None:
                row.topic_id = known.topic_id
            numbers = list(dict.fromkeys(asked_topic.partitions))
            for start in range(0, len(numbers), KEYS_AT_ONCE):
                keys = [
                    SharePartitionKey(group.group_id, row.topic_id, number)
                    for number in numbers[start : start + KEYS_AT_ONCE]
                ]
                read = [key for key in keys if key in stored]
                found = dict(zip(read, await self._each(read, self._persister.summarize), strict=True))
                ends = await self._end_offsets(asked_topic.topic_name, [key.partition for key in read]) if read else {}
                row.partitions += [_partition_row(key, found.get(key), ends.get(key.partition)) for key in keys]
                await asyncio.sleep(0)  # other clients run between the parts of a long request
            response.topics.append(row)
        return response

    # -- requests to share coordinators --------------------------------------------------------------------------------

    async def _each(
        self, keys: Sequence[SharePartitionKey], call: Callable[[SharePartitionKey], Awaitable[R]]
    ) -> list[R | KafkaError]:
        """Call the persister for all keys; return a result or an error for each."""
        results: list[R | KafkaError] = []
        for start in range(0, len(keys), KEYS_AT_ONCE):
            results += await asyncio.gather(*(self._one(key, call) for key in keys[start : start + KEYS_AT_ONCE]))
        return results

    async def _one(self, key: SharePartitionKey, call: Callable[[SharePartitionKey], Awaitable[R]]) -> R | KafkaError:
        try:
            return await call(key)
        except KafkaError as error:
            return error
        except Exception as error:  # a defect in the persister must not leave the group's operation without an outcome
            self._failures(f"share state of group {key.group_id}", error)
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _start(self, work: Coroutine[Any, Any, object]) -> None:
        self._scheduler.call_soon(self._run, work)

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except Exception as error:  # nothing awaits the task
            self._failures("share group", error)


def _partition_row(
    key: SharePartitionKey, found: ShareStateSummary | KafkaError | None, end: int | None
) -> DescribeShareGroupOffsetsResponsePartition:
    row = DescribeShareGroupOffsetsResponsePartition(partition_index=key.partition, start_offset=UNKNOWN)
    if isinstance(found, KafkaError):
        row.error_code, row.error_message = error_code(found), found.message or None
    elif found is not None:
        row.start_offset, row.leader_epoch = found.start_offset, found.leader_epoch
        if end is not None and found.start_offset >= 0 and found.delivery_complete_count >= 0:
            row.lag = max(0, end - found.start_offset - found.delivery_complete_count)
    return row


def _errors(keys: Iterable[SharePartitionKey], results: Iterable[object]) -> dict[SharePartitionKey, KafkaError]:
    return {key: result for key, result in zip(keys, results, strict=True) if isinstance(result, KafkaError)}


async def _result(
    begin: Callable[[Callable[[R | None, KafkaError | None], None]], None],
) -> tuple[R | None, KafkaError | None]:
    """Start an operation; return its result and error."""
    ended: asyncio.Future[tuple[R | None, KafkaError | None]] = asyncio.get_running_loop().create_future()

    def done(result: R | None, error: KafkaError | None) -> None:
        if not ended.done():
            ended.set_result((result, error))

    begin(done)
    return await ended


async def _awaited(begin: Callable[[Callable[[None, KafkaError | None], None]], None]) -> KafkaError | None:
    """Start an operation without a result; return its error."""
    return (await _result(begin))[1]
