"""Share groups (KIP-932) of one shard: heartbeat, leave, describe, and the replay of their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.context import RequestContext, ShardContext
from ottla.coordinator.group.group import GroupType
from ottla.coordinator.group.modern.share.describe import ShareDescriptionSteps, describe_share_group
from ottla.coordinator.group.modern.share.group import NO_ASSIGNMENT_EPOCH, ShareGroup, group_epoch_record
from ottla.coordinator.group.modern.share.heartbeat import ShareGroupHeartbeats
from ottla.coordinator.group.modern.share.member import (
    LEAVE_MEMBER_EPOCH,
    ShareMember,
    removal_records,
    target_from_record,
)
from ottla.coordinator.group.modern.share.requests import validate_heartbeat
from ottla.coordinator.group.modern.share.state_partitions import NO_STATE, from_record
from ottla.coordinator.group.modern.share.timers import ShareTimers
from ottla.coordinator.group.modern.share.work import ShareHeartbeat
from ottla.coordinator.group.modern.subscribed_topics import metadata_hash
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.runtime import CoordinatorResult
from ottla.protocol.messages.coordinator_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.messages.share_group_describe import DescribedGroup
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

R = TypeVar("R")


class ShareProtocolGroups:
    """The share groups of one shard."""

    __slots__ = ("_context", "_created", "_heartbeat", "_timers")

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._timers = ShareTimers(context, lambda group, member: self._remove(group, member, None))
        self._created: ShareGroup | None = None
        """The group that the last operation created, with its hints; the replay of its records registers it."""
        self._heartbeat = ShareGroupHeartbeats(context, self._find_group, self._timers)

    # -- requests ------------------------------------------------------------------------------------------------------

    def heartbeat(
        self, request_context: RequestContext, request: ShareGroupHeartbeatRequest
    ) -> CoordinatorResult[GroupRecord, ShareHeartbeat]:
        """Process ShareGroupHeartbeat. Raises KafkaError, which `GroupCoordinator` converts to the response."""
        validate_heartbeat(request)
        if request.member_epoch != LEAVE_MEMBER_EPOCH:
            return self._heartbeat.heartbeat(request_context, request)
        group = self._find_group(request.group_id, False)
        response = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_MEMBER_EPOCH)
        return self._remove(group, group.member(request.member_id), ShareHeartbeat(response))

    def description(self, group_id: str, committed_offset: int) -> ShareDescriptionSteps:
        """Describe a group as of the committed offset; a group of another type is GROUP_ID_NOT_FOUND."""
        group = self._context.groups.find(group_id, committed_offset)
        if isinstance(group, ShareGroup):
            return describe_share_group(group, committed_offset, self._context.image)
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a share group."
        return ShareDescriptionSteps(
            DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)
        )

    def existing(self, group_id: str, as_of: int | None = None) -> ShareGroup:
        """Return the group. Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self._context.groups.find(group_id, as_of)
        if isinstance(group, ShareGroup):
            return group
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a share group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)

    def _find_group(self, group_id: str, create: bool) -> ShareGroup:
        """Return the group; a new one is registered only when its records are replayed."""
        if create and self._context.groups.find(group_id) is None:
            self._created = ShareGroup(self._context.registry, group_id)
            return self._created
        return self.existing(group_id)

    def _remove(self, group: ShareGroup, member: ShareMember, response: R) -> CoordinatorResult[GroupRecord, R]:
        """Remove a member; the next heartbeat of any other member reassigns. If the append fails, its session starts
        again."""
        names = group.subscribed_topics_after(member, None)
        records = removal_records(group.group_id, member.member_id)
        topics_hash = metadata_hash(names, self._context.image)
        records.append(group_epoch_record(group.group_id, group.group_epoch + 1, topics_hash))
        self._timers.cancel_session(group.group_id, member.member_id)

        def appended(error: KafkaError | None) -> None:
            if error is not None:
                self._timers.schedule_session_of(group, member.member_id)

        return CoordinatorResult(records, response, appended)

    # -- shard lifecycle -----------------------------------------------------------------------------------------------

    def loaded(self) -> None:
        """All records were replayed and this broker coordinates: every member gets a full session to reconnect."""
        for group in self._groups():
            for member_id in group.members:
                self._timers.schedule_session_of(group, member_id)

    def image_changed(self, changed_topics: frozenset[str]) -> None:
        """Topics were created, deleted or extended: the next heartbeat of their groups checks the topics."""
        for group in self._groups():
            if any(group.is_subscribed_to_topic(name) for name in changed_topics):
                group.request_checks()

    def _groups(self) -> list[ShareGroup]:
        return [group for group in self._context.groups.groups() if isinstance(group, ShareGroup)]

    # -- replay --------------------------------------------------------------------------------------------------------

    def replays(self) -> Mapping[type, Callable[[Any, Any], None]]:
        """Return for each class of record key the method that applies (key, value or None)."""
        return {
            ShareGroupMetadataKey: self._replay_group,
            ShareGroupMemberMetadataKey: self._replay_member,
            ShareGroupTargetAssignmentMetadataKey: self._replay_assignment_epoch,
            ShareGroupTargetAssignmentMemberKey: self._replay_target,
            ShareGroupCurrentMemberAssignmentKey: self._replay_current_assignment,
            ShareGroupStatePartitionMetadataKey: self._replay_state,
        }

    def _replayed(self, group_id: str, value: object | None) -> ShareGroup | None:
        """Return the group of a record; a value creates it. A compacted log may have its records in any order."""
        group = self._context.groups.find(group_id)
        if isinstance(group, ShareGroup):
            return group
        if value is None:
            return None
        created, self._created = self._created, None
        if created is None or created.group_id != group_id:
            created = ShareGroup(self._context.registry, group_id)
        self._context.groups.put(created)
        return created

    def _replay_group(self, key: ShareGroupMetadataKey, value: ShareGroupMetadataValue | None) -> None:
        if value is None:
            self._context.groups.remove(key.group_id, GroupType.SHARE)
            return
        group = self._replayed(key.group_id, value)
        if group is not None:
            group.replay_group_epoch(value.epoch, value.metadata_hash)

    def _replay_member(self, key: ShareGroupMemberMetadataKey, value: ShareGroupMemberMetadataValue | None) -> None:
        group = self._replayed(key.group_id, value)
        if group is not None:
            known = group.members.get(key.member_id) or ShareMember(key.member_id)
            group.replay_member(key.member_id, None if value is None else known.with_metadata(value))

    def _replay_assignment_epoch(
        self, key: ShareGroupTargetAssignmentMetadataKey, value: ShareGroupTargetAssignmentMetadataValue | None
    ) -> None:
        group = self._replayed(key.group_id, value)
        if group is None:
            return
        if value is None:
            group.replay_assignment_epoch(NO_ASSIGNMENT_EPOCH, 0)
        else:
            group.replay_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)

    def _replay_target(
        self, key: ShareGroupTargetAssignmentMemberKey, value: ShareGroupTargetAssignmentMemberValue | None
    ) -> None:
        group = self._replayed(key.group_id, value)
        if group is not None:
            group.replay_target(key.member_id, None if value is None else target_from_record(value))

    def _replay_current_assignment(
        self, key: ShareGroupCurrentMemberAssignmentKey, value: ShareGroupCurrentMemberAssignmentValue | None
    ) -> None:
        group = self._replayed(key.group_id, value)
        if group is None:
            return
        known = group.members.get(key.member_id)
        if value is not None:
            group.replay_member(key.member_id, (known or ShareMember(key.member_id)).with_assignment(value))
        elif known is not None:
            group.replay_member(key.member_id, known.without_assignment())

    def _replay_state(
        self, key: ShareGroupStatePartitionMetadataKey, value: ShareGroupStatePartitionMetadataValue | None
    ) -> None:
        group = self._replayed(key.group_id, value)
        if group is not None:
            group.replay_state(NO_STATE if value is None else from_record(value))
