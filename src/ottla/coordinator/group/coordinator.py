"""The group coordinator as request handlers see it: one method for each API, each answers through `done`, once.

A method checks what needs no group, finds the shard by the group id, schedules the work on it and puts errors where the
API carries them: nothing is raised for what a client did. `done` may be called before the method returns. Topic names
and ids of commits and fetches are resolved here, against the image at the time of the request (`offsets.requests`).
Access checks are the handlers' business, before they come here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid
from ottla.coordinator.group import responses
from ottla.coordinator.group.classic.member import request_protocols
from ottla.coordinator.group.config import GroupCoordinatorConfig
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.member_memory import protocols_bytes
from ottla.coordinator.group.offsets import requests as offset_requests
from ottla.coordinator.group.reply import Gathering, Reply
from ottla.coordinator.group.shard import GroupCoordinatorShard
from ottla.coordinator.runtime import CoordinatorRuntime, CoordinatorState
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

T = TypeVar("T")

MAX_STORED_STRING_BYTES = 32_767
"""Strings of group metadata have a length of 16 bits in the log; a group id or instance id beyond is refused."""

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_SYNC_WITH_PROTOCOL = 5
LAST_VERSION_WITH_ONE_LEAVING = 2


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

        def finished(_: None, error: KafkaError | None) -> None:
            reply.settle(error)
            if error is not None:
                reply.answer(
                    JoinGroupResponse(
                        member_id=request.member_id, error_code=responses.error_code(error), protocol_name=None
                    )
                )

        reply = Reply(answer)
        try:
            self._check_join(request)
            partition = self._partition(request.group_id)
        except KafkaError as error:
            finished(None, error)
            return
        self._runtime.schedule_write(partition, lambda shard: shard.classic_join(context, request, reply), finished)

    def _check_join(self, request: JoinGroupRequest) -> None:
        config = self._config()
        timeout_ms = request.session_timeout_ms
        _check_group_id(request.group_id)
        if not config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        stored = [request.group_instance_id or "", request.protocol_type, *(each.name for each in request.protocols)]
        # A dynamic member's id starts with the client id, a static one's with the instance id, a UUID follows.
        if any(len(text.encode()) > MAX_STORED_STRING_BYTES - 64 for text in stored):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if protocols_bytes(request_protocols(request)) > config.group_member_max_bytes:
            raise KafkaError(ErrorCode.INVALID_REQUEST)

    def sync_group(
        self, context: RequestContext, request: SyncGroupRequest, done: Callable[[SyncGroupResponse], None]
    ) -> None:
        """Answers when the leader's assignment is committed."""

        def finished(_: None, error: KafkaError | None) -> None:
            reply.settle(error)
            if error is not None:
                reply.answer(SyncGroupResponse(error_code=responses.error_code(error)))

        reply = Reply(done)
        try:
            named = request.protocol_type is not None and request.protocol_name is not None
            if context.api_version >= FIRST_SYNC_WITH_PROTOCOL and not named:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)  # KIP-559
            if any(len(each.assignment) > self._config().group_member_max_bytes for each in request.assignments):
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # as for one that the log of the group refuses
            partition = self._partition(request.group_id)
        except KafkaError as error:
            finished(None, error)
            return
        self._runtime.schedule_write(partition, lambda shard: shard.classic_sync(context, request, reply), finished)

    def heartbeat(
        self, context: RequestContext, request: HeartbeatRequest, done: Callable[[HeartbeatResponse], None]
    ) -> None:
        """Answers at once. While the group is being loaded members are told that all is well."""

        def finished(response: HeartbeatResponse | None, error: KafkaError | None) -> None:
            code = responses.error_code(error)
            if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                code = ErrorCode.NONE
            done(response or HeartbeatResponse(error_code=code))

        try:
            partition = self._partition(request.group_id)
        except KafkaError as error:
            finished(None, error)
            return
        self._runtime.schedule_write(partition, lambda shard: shard.classic_heartbeat(context, request), finished)

    def leave_group(
        self, context: RequestContext, request: LeaveGroupRequest, done: Callable[[LeaveGroupResponse], None]
    ) -> None:
        """Answers for each member; before version 3 for the one there is."""
        if context.api_version <= LAST_VERSION_WITH_ONE_LEAVING:
            request.members = [MemberIdentity(member_id=request.member_id)]

        def finished(response: LeaveGroupResponse | None, error: KafkaError | None) -> None:
            done(responses.leave_group(context, request, response, error))

        try:
            partition = self._partition(request.group_id)
        except KafkaError as error:
            finished(None, error)
            return
        self._runtime.schedule_write(partition, lambda shard: shard.classic_leave(context, request), finished)

    def describe_groups(
        self, context: RequestContext, request: DescribeGroupsRequest, done: Callable[[DescribeGroupsResponse], None]
    ) -> None:
        """Classic groups as of what is committed; authorized operations are the handler's to add."""
        gathering = Gathering[DescribedGroup](
            len(request.groups), lambda groups: done(DescribeGroupsResponse(groups=groups))
        )
        for index, group_id in enumerate(request.groups):
            self._describe_group(context, group_id, partial(gathering.put, index))

    def _describe_group(self, context: RequestContext, group_id: str, put: Callable[[DescribedGroup], None]) -> None:
        def finished(response: DescribedGroup | None, error: KafkaError | None) -> None:
            put(response or responses.described_group(group_id, error))

        def operation(shard: GroupCoordinatorShard, committed_offset: int) -> DescribedGroup:
            return shard.classic.describe([group_id], context, committed_offset)[0]

        self._read_group(group_id, operation, finished)

    # -- consumer groups (KIP-848) -------------------------------------------------------------------------------------

    def consumer_group_heartbeat(
        self,
        context: RequestContext,
        request: ConsumerGroupHeartbeatRequest,
        done: Callable[[ConsumerGroupHeartbeatResponse], None],
    ) -> None:
        """Answers when what it changed is committed. The shard checks the request itself."""

        def finished(response: ConsumerGroupHeartbeatResponse | None, error: KafkaError | None) -> None:
            done(response or responses.consumer_group_heartbeat(error))

        if not request.group_id:
            finished(None, KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty."))
            return
        try:
            partition = self._partition(request.group_id)
        except KafkaError as error:
            finished(None, error)
            return
        self._runtime.schedule_write(partition, lambda shard: shard.consumer.heartbeat(context, request), finished)

    def consumer_group_describe(
        self,
        context: RequestContext,
        request: ConsumerGroupDescribeRequest,
        done: Callable[[ConsumerGroupDescribeResponse], None],
    ) -> None:
        """Consumer groups as of what is committed; authorized operations are the handler's to add."""
        gathering = Gathering[DescribedConsumerGroup](
            len(request.group_ids), lambda groups: done(ConsumerGroupDescribeResponse(groups=groups))
        )
        for index, group_id in enumerate(request.group_ids):
            self._describe_consumer_group(group_id, partial(gathering.put, index))

    def _describe_consumer_group(self, group_id: str, put: Callable[[DescribedConsumerGroup], None]) -> None:
        def finished(response: DescribedConsumerGroup | None, error: KafkaError | None) -> None:
            put(response or responses.described_consumer_group(group_id, error))

        def operation(shard: GroupCoordinatorShard, committed_offset: int) -> DescribedConsumerGroup:
            return shard.consumer.describe([group_id], committed_offset)[0]

        self._read_group(group_id, operation, finished, may_be_empty=False)

    # -- groups of any type --------------------------------------------------------------------------------------------

    def list_groups(
        self, context: RequestContext, request: ListGroupsRequest, done: Callable[[ListGroupsResponse], None]
    ) -> None:
        """All groups of this broker; while some are being loaded, COORDINATOR_LOAD_IN_PROGRESS and none."""

        def finished(listed: list[list[ListedGroup]], error: KafkaError | None) -> None:
            if error is not None:
                done(ListGroupsResponse(error_code=responses.error_code(error)))
            else:
                done(ListGroupsResponse(groups=[group for groups in listed for group in groups]))

        states, types = request.states_filter, request.types_filter
        self._runtime.schedule_read_all(lambda shard, committed: shard.list_groups(states, types, committed), finished)

    def delete_groups(
        self, context: RequestContext, request: DeleteGroupsRequest, done: Callable[[DeleteGroupsResponse], None]
    ) -> None:
        """Each group is answered for itself; of one that is named twice the first counts."""
        names = list(dict.fromkeys(request.groups_names))
        gathering = Gathering[DeletableGroupResult](
            len(names), lambda results: done(DeleteGroupsResponse(results=results))
        )
        for index, group_id in enumerate(names):
            self._delete_group(context, group_id, partial(gathering.put, index))

    def _delete_group(
        self, context: RequestContext, group_id: str, put: Callable[[DeletableGroupResult], None]
    ) -> None:
        def finished(response: list[DeletableGroupResult] | None, error: KafkaError | None) -> None:
            if response:
                put(response[0])
            else:
                put(DeletableGroupResult(group_id=group_id, error_code=responses.error_code(error)))

        try:
            partition = self._partition(group_id, may_be_empty=True)
        except KafkaError as error:
            finished(None, error)
            return
        self._runtime.schedule_write(partition, lambda shard: shard.delete_groups([group_id], context), finished)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def offset_commit(
        self, context: RequestContext, request: OffsetCommitRequest, done: Callable[[OffsetCommitResponse], None]
    ) -> None:
        """Answers when the offsets are committed; each partition for itself. The empty group id is allowed."""
        plan = offset_requests.plan_commit(context, request, self._image())
        if not plan.accepted.topics:
            done(plan.response(None, None))
            return

        def finished(response: OffsetCommitResponse | None, error: KafkaError | None) -> None:
            done(plan.response(response, error))

        try:
            partition = self._partition(request.group_id, may_be_empty=True)
        except KafkaError as error:
            finished(None, error)
            return
        self._runtime.schedule_write(partition, lambda shard: shard.offsets.commit(context, plan.accepted), finished)

    def offset_fetch(
        self, context: RequestContext, request: OffsetFetchRequest, done: Callable[[OffsetFetchResponse], None]
    ) -> None:
        """One group before version 8, several from there on; each is answered for itself."""
        image = self._image()
        groups = offset_requests.fetch_groups(context, request)
        gathering = Gathering[OffsetFetchResponseGroup](
            len(groups), lambda answers: done(offset_requests.fetch_response(context, answers))
        )
        for index, group in enumerate(groups):
            plan = offset_requests.plan_fetch(context, group, image)
            self._fetch(plan, request.require_stable, partial(gathering.put, index))

    def _fetch(
        self,
        plan: offset_requests.FetchPlan,
        require_stable: bool,
        put: Callable[[OffsetFetchResponseGroup], None],
    ) -> None:
        group = plan.accepted

        def finished(response: OffsetFetchResponseGroup | None, error: KafkaError | None) -> None:
            put(plan.response(response, error))

        if not require_stable:
            self._read_group(group.group_id, lambda shard, committed: shard.offsets.fetch(group, committed), finished)
            return
        try:
            partition = self._partition(group.group_id, may_be_empty=True)
        except KafkaError as error:
            finished(None, error)
            return
        # As a write, it sees commits that are on their way, and is answered when those are committed.
        self._runtime.schedule_write(partition, lambda shard: shard.offsets.fetch_stable(group), finished)

    def offset_delete(
        self, context: RequestContext, request: OffsetDeleteRequest, done: Callable[[OffsetDeleteResponse], None]
    ) -> None:
        """Each partition is answered for itself."""
        known, unknown = offset_requests.split_delete(request, self._image())

        def finished(response: OffsetDeleteResponse | None, error: KafkaError | None) -> None:
            if response is None:
                done(OffsetDeleteResponse(error_code=responses.error_code(error)))
                return
            response.topics += unknown
            done(response)

        try:
            partition = self._partition(request.group_id)
        except KafkaError as error:
            finished(None, error)
            return
        self._runtime.schedule_write(partition, lambda shard: shard.offsets.delete(known), finished)

    # -- loading -------------------------------------------------------------------------------------------------------

    def is_loading(self, group_id: str) -> bool:
        """Whether requests for the group would be answered COORDINATOR_LOAD_IN_PROGRESS."""
        runtime = self._runtime
        return runtime.is_started and runtime.state(runtime.partition_for(group_id)) is CoordinatorState.LOADING

    def after_loading(self, group_ids: Iterable[str], then: Callable[[], None]) -> None:
        """Call `then()` when none of the groups is being loaded, or after a while."""
        loading = {self._runtime.partition_for(group_id) for group_id in group_ids if self.is_loading(group_id)}
        left = len(loading)
        if not left:
            then()

        def one_ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for partition in loading:
            self._runtime.after_loading(partition, one_ended)

    # -- changes of the metadata ---------------------------------------------------------------------------------------

    def image_changed(self, changed_topics: frozenset[str], deleted_topics: Iterable[tuple[str, Uuid]]) -> None:
        """After the image changed: offsets of deleted topics (name, id) go, consumer groups see new partitions."""
        deleted = list(deleted_topics)
        if deleted:
            self._runtime.schedule_write_all(lambda shard: shard.offsets.topics_deleted(deleted), lambda outcomes: None)
        for _, shard in self._runtime.active_shards():
            shard.consumer.image_changed(changed_topics)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _partition(self, group_id: str, *, may_be_empty: bool = False) -> int:
        """Raises KafkaError INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE."""
        _check_group_id(group_id, may_be_empty=may_be_empty)
        return self._runtime.partition_for(group_id)

    def _read_group(
        self,
        group_id: str,
        operation: Callable[[GroupCoordinatorShard, int], T],
        finished: Callable[[T | None, KafkaError | None], None],
        *,
        may_be_empty: bool = True,
    ) -> None:
        try:
            partition = self._partition(group_id, may_be_empty=may_be_empty)
        except KafkaError as error:
            finished(None, error)
            return
        self._runtime.schedule_read(partition, operation, finished)


def _check_group_id(group_id: str, *, may_be_empty: bool = False) -> None:
    """APIs that clients used before groups had members take the empty id too, as in Apache Kafka."""
    if (not group_id and not may_be_empty) or len(group_id.encode()) > MAX_STORED_STRING_BYTES:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
