"""Timers of the members of consumer groups. A timer that fires finds out itself whether it still means anything.

Timers are no timeline state: a failed append takes the members back to where they were, and not their timers. So one
that is set for nothing does no harm, and who cancels some for a change that is not written yet sets them again when it
fails (`schedule_lives_of`).

`session`: the member must heartbeat. `rebalance`: it must confirm a revocation (KIP-848). `join` and `sync`: members of
the classic protocol in a consumer group must send JoinGroup or SyncGroup after they were told to.
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
    """All of one shard."""

    __slots__ = ("_context", "_fence")

    def __init__(self, context: ShardContext, fence: Fence) -> None:
        self._context = context
        self._fence = fence

    def schedule_session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Anew with every heartbeat."""
        self._schedule("session", "was not heard of", group_id, member_id, timeout_ms)

    def schedule_sync(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """From the response to a JoinGroup on."""
        self._schedule("sync", "did not ask for its assignment", group_id, member_id, timeout_ms)

    def serve(self, group: ConsumerGroup) -> bool:
        """Whether timers are set for members of `group`; not once it became a classic group, whose timers are others:
        should that turn into a consumer group again, an old timer would hit a member of the new one."""
        return self._context.groups.find(group.group_id) is group

    def schedule_join_if_absent(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """From the first REBALANCE_IN_PROGRESS on."""
        self._context.timer.schedule_if_absent(
            _key("join", group_id, member_id),
            timeout_ms,
            lambda: self._fence_member("did not join again", group_id, member_id, None),
        )

    def schedule_rebalance(self, group_id: str, member_id: str, member_epoch: int, timeout_ms: int) -> None:
        """Only counts while the member stays in that epoch."""
        self._context.timer.schedule(
            _key("rebalance", group_id, member_id),
            max(0, timeout_ms),
            lambda: self._fence_member("did not give up its partitions", group_id, member_id, member_epoch),
        )

    def cancel_rebalance(self, group_id: str, member_id: str) -> None:
        self._context.timer.cancel(_key("rebalance", group_id, member_id))

    def cancel_join(self, group_id: str, member_id: str) -> None:
        self._context.timer.cancel(_key("join", group_id, member_id))

    def cancel_sync(self, group_id: str, member_id: str) -> None:
        self._context.timer.cancel(_key("sync", group_id, member_id))

    def cancel_all(self, group_id: str, member_id: str) -> None:
        """The member goes."""
        for kind in ("session", "rebalance", "join", "sync"):
            self._context.timer.cancel(_key(kind, group_id, member_id))

    def schedule_life(self, group_id: str, member: ConsumerMember) -> None:
        """A full session, and what bounds a revocation: for who was there when the shard was loaded, and for who stays
        because what would have changed it was not written. Timers of classic members follow with their next request."""
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
        """An append failed, and these are members again, unless it may still be committed."""
        if not self.serve(group):
            return
        for member_id in member_ids:
            member = group.members.get(member_id)
            if member is not None:
                self.schedule_life(group.group_id, member)

    def _schedule(self, kind: str, failing: str, group_id: str, member_id: str, timeout_ms: int) -> None:
        self._context.timer.schedule(
            _key(kind, group_id, member_id),
            timeout_ms,
            lambda: self._fence_member(failing, group_id, member_id, None),
        )

    def _fence_member(
        self, failing: str, group_id: str, member_id: str, member_epoch: int | None
    ) -> CoordinatorResult[GroupRecord, None]:
        group = self._context.groups.find(group_id)
        if not isinstance(group, ConsumerGroup):
            return EMPTY_RESULT
        member = group.members.get(member_id)
        if member is None or (member_epoch is not None and member.member_epoch != member_epoch):
            return EMPTY_RESULT
        logger.info("member %s of group %s %s in time and is removed", member_id, group_id, failing, extra=RATE_LIMITED)
        return self._fence(group, member)


def _key(kind: str, group_id: str, member_id: str) -> str:
    return f"consumer-{kind}\0{group_id}\0{member_id}"
