"""The group coordinator as request handlers see it: one method for each API, each answers through `done`, once.

A method checks what needs no group, finds the shard by the group id, schedules the work on it and puts errors where the
API carries them: nothing is raised for what a client did. Topic names and ids of commits and fetches are resolved here,
against the image at the time of the request. Access checks are the handlers' business, before they come here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.config import GroupCoordinatorConfig
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.reply import Gathering, Reply
from ottla.coordinator.group.shard import GroupCoordinatorShard
from ottla.coordinator.runtime import CoordinatorRuntime
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
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


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
        ...

    def sync_group(
        self, context: RequestContext, request: SyncGroupRequest, done: Callable[[SyncGroupResponse], None]
    ) -> None:
        """Answers when the leader's assignment is committed."""
        ...

    def heartbeat(
        self, context: RequestContext, request: HeartbeatRequest, done: Callable[[HeartbeatResponse], None]
    ) -> None: ...

    def leave_group(
        self, context: RequestContext, request: LeaveGroupRequest, done: Callable[[LeaveGroupResponse], None]
    ) -> None: ...

    def describe_groups(
        self, context: RequestContext, request: DescribeGroupsRequest, done: Callable[[DescribeGroupsResponse], None]
    ) -> None: ...

    # -- consumer groups (KIP-848) -------------------------------------------------------------------------------------

    def consumer_group_heartbeat(
        self,
        context: RequestContext,
        request: ConsumerGroupHeartbeatRequest,
        done: Callable[[ConsumerGroupHeartbeatResponse], None],
    ) -> None: ...

    def consumer_group_describe(
        self,
        context: RequestContext,
        request: ConsumerGroupDescribeRequest,
        done: Callable[[ConsumerGroupDescribeResponse], None],
    ) -> None: ...

    # -- groups of any type --------------------------------------------------------------------------------------------

    def list_groups(
        self, context: RequestContext, request: ListGroupsRequest, done: Callable[[ListGroupsResponse], None]
    ) -> None: ...

    def delete_groups(
        self, context: RequestContext, request: DeleteGroupsRequest, done: Callable[[DeleteGroupsResponse], None]
    ) -> None: ...

    def offset_commit(
        self, context: RequestContext, request: OffsetCommitRequest, done: Callable[[OffsetCommitResponse], None]
    ) -> None: ...

    def offset_fetch(
        self, context: RequestContext, request: OffsetFetchRequest, done: Callable[[OffsetFetchResponse], None]
    ) -> None: ...

    def offset_delete(
        self, context: RequestContext, request: OffsetDeleteRequest, done: Callable[[OffsetDeleteResponse], None]
    ) -> None: ...

    # -- changes of the metadata ---------------------------------------------------------------------------------------

    def image_changed(self, changed_topics: frozenset[str], deleted_topics: frozenset[str]) -> None:
        """Called by the metadata publisher: offsets of deleted topics go, consumer groups see new partitions."""
        ...
