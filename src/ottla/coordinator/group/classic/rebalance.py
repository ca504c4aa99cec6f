"""Rebalance of a classic group: joining, join and sync timeouts, completion.

Each method is part of a shard operation and returns the records to write. Only two steps write records: a group that
became empty, and (in `handlers`) an assignment. Timers, one of each kind for a group, by key:

    rebalance-<group>         time for the members of a rebalance to join
    sync-<group>              time for the members of a generation to send SyncGroup
    session-<group>-<member>  time until the next heartbeat of a member

Timers carry ids, not the group: the group may be a different one, or deleted, when they fire.
"""

from __future__ import annotations

import logging
from functools import partial

from ottla.common.errors import ErrorCode
from ottla.common.logs import RATE_LIMITED
from ottla.coordinator.group.classic.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
)
from ottla.coordinator.group.classic.member import ClassicGroupMember
from ottla.coordinator.group.context import ShardContext
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.runtime import EMPTY_RESULT, CoordinatorResult
from ottla.protocol.messages.join_group import JoinGroupResponse

logger = logging.getLogger(__name__)

Result = CoordinatorResult[GroupRecord, None]

MIN_ROUND_MS = 1_000
"""Minimum length of a repeated join phase, even if members set a timeout of 0: repetitions must not spin the loop."""


def session_timer(group_id: str, member_id: str) -> str:
    """Return the key of a member's session timer."""
    return f"session-{group_id}-{member_id}"


def rebalance_timer(group_id: str) -> str:
    """Return the key of the timer that ends the join phase."""
    return f"rebalance-{group_id}"


def sync_timer(group_id: str) -> str:
    """Return the key of the timer that ends the sync phase."""
    return f"sync-{group_id}"


