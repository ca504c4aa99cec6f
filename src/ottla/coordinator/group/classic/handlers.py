"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup and DescribeGroups for classic groups; replay of their record.

The group is soft state, as in Apache Kafka: an operation changes it immediately and returns the record that a later
load needs. Replaying a record that this shard wrote changes nothing; a loaded record creates the group. JoinGroup and
SyncGroup are answered through a `Reply` that the member stores until the rebalance completes.

Sources: KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-389 (`group.max.size`),
KIP-394 (member id required), KIP-559 (protocol in SyncGroup), KIP-800 (reasons), KIP-814 (static leader).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.coordinator.group.classic.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
)
from ottla.coordinator.group.classic.join import ClassicJoin
from ottla.coordinator.group.classic.member import SyncReply
from ottla.coordinator.group.classic.rebalance import Rebalance, Result, session_timer
from ottla.coordinator.group.context import RequestContext, ShardContext
from ottla.coordinator.group.group import GroupType
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.group.responses import error_code
from ottla.coordinator.runtime import EMPTY_RESULT, CoordinatorResult
from ottla.protocol.messages.coordinator_records import GroupMetadataKey, GroupMetadataValue
from ottla.protocol.messages.describe_groups import DescribedGroup
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

GROUP_ID_NOT_FOUND_VERSION = 6
"""First DescribeGroups version with GROUP_ID_NOT_FOUND; older ones report a missing group as Dead (KIP-1043)."""


