"""JoinGroup for classic groups: admission, member ids, static member replacement, and the start of a rebalance."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.coordinator.group.classic.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
)
from ottla.coordinator.group.classic.member import ClassicGroupMember, JoinReply, request_protocols
from ottla.coordinator.group.classic.rebalance import Rebalance, Result, join_error, session_timer
from ottla.coordinator.group.context import RequestContext, ShardContext
from ottla.coordinator.group.group import GroupType
from ottla.coordinator.group.member_memory import MEMBER_BYTES, protocols_bytes
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.group.responses import error_code
from ottla.coordinator.runtime import EMPTY_RESULT, CoordinatorResult
from ottla.protocol.messages.join_group import JoinGroupRequest

UNKNOWN_MEMBER_ID = ""
"""The member id in a request of a client that has none yet."""

MEMBER_ID_REQUIRED_VERSION = 4
"""First version in which a dynamic member rejoins with its assigned id, so that a lost response leaves no member
(KIP-394)."""
SKIP_ASSIGNMENT_VERSION = 9
"""First version with a response that makes a returning static leader skip the assignment (KIP-814)."""


class _Replacement(NamedTuple):
    """A static member that replaced its predecessor within the current generation."""

    generation_id: int
    member: ClassicGroupMember
    old: ClassicGroupMember
    old_leader_id: str | None


class ClassicJoin:
    """Handles JoinGroup requests; call the instance."""

    __slots__ = ("_context", "_rebalance")

    def __init__(self, context: ShardContext, rebalance: Rebalance) -> None:
        self._context = context
        self._rebalance = rebalance

    def __call__(self, request_context: RequestContext, request: JoinGroupRequest, reply: JoinReply) -> Result:
        """Process JoinGroup; responds through `reply`, often only when the rebalance is over.

        Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED,
        COORDINATOR_NOT_AVAILABLE.
        """
        self._admit(request)
        is_unknown_member = request.member_id == UNKNOWN_MEMBER_ID
        group, records = self._find_or_create(request.group_id, is_unknown_member)
        if not self._accepts(group, request.member_id):
            group.remove(request.member_id)
            reply.answer(join_error(UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED))
            result = EMPTY_RESULT
        elif is_unknown_member:
            result = self._new_member(request_context, request, group, reply)
        else:
            result = self._known_member(request_context, request, group, reply)
        if not records:
            return result
        # The group must be in the log before a response reveals that it exists.
        reply.outcome = partial(self._creation_written, group, reply)
        return CoordinatorResult([*records, *result.records], appended=reply.settle)

    def _admit(self, request: JoinGroupRequest) -> None:
        """Raises KafkaError GROUP_MAX_SIZE_REACHED when the members' memory limit is exceeded."""
        group = self._context.groups.find(request.group_id)
        member: ClassicGroupMember | None = None
        others = before = 0
        if isinstance(group, ClassicGroup):
            member = group.members.get(
                request.member_id or group.static_members.get(request.group_instance_id or "", UNKNOWN_MEMBER_ID)
            )
            before = 0 if member is None else member.held_bytes
            others = group.held_bytes - before
        assignment = 0 if member is None else len(member.assignment)
        after = MEMBER_BYTES + protocols_bytes(request_protocols(request)) + assignment
        self._context.memory.admit(others, before, after)

    def _find_or_create(self, group_id: str, may_create: bool) -> tuple[ClassicGroup, list[GroupRecord]]:
        """Return the group and the records of its creation. An empty consumer group is replaced; a share group is not,
        because its state in the share coordinator would remain."""
        groups = self._context.groups
        group = groups.find(group_id)
        if isinstance(group, ClassicGroup):
            return group, []
        if group is not None and (group.type is GroupType.SHARE or not group.is_empty()):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not may_create:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        records: list[GroupRecord] = []
        generation_id = 0
        if group is not None:
            generation_id = group.group_epoch
            records += group.tombstone_records()
            groups.remove(group_id, group.type)
        created = ClassicGroup(group_id, self._context.clock, generation_id=generation_id)
        created.current_state_timestamp = self._context.clock.time_ms()
        groups.put(created)
        return created, [*records, created.empty_metadata_record()]

    def _creation_written(self, group: ClassicGroup, reply: JoinReply, error: KafkaError | None) -> None:
        if error is None:
            return
        reply.answer(join_error(UNKNOWN_MEMBER_ID, error_code(error)))
        if self._context.groups.find(group.group_id) is not group:
            # The state was reverted, so the group does not exist; its timers must not fire for a later group of that
            # id.
            self._rebalance.abandon(group, error_code(error))

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Return whether `group.max.size` has room (KIP-389). While members join, only waiting members count."""
        max_size = self._context.config.group_max_size
        if group.state is PREPARING_REBALANCE:
            member = group.members.get(member_id)
            return (member is not None and member.join_reply is not None) or group.awaiting_join < max_size
        if group.state in (COMPLETING_REBALANCE, STABLE):
            return member_id in group.members or len(group.members) < max_size
        return True

    # -- new members ---------------------------------------------------------------------------------------------------

    def _new_member(
        self, request_context: RequestContext, request: JoinGroupRequest, group: ClassicGroup, reply: JoinReply
    ) -> Result:
        self._check_can_join(group, request)
        instance_id = request.group_instance_id
        prefix = request_context.client_id if instance_id is None else instance_id
        member_id = self._context.new_classic_member_id(prefix)
        if instance_id is not None:
            if instance_id in group.static_members:
                return self._replace_static_member(request_context, request, group, member_id, reply)
            return self._add(request_context, request, group, member_id, reply)
        if request_context.api_version < MEMBER_ID_REQUIRED_VERSION:
            return self._add(request_context, request, group, member_id, reply)
        group.pending_join_members[member_id] = None
        self._context.timer.schedule(
            session_timer(group.group_id, member_id),
            request.session_timeout_ms,
            partial(self._rebalance.session_timed_out, group.group_id, member_id),
        )
        reply.answer(join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED))
        return EMPTY_RESULT

    def _check_can_join(self, group: ClassicGroup, request: JoinGroupRequest) -> None:
        if group.state is DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not group.supports_protocols(request.protocol_type, request_protocols(request)):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _add(
        self,
        request_context: RequestContext,
        request: JoinGroupRequest,
        group: ClassicGroup,
        member_id: str,
        reply: JoinReply,
    ) -> Result:
        member = ClassicGroupMember(
            member_id,
            request.group_instance_id,
            request_context.client_id,
            request_context.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            request_protocols(request),
        )
        member.is_new = True
        if group.state is PREPARING_REBALANCE and group.previous_state is EMPTY:
            group.new_member_added = True
        group.add(member, reply)
        # The member can't heartbeat while it waits, and a client that gives up rejoins under a new id. Without this
        # timeout the rebalance would wait for a member that no longer exists.
        self._rebalance.restart_session(group, member, self._context.config.classic_new_member_join_timeout_ms)
        reason = f"adding new member {member_id} with group instance id {request.group_instance_id}"
        return self._rebalance.prepare_or_complete_join(group, f"{reason}; client reason: {_reason(request)}")

    # -- a static member without its member id: its process was restarted ----------------------------------------------

    def _replace_static_member(
        self,
        request_context: RequestContext,
        request: JoinGroupRequest,
        group: ClassicGroup,
        member_id: str,
        reply: JoinReply,
    ) -> Result:
        instance_id = request.group_instance_id or ""
        old = group.members[group.static_members[instance_id]]
        old_leader_id = group.leader_id
        self._context.timer.cancel(session_timer(group.group_id, old.member_id))
        member = group.replace_static_member(instance_id, member_id)
        # Until the change is stored, the replacement uses its predecessor's session.
        self._rebalance.restart_session(group, member)
        group.update_member(
            member, request_protocols(request), request.rebalance_timeout_ms, request.session_timeout_ms, reply
        )
        reason = f"group instance {instance_id} is replaced; client reason: {_reason(request)}"
        if group.state is STABLE:
            if group.select_protocol() != group.protocol_name:
                return self._rebalance.prepare_or_complete_join(group, f"{reason}; the selected protocol changed")
            # All members retain their assignments: only the new member id has to be stored.
            replacement = _Replacement(group.generation_id, member, old, old_leader_id)
            reply.outcome = partial(self._replacement_written, request_context, group, replacement, reply)
            assignments = {each.member_id: each.assignment for each in group}
            return CoordinatorResult([group.metadata_record(assignments)], appended=reply.settle)
        if group.state is COMPLETING_REBALANCE:
            # The assignment in progress is computed for the old member.
            return self._rebalance.prepare(group, reason)
        if group.state is not PREPARING_REBALANCE:
            raise InvariantError(f"group {group.group_id} in state {group.state.value} has members")
        return self._rebalance.maybe_complete_join(group)

    def _replacement_written(
        self,
        request_context: RequestContext,
        group: ClassicGroup,
        replacement: _Replacement,
        reply: JoinReply,
        error: KafkaError | None,
    ) -> None:
        member = replacement.member
        if error is not None:
            reply.answer(join_error(UNKNOWN_MEMBER_ID, error_code(error)))
            if group.generation_id == replacement.generation_id:
                self._restore_static_member(group, member, replacement.old)
            # Otherwise the replacement was answered when that generation began, and its assignments name the
            # replacement.
            return
        response = group.join_response(member.member_id)
        if request_context.api_version >= SKIP_ASSIGNMENT_VERSION:
            if group.is_leader(member.member_id):
                response.skip_assignment = True
                response.members = group.members_for_leader()
        else:
            # A client that is named leader would compute an assignment that no member waits for; name the old leader.
            response.leader = replacement.old_leader_id or ""
        group.answer_join(member, response)

    def _restore_static_member(self, group: ClassicGroup, member: ClassicGroupMember, old: ClassicGroupMember) -> None:
        """The log still contains the old member, so it has to remain the holder."""
        instance_id = old.group_instance_id or ""
        if group.static_members.get(instance_id) != member.member_id:
            return
        group.update_member(member, old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms, None)
        self._context.timer.cancel(session_timer(group.group_id, member.member_id))
        restored = group.replace_static_member(instance_id, old.member_id)
        self._rebalance.restart_session(group, restored)

    # -- known members -------------------------------------------------------------------------------------------------

    def _known_member(
        self, request_context: RequestContext, request: JoinGroupRequest, group: ClassicGroup, reply: JoinReply
    ) -> Result:
        self._check_can_join(group, request)
        if request.member_id in group.pending_join_members:
            if request.group_instance_id is not None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    "a static member can't use a pending member id",
                )
            return self._add(request_context, request, group, request.member_id, reply)
        member = group.validate_member(request.member_id, request.group_instance_id)
        unchanged = member.matches(request_protocols(request))
        if group.state is COMPLETING_REBALANCE and unchanged:
            # The response was lost: send it again.
            members = group.members_for_leader() if group.is_leader(member.member_id) else ()
            reply.answer(group.join_response(member.member_id, members=members))
            return EMPTY_RESULT
        if group.state is STABLE and unchanged and not group.is_leader(member.member_id):
            # A follower without changes; a leader rejoins to announce that its assignment input has changed.
            reply.answer(group.join_response(member.member_id))
            return EMPTY_RESULT
        if group.state in (EMPTY, DEAD):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        group.update_member(
            member, request_protocols(request), request.rebalance_timeout_ms, request.session_timeout_ms, reply
        )
        role = "leader" if group.is_leader(member.member_id) else "member"
        return self._rebalance.prepare_or_complete_join(
            group, f"{role} {member.member_id} joins again; client reason: {_reason(request)}"
        )


def _reason(request: JoinGroupRequest) -> str:
    return request.reason or "not provided"