class Rebalance:
    """Rebalance steps for all classic groups of a shard."""

    __slots__ = ("_context",)

    def __init__(self, context: ShardContext) -> None:
        self._context = context

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._context.groups.find(group_id)
        return group if isinstance(group, ClassicGroup) and group.state is not DEAD else None

    # -- start ---------------------------------------------------------------------------------------------------------

    def prepare_or_complete_join(self, group: ClassicGroup, reason: str) -> Result:
        """Start a rebalance, or complete the current one if all members joined."""
        if group.can_rebalance():
            return self.prepare(group, reason)
        return self.maybe_complete_join(group)

    def prepare(self, group: ClassicGroup, reason: str) -> Result:
        """Request all members to join. Members that await an assignment get REBALANCE_IN_PROGRESS first."""
        if group.state is COMPLETING_REBALANCE:
            self.reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._context.timer.cancel(sync_timer(group.group_id))
        is_initial = group.state is EMPTY
        if is_initial:
            delay_ms = self._context.config.group_initial_rebalance_delay_ms
            self._wait_for_more(group, delay_ms, max(group.rebalance_timeout_ms() - delay_ms, 0))
        group.transition_to(PREPARING_REBALANCE)
        logger.info(
            "preparing to rebalance group %s with old generation %d: %s",
            group.group_id,
            group.generation_id,
            reason,
            extra=RATE_LIMITED,
        )
        if is_initial:
            return EMPTY_RESULT
        if group.all_members_joined():
            return self.complete_join(group)
        self.wait_for_joins(group)
        return EMPTY_RESULT

    def wait_for_joins(self, group: ClassicGroup, min_ms: int = 0) -> None:
        """Start the timer that ends the join phase."""
        self._context.timer.schedule(
            rebalance_timer(group.group_id),
            max(group.rebalance_timeout_ms(), min_ms),
            partial(self._join_timed_out, group.group_id),
        )

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        """Delay a group's first rebalance, so that processes that start together join the same one."""
        self._context.timer.schedule(
            rebalance_timer(group.group_id),
            delay_ms,
            partial(self._initial_delay_over, group.group_id, delay_ms, remaining_ms),
        )

    def _initial_delay_over(self, group_id: str, delay_ms: int, remaining_ms: int) -> Result:
        group = self._find(group_id)
        if group is None or group.state is not PREPARING_REBALANCE:
            return EMPTY_RESULT
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            next_delay_ms = min(self._context.config.group_initial_rebalance_delay_ms, remaining_ms)
            self._wait_for_more(group, next_delay_ms, max(remaining_ms - delay_ms, 0))
            return EMPTY_RESULT
        return self.complete_join(group)

    # -- all members joined, or the join phase timed out ---------------------------------------------------------------

    def maybe_complete_join(self, group: ClassicGroup) -> Result:
        """End the join phase if all members joined; an initial rebalance always waits for its delay."""
        if group.state is PREPARING_REBALANCE and group.previous_state is not EMPTY and group.all_members_joined():
            return self.complete_join(group)
        return EMPTY_RESULT

    def _join_timed_out(self, group_id: str) -> Result:
        group = self._find(group_id)
        if group is None or group.state is not PREPARING_REBALANCE:
            return EMPTY_RESULT
        return self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> Result:
        """Continue with the members that joined: late dynamic members are removed, static ones stay until their session
        ends."""
        timer = self._context.timer
        timer.cancel(rebalance_timer(group.group_id))
        for member in group:
            if member.join_reply is None and not member.is_static:
                self.remove_member(group, member.member_id)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left and none joined, so no member could compute an assignment. Wait once more.
            self.wait_for_joins(group, MIN_ROUND_MS)
            return EMPTY_RESULT
        group.start_next_generation()
        if group.state is EMPTY:
            logger.info(
                "group %s with generation %d is now empty", group.group_id, group.generation_id, extra=RATE_LIMITED
            )
            return CoordinatorResult([group.metadata_record({})])
        logger.info(
            "stabilized group %s generation %d with %d members",
            group.group_id,
            group.generation_id,
            len(group.members),
            extra=RATE_LIMITED,
        )
        members_for_leader = group.members_for_leader()
        for member in group:
            members = members_for_leader if group.is_leader(member.member_id) else ()
            group.answer_join(member, group.join_response(member.member_id, members=members))
            self.restart_session(group, member)
            member.is_new = False
            group.pending_sync_members[member.member_id] = None
        timer.schedule(
            sync_timer(group.group_id),
            group.rebalance_timeout_ms(),
            partial(self._sync_timed_out, group.group_id, group.generation_id),
        )
        return EMPTY_RESULT

    # -- assignments ---------------------------------------------------------------------------------------------------

    def sync_received(self, group: ClassicGroup, member_id: str) -> None:
        """A member of the generation requested its assignment; after the last one the sync timer is cancelled."""
        group.pending_sync_members.pop(member_id, None)
        if not group.pending_sync_members:
            self._context.timer.cancel(sync_timer(group.group_id))

    def _sync_timed_out(self, group_id: str, generation_id: int) -> Result:
        group = self._find(group_id)
        if group is None or group.generation_id != generation_id or group.state not in (COMPLETING_REBALANCE, STABLE):
            return EMPTY_RESULT
        late = list(group.pending_sync_members)
        if not late:
            return EMPTY_RESULT
        for member_id in late:
            self.remove_member(group, member_id)
        return self.prepare(group, f"removing {', '.join(late)} on pending sync request expiration")

    def propagate_assignments(self, group: ClassicGroup) -> None:
        """The assignments are committed: the group is STABLE, waiting members get theirs."""
        group.transition_to(STABLE)
        for member in group:
            if member.answer_sync(0, protocol_type=group.protocol_type, protocol_name=group.protocol_name):
                self.restart_session(group, member)

    def reset_assignments(self, group: ClassicGroup, code: ErrorCode) -> None:
        """Clear the assignments of this generation; waiting members get the error code."""
        for member in group:
            group.assign(member, b"")
            if member.answer_sync(code):
                self.restart_session(group, member)

    # -- membership ----------------------------------------------------------------------------------------------------

    def restart_session(self, group: ClassicGroup, member: ClassicGroupMember, timeout_ms: int | None = None) -> None:
        """Restart the member's session, with `timeout_ms` instead of its session timeout if given (new members)."""
        self._context.timer.schedule(
            session_timer(group.group_id, member.member_id),
            member.session_timeout_ms if timeout_ms is None else timeout_ms,
            partial(self.session_timed_out, group.group_id, member.member_id),
        )

    def session_timed_out(self, group_id: str, member_id: str) -> Result:
        """Remove a member without heartbeats, or an id that was handed out and never used."""
        group = self._find(group_id)
        if group is None:
            return EMPTY_RESULT
        if member_id in group.pending_join_members:
            group.remove(member_id)
            return self._without_pending(group)
        member = group.members.get(member_id)
        if member is None or member.satisfied_heartbeat():
            return EMPTY_RESULT
        logger.info("removing member %s of group %s: session timed out", member_id, group_id, extra=RATE_LIMITED)
        self.remove_member(group, member_id)
        return self.members_gone(group, f"removing member {member_id} on heartbeat expiration")

    def _without_pending(self, group: ClassicGroup) -> Result:
        if group.state is PREPARING_REBALANCE and group.all_members_joined():
            return self.complete_join(group)
        return EMPTY_RESULT

    def remove_member(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member. Its pending requests get UNKNOWN_MEMBER_ID, so that a live client rejoins."""
        self._context.timer.cancel(session_timer(group.group_id, member_id))
        member = group.members.get(member_id)
        if member is not None:
            group.answer_join(member, join_error("", ErrorCode.UNKNOWN_MEMBER_ID))
            member.answer_sync(ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member_id)

    def members_gone(self, group: ClassicGroup, reason: str) -> Result:
        """After members were removed: rebalance their partitions, or stop waiting for them in the current rebalance."""
        if group.state in (STABLE, COMPLETING_REBALANCE):
            return self.prepare(group, reason)
        return self._without_pending(group)

    def cancel_timers(self, group: ClassicGroup) -> None:
        """Cancel the timers of a group that is removed or changes its type."""
        timer = self._context.timer
        timer.cancel(rebalance_timer(group.group_id))
        timer.cancel(sync_timer(group.group_id))
        for member_id in (*group.members, *group.pending_join_members):
            timer.cancel(session_timer(group.group_id, member_id))

    def abandon(self, group: ClassicGroup, code: ErrorCode) -> None:
        """Remove a group from this shard: waiting members get the error code."""
        self.cancel_timers(group)
        group.transition_to(DEAD)
        for member in group:
            group.answer_join(member, join_error(member.member_id, code))
            member.answer_sync(code)


def join_error(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    """Return the JoinGroup response for an error."""
    return JoinGroupResponse(member_id=member_id, error_code=code, protocol_name=None)