class ClassicGroups:
    """The classic groups of one shard."""

    __slots__ = ("_active", "_context", "join", "rebalance")

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._active = False
        self.rebalance = Rebalance(context)
        self.join = ClassicJoin(context, self.rebalance)
        """`join(request_context, request, reply)`"""

    # -- replay --------------------------------------------------------------------------------------------------------

    def replays(self) -> Mapping[type, Callable[[Any, Any], None]]:
        """Return for each class of record key the method that applies (key, value or None)."""
        return {GroupMetadataKey: self.replay_group_metadata}

    def replay_group_metadata(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """Restore the group as of its last generation, or remove it."""
        if value is None:
            self._context.groups.remove(key.group, GroupType.CLASSIC)
        elif not self._active:
            self._context.groups.put(ClassicGroup.from_record(key.group, value, self._context.clock))

    def loaded(self) -> None:
        """Give known members a full session to reconnect. A group that was just downgraded from a consumer group starts
        its rebalance."""
        self._active = True
        for group in self._groups():
            for member in group:
                self.rebalance.restart_session(group, member)
            if group.state is PREPARING_REBALANCE:
                self.rebalance.wait_for_joins(group)

    def unloaded(self) -> None:
        """Another broker coordinates: waiting members get NOT_COORDINATOR and look it up."""
        for group in self._groups():
            self.rebalance.abandon(group, ErrorCode.NOT_COORDINATOR)

    def _groups(self) -> list[ClassicGroup]:
        return [group for group in self._context.groups.groups() if isinstance(group, ClassicGroup)]

    def _find(self, group_id: str) -> ClassicGroup:
        """Raises KafkaError UNKNOWN_MEMBER_ID, the code of these APIs for a missing group."""
        group = self._context.groups.find(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return group

    # -- SyncGroup -----------------------------------------------------------------------------------------------------

    def sync(self, request_context: RequestContext, request: SyncGroupRequest, reply: SyncReply) -> Result:
        """A follower waits until the assignment that the leader sends is committed.

        Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
        REBALANCE_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, GROUP_MAX_SIZE_REACHED.
        """
        group = self._find(request.group_id)
        if group.state is EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        for named, chosen in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if named is not None and chosen is not None and named != chosen:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self.rebalance.sync_received(group, member.member_id)
        if group.state is STABLE:
            self.rebalance.restart_session(group, member)
            reply.answer(
                SyncGroupResponse(
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol_name,
                    assignment=member.assignment,
                )
            )
            return EMPTY_RESULT
        if group.state is not COMPLETING_REBALANCE:
            raise InvariantError(f"SyncGroup in state {group.state.value}")
        if not group.is_leader(member.member_id):
            member.wait_for_sync(reply)
            return EMPTY_RESULT
        brought = {each.member_id: each.assignment for each in request.assignments}
        assignments = {each.member_id: brought.get(each.member_id, b"") for each in group}
        before = sum(len(each.assignment) for each in group)
        after = sum(len(assignment) for assignment in assignments.values())
        self._context.memory.admit(group.held_bytes - before, before, after)
        member.wait_for_sync(reply)
        generation_id = group.generation_id
        reply.outcome = lambda error: self._assignments_written(group, generation_id, assignments, error)
        return CoordinatorResult([group.metadata_record(assignments)], appended=reply.settle)

    def _assignments_written(
        self, group: ClassicGroup, generation_id: int, assignments: Mapping[str, bytes], error: KafkaError | None
    ) -> None:
        """Committed: each member gets its assignment. Failed: all members get the error; a new generation starts."""
        if group.state is not COMPLETING_REBALANCE or group.generation_id != generation_id:
            return
        if error is None:
            for member in group:
                group.assign(member, assignments.get(member.member_id, b""))
            self.rebalance.propagate_assignments(group)
        else:
            self.rebalance.reset_assignments(group, error_code(error))
            self.rebalance.prepare_or_complete_join(group, f"error {error.code.name} when storing group assignment")

    # -- Heartbeat -----------------------------------------------------------------------------------------------------

    def heartbeat(
        self, request_context: RequestContext, request: HeartbeatRequest
    ) -> CoordinatorResult[GroupRecord, HeartbeatResponse]:
        """Restarts the session; REBALANCE_IN_PROGRESS requests the member to rejoin. Raises KafkaError as `sync`."""
        group = self._find(request.group_id)
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if group.state is EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        self.rebalance.restart_session(group, member)
        if group.state is PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return CoordinatorResult((), HeartbeatResponse())

    # -- LeaveGroup ----------------------------------------------------------------------------------------------------

    def leave(
        self, request_context: RequestContext, request: LeaveGroupRequest
    ) -> CoordinatorResult[GroupRecord, LeaveGroupResponse]:
        """Remove members, each by its id; admins may also remove a static member by its instance id alone."""
        group = self._find(request.group_id)
        responses = []
        reasons = []
        for identity in request.members:
            error = self._leave_one(group, identity)
            responses.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
                )
            )
            if not error:
                reasons.append(f"{identity.member_id or identity.group_instance_id}: {identity.reason or 'no reason'}")
        result = EMPTY_RESULT
        if reasons:
            result = self._members_left(group, f"members left explicitly ({'; '.join(reasons)})")
        return CoordinatorResult(result.records, LeaveGroupResponse(members=responses))

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity) -> int:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id:
            if instance_id is None or instance_id not in group.static_members:
                return ErrorCode.UNKNOWN_MEMBER_ID
            self.rebalance.remove_member(group, group.static_members[instance_id])
        elif member_id in group.pending_join_members:
            self._context.timer.cancel(session_timer(group.group_id, member_id))
            group.remove(member_id)
        else:
            try:
                group.validate_member(member_id, instance_id)
            except KafkaError as error:
                return error.code
            self.rebalance.remove_member(group, member_id)
        return ErrorCode.NONE

    def _members_left(self, group: ClassicGroup, reason: str) -> Result:
        if group.state in (STABLE, COMPLETING_REBALANCE):
            return self.rebalance.prepare(group, reason)
        return self.rebalance.maybe_complete_join(group)

    # -- DescribeGroups ------------------------------------------------------------------------------------------------

    def describe(
        self, group_ids: Sequence[str], request_context: RequestContext, committed_offset: int
    ) -> list[DescribedGroup]:
        """Describe committed classic groups; any other id is Dead."""
        return [self._describe(group_id, request_context, committed_offset) for group_id in group_ids]

    def _describe(self, group_id: str, request_context: RequestContext, committed_offset: int) -> DescribedGroup:
        group = self._context.groups.find(group_id, committed_offset)
        if not isinstance(group, ClassicGroup):
            described = DescribedGroup(group_id=group_id, group_state=DEAD.value)
            if request_context.api_version >= GROUP_ID_NOT_FOUND_VERSION:
                described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                missing = group is None
                described.error_message = f"Group {group_id} {'not found.' if missing else 'is not a classic group.'}"
            return described
        # Metadata belongs to a protocol; between generations none is selected.
        protocol_name = group.protocol_name if group.state is STABLE else None
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol_name or "",
            members=[member.describe(protocol_name) for member in group],
        )
