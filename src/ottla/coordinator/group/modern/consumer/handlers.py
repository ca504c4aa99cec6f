"""Consumer groups (KIP-848) of one shard: heartbeat, leave, describe, and the replay of their records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.logs import RATE_LIMITED
from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.classic.member import JoinReply, SyncReply
from ottla.coordinator.group.classic.rebalance import Rebalance, Result, join_error
from ottla.coordinator.group.context import RequestContext, ShardContext
from ottla.coordinator.group.group import GroupType
from ottla.coordinator.group.modern.consumer.classic_members import ClassicMembers
from ottla.coordinator.group.modern.consumer.describe import GroupDescriptionSteps, describe_consumer_group
from ottla.coordinator.group.modern.consumer.group import NO_ASSIGNMENT_EPOCH, ConsumerGroup, ResolvedRegex
from ottla.coordinator.group.modern.consumer.heartbeat import ConsumerHeartbeat, known_static_member
from ottla.coordinator.group.modern.consumer.member import (
    LEAVE_STATIC_MEMBER_EPOCH,
    ConsumerMember,
    removal_records,
    target_from_record,
)
from ottla.coordinator.group.modern.consumer.migration import can_downgrade, check_upgrade, upgrade
from ottla.coordinator.group.modern.consumer.regexes import (
    RegexSubscriptions,
    group_epoch_record,
    regex_tombstone,
    unused_regexes,
)
from ottla.coordinator.group.modern.consumer.requests import is_leave, validate_heartbeat
from ottla.coordinator.group.modern.consumer.timers import ConsumerTimers
from ottla.coordinator.group.modern.subscribed_topics import metadata_hash
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.runtime import CoordinatorResult
from ottla.protocol.messages.consumer_group_describe import DescribedGroup
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest

logger = logging.getLogger(__name__)

R = TypeVar("R")


class ConsumerGroups:
    """The consumer groups of one shard."""

    __slots__ = ("_classic", "_context", "_heartbeat", "_known_topics", "_regexes", "_timers")

    def __init__(self, context: ShardContext, rebalance: Rebalance) -> None:
        """`rebalance` belongs to the classic groups; a group that changes its protocol uses it."""
        self._context = context
        self._timers = ConsumerTimers(context, self._fence_member)
        self._regexes = RegexSubscriptions(context)
        self._heartbeat = ConsumerHeartbeat(context, self._find_group, self._regexes, self._timers)
        self._classic = ClassicMembers(
            context, self._heartbeat, self._regexes, self._timers, rebalance, self._leave_members
        )
        self._known_topics: Mapping[str, object] = context.image.topics

    # -- requests ------------------------------------------------------------------------------------------------------

    def heartbeat(
        self, request_context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> CoordinatorResult[GroupRecord, ConsumerGroupHeartbeatResponse]:
        """Process ConsumerGroupHeartbeat. Raises KafkaError, which `GroupCoordinator` converts to the response."""
        validate_heartbeat(request, request_context.api_version, self._context.config.group_consumer_assignors)
        if is_leave(request):
            return self._leave(request)
        return self._heartbeat.heartbeat(request_context, request)

    def description(self, group_id: str, committed_offset: int) -> GroupDescriptionSteps:
        """Describe a group as of the committed offset; a group of another type is GROUP_ID_NOT_FOUND."""
        context = self._context
        group = context.groups.find(group_id, committed_offset)
        if isinstance(group, ConsumerGroup):
            default_assignor = context.config.group_consumer_assignors[0]
            return describe_consumer_group(group, committed_offset, default_assignor, context.image)
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        return GroupDescriptionSteps(
            DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)
        )

    def _find_group(self, group_id: str, create: bool, records: list[GroupRecord]) -> ConsumerGroup:
        """Return the group; a new one is registered only when its records are replayed."""
        group = self._context.groups.find(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is None:
            if not create:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            return ConsumerGroup(self._context.registry, group_id)
        if create and isinstance(group, ClassicGroup):
            return self._upgrade(group, records)
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")

    def _upgrade(self, group: ClassicGroup, records: list[GroupRecord]) -> ConsumerGroup:
        if not group.is_empty():
            check_upgrade(group, self._context.config)
        upgraded = upgrade(group, self._context.registry, self._context.image, records)
        for member in group:
            # Members that wait in the classic rebalance rejoin and find a consumer group. If the append fails, they
            # find the classic group unchanged; the timers of one type ignore groups of the other.
            group.answer_join(member, join_error(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))
            member.answer_sync(ErrorCode.REBALANCE_IN_PROGRESS)
        for upgraded_member in upgraded.members.values():
            self._timers.schedule_life(group.group_id, upgraded_member)
        logger.info(
            "upgrading: group %s with %d members becomes a consumer group",
            group.group_id,
            len(group.members),
            extra=RATE_LIMITED,
        )
        return upgraded

    # -- leaving -------------------------------------------------------------------------------------------------------

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest
    ) -> CoordinatorResult[GroupRecord, ConsumerGroupHeartbeatResponse]:
        group = self._find_group(request.group_id, False, [])
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            return self._leave_members(group, [group.member(request.member_id)], response)
        existing = group.static_member(request.instance_id)
        member = known_static_member(existing, request.member_id, request.instance_id)
        if request.member_epoch != LEAVE_STATIC_MEMBER_EPOCH:
            return self._leave_members(group, [member], response)
        return CoordinatorResult([member.left_for_a_while().assignment_record(group.group_id)], response)

    def _leave_members(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember], response: R
    ) -> CoordinatorResult[GroupRecord, R]:
        """Remove members that left. If the append fails, their sessions restart and expire later."""

        result = self._fence_members(group, members, response)

        def appended(error: KafkaError | None) -> None:
            if result.appended is not None:
                result.appended(error)
            if error is not None:
                self._timers.schedule_lives_of(group, [member.member_id for member in members])

        return result._replace(appended=appended)

    def _fence_member(self, group: ConsumerGroup, member: ConsumerMember) -> CoordinatorResult[GroupRecord, None]:
        """Remove a member for a timer, which retries on failure."""
        return self._fence_members(group, [member], None)

    def _fence_members(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember], response: R
    ) -> CoordinatorResult[GroupRecord, R]:
        """Remove members. Their partitions become free, and the next heartbeat of any member reassigns them."""
        group_id = group.group_id
        if not members:
            return CoordinatorResult((), response)
        if can_downgrade(group, [member.member_id for member in members], self._context.config):
            result = self._classic.downgrade(group, members, None, rebalance=True)
            return CoordinatorResult(result.records, response, result.appended, replay=result.replay)
        records: list[GroupRecord] = []
        for member in members:
            records += removal_records(group_id, member.member_id)
        records += [regex_tombstone(group_id, regex) for regex in unused_regexes(group, members)]
        topics = group.subscribed_topics_after([(member, None) for member in members])
        topics_hash = metadata_hash(topics, self._context.image)
        records.append(group_epoch_record(group_id, group.group_epoch + 1, topics_hash))
        for member in members:
            self._timers.cancel_all(group_id, member.member_id)
        return CoordinatorResult(records, response)

    # -- classic protocol members of consumer groups (online migration) ------------------------------------------------

    def classic_join(self, request_context: RequestContext, request: JoinGroupRequest, reply: JoinReply) -> Result:
        """Handle JoinGroup for a non-empty consumer group."""
        return self._classic.join(self._live(request.group_id), request_context, request, reply)

    def classic_sync(self, request_context: RequestContext, request: SyncGroupRequest, reply: SyncReply) -> Result:
        """Handle SyncGroup of a consumer group member."""
        return self._classic.sync(self._live(request.group_id), request, reply)

    def classic_heartbeat(
        self, request_context: RequestContext, request: HeartbeatRequest
    ) -> CoordinatorResult[GroupRecord, HeartbeatResponse]:
        """Handle Heartbeat of a consumer group member."""
        return self._classic.heartbeat(self._live(request.group_id), request)

    def classic_leave(
        self, request_context: RequestContext, request: LeaveGroupRequest
    ) -> CoordinatorResult[GroupRecord, LeaveGroupResponse]:
        """Handle LeaveGroup of consumer group members."""
        return self._classic.leave(self._live(request.group_id), request)

    def _live(self, group_id: str) -> ConsumerGroup:
        group = self._existing(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")
        return group

    # -- shard lifecycle -----------------------------------------------------------------------------------------------

    def loaded(self) -> None:
        """All records were replayed and this broker coordinates: every member gets a full session to reconnect."""
        self._known_topics = self._context.image.topics
        for group in self._context.groups.groups():
            if not isinstance(group, ConsumerGroup):
                continue
            for member in group.members.values():
                self._timers.schedule_life(group.group_id, member)

    def unloaded(self) -> None:
        """This broker no longer coordinates: drop everything that waits."""
        self._regexes.unloaded()

    def image_changed(self, changed_topics: frozenset[str]) -> None:
        """Topics were created, deleted or extended: the next heartbeat of their groups checks the topics."""
        image = self._context.image
        if any(name in image.topics and name not in self._known_topics for name in changed_topics):
            self._regexes.topics_added(image.offset)
        self._known_topics = image.topics
        for group in self._context.groups.groups():
            if isinstance(group, ConsumerGroup) and any(group.is_subscribed_to_topic(name) for name in changed_topics):
                group.topics_checked_at_epoch = None

    # -- replay --------------------------------------------------------------------------------------------------------

    def replays(self) -> Mapping[type, Callable[[Any, Any], None]]:
        """Return for each class of record key the method that applies (key, value or None)."""
        return {
            ConsumerGroupMetadataKey: self._replay_group,
            ConsumerGroupPartitionMetadataKey: self._replay_partition_metadata,
            ConsumerGroupMemberMetadataKey: self._replay_member,
            ConsumerGroupTargetAssignmentMetadataKey: self._replay_assignment_epoch,
            ConsumerGroupTargetAssignmentMemberKey: self._replay_target,
            ConsumerGroupCurrentMemberAssignmentKey: self._replay_current_assignment,
            ConsumerGroupRegularExpressionKey: self._replay_regex,
        }

    def _existing(self, group_id: str) -> ConsumerGroup | None:
        group = self._context.groups.find(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def _get_or_create(self, group_id: str) -> ConsumerGroup:
        """Return the group, creating it if necessary. A classic group of that id had offsets only: one with members
        gets its tombstone first."""
        group = self._existing(group_id)
        if group is None:
            group = ConsumerGroup(self._context.registry, group_id)
            self._context.groups.put(group)
        return group

    def _replay_group(self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        if value is not None:
            self._get_or_create(key.group_id).replay_group_epoch(value.epoch, value.metadata_hash)
        else:
            self._context.groups.remove(key.group_id, GroupType.CONSUMER)

    def _replay_partition_metadata(
        self, key: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None
    ) -> None:
        group = self._existing(key.group_id) if value is None else self._get_or_create(key.group_id)
        if group is not None:
            group.replay_partition_metadata(value is not None)

    def _replay_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        if value is not None:
            group = self._get_or_create(key.group_id)
            member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
            group.replay_member(key.member_id, member.with_metadata(value))
            return
        existing = self._existing(key.group_id)
        if existing is not None:
            existing.replay_member(key.member_id, None)

    def _replay_assignment_epoch(
        self, key: ConsumerGroupTargetAssignmentMetadataKey, value: ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> None:
        if value is not None:
            self._get_or_create(key.group_id).replay_assignment_epoch(
                value.assignment_epoch, value.assignment_timestamp
            )
            return
        existing = self._existing(key.group_id)
        if existing is not None:
            existing.replay_assignment_epoch(NO_ASSIGNMENT_EPOCH, 0)

    def _replay_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is not None:
            self._get_or_create(key.group_id).replay_target(key.member_id, target_from_record(value))
            return
        existing = self._existing(key.group_id)
        if existing is not None:
            existing.replay_target(key.member_id, None)

    def _replay_current_assignment(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        if value is not None:
            group = self._get_or_create(key.group_id)
            member = group.members.get(key.member_id) or ConsumerMember(key.member_id)
            group.replay_member(key.member_id, member.with_assignment(value))
            return
        existing = self._existing(key.group_id)
        gone = None if existing is None else existing.members.get(key.member_id)
        if existing is not None and gone is not None:
            existing.replay_member(key.member_id, gone.without_assignment())

    def _replay_regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        if value is not None:
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            self._get_or_create(key.group_id).replay_regex(key.regular_expression, resolved)
            return
        existing = self._existing(key.group_id)
        if existing is not None:
            existing.replay_regex(key.regular_expression, None)
