"""The group coordinator as request handlers see it: one method for each API, each answers through `done`, once.

A method checks what needs no group and hands an operation to the runtime (`operations`: by which id the shard is found,
what is done there, how an error looks): nothing is raised for what a client did. `done` may be called before the method
returns. Topic names and ids of commits and fetches are resolved here, against the image at the time of the request
(`offsets.requests`). Access checks are the handlers' business, before they come here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.shares import finish
from ottla.coordinator.group import operations, responses
from ottla.coordinator.group.classic.member import request_protocols
from ottla.coordinator.group.config import GroupCoordinatorConfig
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.member_memory import protocols_bytes
from ottla.coordinator.group.modern.consumer.describe import Described
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
"""Groups that one step of a list looks at."""


class GroupCoordinator:
    """All groups whose partition of `__consumer_offsets` this broker leads."""

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
        """Answers when the rebalance is over, which may take up to the group's rebalance timeout."""
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
        # A dynamic member's id starts with the client id, a static one's with the instance id, a UUID follows.
        if any(len(text.encode()) > operations.MAX_STORED_STRING_BYTES - 64 for text in stored):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if protocols_bytes(request_protocols(request)) > config.group_member_max_bytes:
            raise KafkaError(ErrorCode.INVALID_REQUEST)

    def sync_group(
        self, context: RequestContext, request: SyncGroupRequest, done: Callable[[SyncGroupResponse], None]
    ) -> None:
        """Answers when the leader's assignment is committed."""
        self._await(operations.SYNC, self._check_sync, context, DeferredRequest(request, Reply(done)))

    def _check_sync(self, context: RequestContext, request: SyncGroupRequest) -> None:
        named = request.protocol_type is not None and request.protocol_name is not None
        if context.api_version >= FIRST_SYNC_WITH_PROTOCOL and not named:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)  # KIP-559
        if any(len(each.assignment) > self._config().group_member_max_bytes for each in request.assignments):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # as for one that the log of the group refuses

    def _await(
        self,
        operation: CoordinatorOperation[RequestContext, DeferredRequest[Q, R], R],
        check: Callable[[RequestContext, Q], None],
        context: RequestContext,
        awaited: DeferredRequest[Q, R],
    ) -> None:
        """The group answers by the reply, now or when its rebalance goes on; what fails before that answers here."""
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
        """Answers at once."""
        self._runtime.answer(operations.HEARTBEAT, context, request, done)

    def leave_group(
        self, context: RequestContext, request: LeaveGroupRequest, done: Callable[[LeaveGroupResponse], None]
    ) -> None:
        """Answers for each member; before version 3 for the one there is."""
        if context.api_version <= responses.LAST_VERSION_WITH_ONE_LEAVING:
            request.members = [MemberIdentity(member_id=request.member_id)]
        self._runtime.answer(operations.LEAVE, context, request, done)

    def describe_groups(
        self, context: RequestContext, request: DescribeGroupsRequest, done: Callable[[DescribeGroupsResponse], None]
    ) -> None:
        """Classic groups as of what is committed; authorized operations are the handler's to add."""
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
        """Answers when what it changed is committed. The shard checks the request itself."""
        self._runtime.answer(operations.CONSUMER_HEARTBEAT, context, request, done)

    def consumer_group_describe(
        self,
        context: RequestContext,
        request: ConsumerGroupDescribeRequest,
        done: Callable[[ConsumerGroupDescribeResponse], None],
    ) -> None:
        """Consumer groups as of what is committed, at once: `consumer_group_description` without a pause."""
        self.consumer_group_description(context, request, lambda steps: done(finish(steps)))

    def consumer_group_description(
        self,
        context: RequestContext,
        request: ConsumerGroupDescribeRequest,
        done: Callable[[Generator[None, None, ConsumerGroupDescribeResponse]], None],
    ) -> None:
        """The same in short steps; authorized operations are the handler's to add."""
        self._gather(operations.CONSUMER_DESCRIBE, context, request.group_ids, lambda groups: done(_described(groups)))

    # -- groups of any type --------------------------------------------------------------------------------------------

    def list_groups(
        self, context: RequestContext, request: ListGroupsRequest, done: Callable[[ListGroupsResponse], None]
    ) -> None:
        """All groups of this broker, at once: `listing` without a pause."""
        done(finish(self.listing(request)))

    def listing(self, request: ListGroupsRequest) -> Generator[None, None, ListGroupsResponse]:
        """All groups of this broker in short steps; while some are being loaded, COORDINATOR_LOAD_IN_PROGRESS and none.

        Each step reads what is committed then: a group that is gone by its step is left out.
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
        """Each group is answered for itself; of one that is named twice the first counts."""
        names = list(dict.fromkeys(request.groups_names))
        self._gather(operations.DELETE, context, names, lambda results: done(DeleteGroupsResponse(results=results)))

    # -- offsets -------------------------------------------------------------------------------------------------------

    def offset_commit(
        self, context: RequestContext, request: OffsetCommitRequest, done: Callable[[OffsetCommitResponse], None]
    ) -> None:
        """Answers when the offsets are committed; each partition for itself. The empty group id is allowed."""
        plan = offset_requests.plan_commit(context, request, self._image())
        if plan.accepted.topics:
            self._runtime.answer(operations.COMMIT_OFFSETS, context, plan, done)
        else:
            done(plan.response(None, None))

    def txn_offset_commit(
        self, context: RequestContext, request: TxnOffsetCommitRequest, done: Callable[[TxnOffsetCommitResponse], None]
    ) -> None:
        """Answers when the offsets are stored, pending until their transaction ends; each partition for itself."""
        plan = offset_requests.plan_transactional_commit(context, request, self._image())
        if plan.commit.accepted.topics:
            self._runtime.answer_in_transaction(
                operations.COMMIT_TRANSACTIONAL_OFFSETS, context, plan, plan.transaction, done
            )
        else:
            done(plan.response(None, None))

    def offset_fetch(
        self, context: RequestContext, request: OffsetFetchRequest, done: Callable[[OffsetFetchResponse], None]
    ) -> None:
        """One group before version 8, several from there on; each is answered for itself."""
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
        """Each partition is answered for itself."""
        plan = offset_requests.plan_delete(request, self._image())
        self._runtime.answer(operations.DELETE_OFFSETS, context, plan, done)

    def _gather(
        self,
        operation: CoordinatorOperation[RequestContext, T, U],
        context: RequestContext,
        requests: Sequence[T],
        done: Callable[[list[U]], None],
    ) -> None:
        """Groups are answered one by one, each for its place in the response."""
        gathering = ResponseCollector(len(requests), done)
        for index, request in enumerate(requests):
            self._runtime.answer(operation, context, request, partial(gathering.put, index))

    # -- changes of the metadata ---------------------------------------------------------------------------------------

    def image_changed(self, changed_topics: frozenset[str], deleted_topics: Iterable[tuple[str, Uuid]]) -> None:
        """After the image changed: offsets of deleted topics (name, id) go, consumer groups see new partitions."""
        deleted = list(deleted_topics)
        if deleted:
            self._runtime.schedule_write_all(
                operations.TOPICS_DELETED, lambda shard: shard.offsets.topics_deleted(deleted), lambda outcomes: None
            )
        for _, shard in self._runtime.active_shards():
            shard.consumer.image_changed(changed_topics)


def _listed(
    wanted: GroupFilter, group_ids: Sequence[str], shard: GroupCoordinatorShard, committed_offset: int
) -> list[ListedGroup]:
    return shard.list_groups(wanted, group_ids, committed_offset)


def _described(groups: Sequence[Described]) -> Generator[None, None, ConsumerGroupDescribeResponse]:
    for group in groups:
        yield from group.members
    return ConsumerGroupDescribeResponse(groups=[group.row for group in groups])
