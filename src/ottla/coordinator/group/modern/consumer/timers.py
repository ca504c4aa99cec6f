"""Timers of consumer group members. A timer that fires checks whether it still applies.

Timers are not timeline state: a failed append reverts the members, but not their timers. So a stale timer is harmless.
A caller that cancels timers for a change that is not written yet restarts them if the append fails
(`schedule_lives_of`).

- `session`: the member has to send a heartbeat.
- `rebalance`: the member has to confirm a revocation (KIP-848).
- `join` and `sync`: a classic protocol member has to send JoinGroup or SyncGroup after it was requested to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ottla.common.logs import RATE_LIMITED
from ottla.coordinator.group.context import ShardContext
from ottla.coordinator.group.modern.consumer.group import ConsumerGroup
from ottla.coordinator.group.modern.consumer.member import ConsumerMember, MemberState
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.runtime import EMPTY_RESULT, CoordinatorResult

logger = logging.getLogger(__name__)

Fence = Callable[[ConsumerGroup, ConsumerMember], CoordinatorResult[GroupRecord, None]]
"""Removes a member from its group."""


class ConsumerTimers:
    """Timers of all members of one shard."""

    __slots__ = ("_context", "_fence")

    def __init__(self, context: ShardContext, fence: Fence) -> None:
        self._context = context
        self._fence = fence

    def schedule_session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Restart the session timer; called with every heartbeat."""
        self._schedule("session", "session timed out", group_id, member_id, timeout_ms)

    def schedule_sync(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Start the timer for SyncGroup; called with the response to a JoinGroup."""
        self._schedule("sync", "SyncGroup timed out", group_id, member_id, timeout_ms)

    def serve(self, group: ConsumerGroup) -> bool:
        """Return whether timers apply to members of `group`. False once it became a classic group, which has other
        timers: an old timer could otherwise hit a member of a later consumer group of that id."""
        return self._context.groups.find(group.group_id) is group

    def schedule_join_if_absent(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Start the timer for JoinGroup; called with REBALANCE_IN_PROGRESS, the first one counts."""
        self._context.timer.schedule_if_absent(
            _key("join", group_id, member_id),
            timeout_ms,
            lambda: self._fence_member("JoinGroup timed out", group_id, member_id, None),
        )

    def schedule_rebalance(self, group_id: str, member_id: str, member_epoch: int, timeout_ms: int) -> None:
        """Start the timer for a revocation; it applies only while the member stays in that epoch."""
        self._context.timer.schedule(
            _key("rebalance", group_id, member_id),
            max(0, timeout_ms),
            lambda: self._fence_member("partition revocation timed out", group_id, member_id, member_epoch),
        )

    def cancel_rebalance(self, group_id: str, member_id: str) -> None:
        self._context.timer.cancel(_key("rebalance", group_id, member_id))

    def cancel_join(self, group_id: str, member_id: str) -> None:
        self._context.timer.cancel(_key("join", group_id, member_id))

    def cancel_sync(self, group_id: str, member_id: str) -> None:
        self._context.timer.cancel(_key("sync", group_id, member_id))

    def cancel_all(self, group_id: str, member_id: str) -> None:
        """Cancel all timers of a member that is removed."""
        for kind in ("session", "rebalance", "join", "sync"):
            self._context.timer.cancel(_key(kind, group_id, member_id))

    def schedule_life(self, group_id: str, member: ConsumerMember) -> None:
        """Start a full session, and the timer of a pending revocation. Used for members of a loaded shard, and after a
        failed append. The other timers of classic members start with their next request."""
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self._context.config.session_timeout_ms(self._context.image.group_configs(group_id))
        self.schedule_session(group_id, member.member_id, timeout_ms)
        if member.classic is None and member.state is MemberState.UNREVOKED_PARTITIONS:
            self.schedule_rebalance(group_id, member.member_id, member.member_epoch, member.rebalance_timeout_ms)
        else:
            self.cancel_rebalance(group_id, member.member_id)

    def schedule_lives_of(self, group: ConsumerGroup, member_ids: Iterable[str]) -> None:
        """Restart the timers of members after a failed append reverted their change."""
        if not self.serve(group):
            return
        for member_id in member_ids:
            member = group.members.get(member_id)
            if member is not None:
                self.schedule_life(group.group_id, member)

    def _schedule(self, kind: str, reason: str, group_id: str, member_id: str, timeout_ms: int) -> None:
        self._context.timer.schedule(
            _key(kind, group_id, member_id),
            timeout_ms,
            lambda: self._fence_member(reason, group_id, member_id, None),
        )

    def _fence_member(
        self, reason: str, group_id: str, member_id: str, member_epoch: int | None
    ) -> CoordinatorResult[GroupRecord, None]:
        group = self._context.groups.find(group_id)
        if not isinstance(group, ConsumerGroup):
            return EMPTY_RESULT
        member = group.members.get(member_id)
        if member is None or (member_epoch is not None and member.member_epoch != member_epoch):
            return EMPTY_RESULT
        logger.info("removing member %s of group %s: %s", member_id, group_id, reason, extra=RATE_LIMITED)
        return self._fence(group, member)


def _key(kind: str, group_id: str, member_id: str) -> str:
    return f"consumer-{kind}\0{group_id}\0{member_id}"
