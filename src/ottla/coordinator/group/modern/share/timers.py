"""Session timers of share group members. A timer that fires checks whether it still applies.

Timers are not timeline state: a failed append reverts the members, but not their timers. So a stale timer is harmless,
and a caller whose change is reverted restarts the timer (`schedule_session_of`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.common.logs import RATE_LIMITED
from ottla.coordinator.group.context import ShardContext
from ottla.coordinator.group.modern.share.group import ShareGroup
from ottla.coordinator.group.modern.share.member import ShareMember
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.runtime import EMPTY_RESULT, CoordinatorResult

logger = logging.getLogger(__name__)

RemoveMember = Callable[[ShareGroup, ShareMember], CoordinatorResult[GroupRecord, None]]
"""Removes a member from its group."""


class ShareTimers:
    """Session timers of all share group members of one shard."""

    __slots__ = ("_context", "_remove")

    def __init__(self, context: ShardContext, remove: RemoveMember) -> None:
        self._context = context
        self._remove = remove

    def schedule_session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Restart the session timer; called with every heartbeat."""
        self._context.timer.schedule(
            _key(group_id, member_id), timeout_ms, lambda: self._session_timed_out(group_id, member_id)
        )

    def schedule_session_of(self, group: ShareGroup, member_id: str) -> None:
        """Start a full session of a member: after a load, or after a failed append."""
        if member_id in group.members and self._context.groups.find(group.group_id) is group:
            overrides = self._context.image.group_configs(group.group_id)
            self.schedule_session(group.group_id, member_id, self._context.config.share_session_timeout_ms(overrides))

    def cancel_session(self, group_id: str, member_id: str) -> None:
        """Cancel the timer of a member that is removed."""
        self._context.timer.cancel(_key(group_id, member_id))

    def _session_timed_out(self, group_id: str, member_id: str) -> CoordinatorResult[GroupRecord, None]:
        group = self._context.groups.find(group_id)
        member = group.members.get(member_id) if isinstance(group, ShareGroup) else None
        if not isinstance(group, ShareGroup) or member is None:
            return EMPTY_RESULT
        logger.info("removing member %s of share group %s: session timed out", member_id, group_id, extra=RATE_LIMITED)
        return self._remove(group, member)


def _key(group_id: str, member_id: str) -> str:
    return f"share-session\0{group_id}\0{member_id}"
