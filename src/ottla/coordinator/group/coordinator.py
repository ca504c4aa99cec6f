"""Group coordinator API for request handlers: one method for each Kafka API, each calls `done` exactly once.

A method runs the checks that need no group, then submits an operation to the runtime. `operations` defines for each
operation the key that selects the shard, the handler and the error response. Client errors are returned in responses,
never raised. `done` may be called before the method returns. Topic names and ids of commits and fetches are resolved
here, against the image at the time of the request (`offsets.requests`). Authorization is done by the request handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group import operations, responses
from ottla.coordinator.group.classic.member import request_protocols
from ottla.coordinator.group.config import GroupCoordinatorConfig
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.member_memory import protocols_bytes
from ottla.coordinator.group.modern.consumer.describe import GroupDescriptionSteps
from ottla.coordinator.group.offsets import requests as offset_requests
from ottla.coordinator.group.operations import DeferredRequest, Q, R
from ottla.coordinator.group.response_collector import Reply, ResponseCollector
from ottla.coordinator.group.shard import GroupCoordinatorShard, GroupFilter
from ottla.coordinator.runtime import CoordinatorOperation, CoordinatorRuntime
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

T = TypeVar("T")
U = TypeVar("U")

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_SYNC_WITH_PROTOCOL = 5
GROUPS_PER_STEP = 128
"""Number of groups that one step of a listing reads."""


class GroupCoordinator:
    """Coordinates the groups of all `__consumer_offsets` partitions that this broker leads."""

    __slots__ = ("_config", "_image", "_runtime")

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupCoordinatorShard],
        config: Callable[[], GroupCoordinatorConfig],
        image: Callable[[], MetadataImage],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._image = image

    # -- classic groups ------------------------------------------------------------------------------------------------

    def join_group(
        self, context: RequestContext, request: JoinGroupRequest, done: Callable[[JoinGroupResponse], None]
    ) -> None:
        """Responds when the rebalance completes, after at most the group's rebalance timeout."""
        if context.api_version < FIRST_VERSION_WITH_REBALANCE_TIMEOUT:
            request.rebalance_timeout_ms = request.session_timeout_ms

        def answer(response: JoinGroupResponse) -> None:
            if response.protocol_name is None and context.api_version < FIRST_VERSION_WITH_NULL_PROTOCOL:
                response.protocol_name = ""
            done(response)

        self._await(operations.JOIN, self._check_join, context, DeferredRequest(request, Reply(answer)))

    def _check_join(self, _context: RequestContext, request: JoinGroupRequest) -> None:
        config = self._config()
        timeout_ms = request.session_timeout_ms
        operations.named_group(request.group_id)
        if not config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        stored = [request.group_instance_id or "", request.protocol_type, *(each.name for each in request.protocols)]
        # Room for the member id: client id (dynamic member) or instance id (static member), then a UUID.
        if any(len(text.encode()) > operations.MAX_STORED_STRING_BYTES - 64 for text in stored):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if protocols_bytes(request_protocols(request)) > config.group_member_max_bytes:
            raise KafkaError(ErrorCode.INVALID_REQUEST)

    def sync_group(
        self, context: RequestContext, request: SyncGroupRequest, done: Callable[[SyncGroupResponse], None]
    ) -> None:
        """Responds when the leader's assignment is committed."""
        self._await(operations.SYNC, self._check_sync, context, DeferredRequest(request, Reply(done)))

    def _check_sync(self, context: RequestContext, request: SyncGroupRequest) -> None:
        named = request.protocol_type is not None and request.protocol_name is not None
        if context.api_version >= FIRST_SYNC_WITH_PROTOCOL and not named:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)  # KIP-559
        if any(len(each.assignment) > self._config().group_member_max_bytes for each in request.assignments):
            # same code as for an assignment that the group's log rejects
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _await(
        self,
        operation: CoordinatorOperation[RequestContext, DeferredRequest[Q, R], R],
        check: Callable[[RequestContext, Q], None],
        context: RequestContext,
        awaited: DeferredRequest[Q, R],
    ) -> None:
        """Submit an operation that the group answers through its reply: at once, or when the rebalance completes.
        Errors before that point are answered here."""
        reply = awaited.reply

        def finished(_: None, error: KafkaError | None) -> None:
            reply.settle(error)
            if error is not None:
                reply.answer(operation.refused(context, awaited, error))

        try:
            check(context, awaited.request)
        except KafkaError as error:
            finished(None, error)
            return
        self._runtime.submit(operation, context, awaited, finished)

    def heartbeat(
        self, context: RequestContext, request: HeartbeatRequest, done: Callable[[HeartbeatResponse], None]
    ) -> None:
        """Responds immediately."""
        self._runtime.answer(operations.HEARTBEAT, context, request, done)

    def leave_group(
        self, context: RequestContext, request: LeaveGroupRequest, done: Callable[[LeaveGroupResponse], None]
    ) -> None:
        """Responds for each member; before version 3 the request names exactly one."""
        if context.api_version <= responses.LAST_VERSION_WITH_ONE_LEAVING:
            request.members = [MemberIdentity(member_id=request.member_id)]
        self._runtime.answer(operations.LEAVE, context, request, done)

    def describe_groups(
        self, context: RequestContext, request: DescribeGroupsRequest, done: Callable[[DescribeGroupsResponse], None]
    ) -> None:
        """Describes committed classic groups; the request handler adds the authorized operations."""
        self._gather(
            operations.DESCRIBE, context, request.groups, lambda groups: done(DescribeGroupsResponse(groups=groups))
        )

    # -- consumer groups (KIP-848) -------------------------------------------------------------------------------------

    def consumer_group_heartbeat(
        self,
        context: RequestContext,
        request: ConsumerGroupHeartbeatRequest,
        done: Callable[[ConsumerGroupHeartbeatResponse], None],
    ) -> None:
        """Responds when the resulting records are committed. The shard validates the request."""
        self._runtime.answer(operations.CONSUMER_HEARTBEAT, context, request, done)

    def consumer_group_description(
        self,
        context: RequestContext,
        request: ConsumerGroupDescribeRequest,
        done: Callable[[Generator[None, None, ConsumerGroupDescribeResponse]], None],
    ) -> None:
        """Describe committed consumer groups in short steps; the request handler adds the authorized operations."""
        self._gather(operations.CONSUMER_DESCRIBE, context, request.group_ids, lambda groups: done(_described(groups)))

    # -- groups of any type --------------------------------------------------------------------------------------------

    def listing(self, request: ListGroupsRequest) -> Generator[None, None, ListGroupsResponse]:
        """List all groups of this broker in short steps.

        Returns COORDINATOR_LOAD_IN_PROGRESS and no groups while a partition is loading. Each step reads the state that
        is committed then: a group deleted before its step is left out.
        """
        wanted = GroupFilter(request.states_filter, request.types_filter)
        found: list[ListedGroup] = []
        failed: list[KafkaError] = []

        def read(groups: list[ListedGroup] | None, error: KafkaError | None) -> None:
            if error is not None:
                failed.append(error)
            else:
                found.extend(groups or ())

        self._runtime.schedule_read_all(
            operations.LIST, lambda shard, _: None, lambda _, error: None if error is None else failed.append(error)
        )
        for partition, shard in () if failed else self._runtime.active_shards():
            ids = list(shard.context.groups.ids())
            for start in range(0, len(ids), GROUPS_PER_STEP):
                some = ids[start : start + GROUPS_PER_STEP]
                self._runtime.schedule_read(operations.LIST, partition, partial(_listed, wanted, some), read)
                yield
        errors = [error for error in failed if error.code is not ErrorCode.NOT_COORDINATOR]
        if errors:
            return ListGroupsResponse(error_code=responses.error_code(errors[0]))
        return ListGroupsResponse(groups=found)

    def delete_groups(
        self, context: RequestContext, request: DeleteGroupsRequest, done: Callable[[DeleteGroupsResponse], None]
    ) -> None:
        """Responds for each group; duplicate names are merged."""
        names = list(dict.fromkeys(request.groups_names))
        self._gather(operations.DELETE, context, names, lambda results: done(DeleteGroupsResponse(results=results)))

    # -- offsets -------------------------------------------------------------------------------------------------------

    def offset_commit(
        self, context: RequestContext, request: OffsetCommitRequest, done: Callable[[OffsetCommitResponse], None]
    ) -> None:
        """Responds when the offsets are committed, with a result for each partition. The empty group id is allowed."""
        plan = offset_requests.plan_commit(context, request, self._image())
        if plan.accepted.topics:
            self._runtime.answer(operations.COMMIT_OFFSETS, context, plan, done)
        else:
            done(plan.response(None, None))

    def txn_offset_commit(
        self, context: RequestContext, request: TxnOffsetCommitRequest, done: Callable[[TxnOffsetCommitResponse], None]
    ) -> None:
        """Responds when the offsets are stored; they are pending until their transaction ends. Results are per
        partition."""
        plan, transaction = offset_requests.plan_transactional_commit(context, request, self._image())
        if plan.accepted.topics:
            self._runtime.answer_in_transaction(
                operations.COMMIT_TRANSACTIONAL_OFFSETS, context, plan, transaction, done
            )
        else:
            done(plan.response(None, None))

    def offset_fetch(
        self, context: RequestContext, request: OffsetFetchRequest, done: Callable[[OffsetFetchResponse], None]
    ) -> None:
        """The request has one group before version 8, several from version 8 on; results are per group."""
        image = self._image()
        plans = [
            offset_requests.plan_fetch(context, group, image)
            for group in offset_requests.fetch_groups(context, request)
        ]
        self._gather(
            operations.FETCH_STABLE_OFFSETS if request.require_stable else operations.FETCH_OFFSETS,
            context,
            plans,
            lambda answers: done(offset_requests.fetch_response(context, answers)),
        )

    def offset_delete(
        self, context: RequestContext, request: OffsetDeleteRequest, done: Callable[[OffsetDeleteResponse], None]
    ) -> None:
        """Responds with a result for each partition."""
        plan = offset_requests.plan_delete(request, self._image())
        self._runtime.answer(operations.DELETE_OFFSETS, context, plan, done)

    def _gather(
        self,
        operation: CoordinatorOperation[RequestContext, T, U],
        context: RequestContext,
        requests: Sequence[T],
        done: Callable[[list[U]], None],
    ) -> None:
        """Submit one operation for each group and collect the responses in request order."""
        collector = ResponseCollector(len(requests), done)
        for index, request in enumerate(requests):
            self._runtime.answer(operation, context, request, partial(collector.put, index))

    # -- metadata changes ----------------------------------------------------------------------------------------------

    def image_changed(self, changed_topics: frozenset[str], deleted_topics: Iterable[tuple[str, Uuid]]) -> None:
        """Apply a new image: delete offsets of deleted topics (name, id), notify consumer and share groups of new
        partitions."""
        deleted = list(deleted_topics)
        if deleted:
            self._runtime.schedule_write_all(
                operations.TOPICS_DELETED, lambda shard: shard.offsets.topics_deleted(deleted), lambda outcomes: None
            )
        for _, shard in self._runtime.active_shards():
            shard.consumer.image_changed(changed_topics)
            shard.share.image_changed(changed_topics)


def _listed(
    wanted: GroupFilter, group_ids: Sequence[str], shard: GroupCoordinatorShard, committed_offset: int
) -> list[ListedGroup]:
    return shard.list_groups(wanted, group_ids, committed_offset)


def _described(groups: Sequence[GroupDescriptionSteps]) -> Generator[None, None, ConsumerGroupDescribeResponse]:
    for group in groups:
        yield from group.members
    return ConsumerGroupDescribeResponse(groups=[group.row for group in groups])
