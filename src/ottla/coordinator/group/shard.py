"""One shard of the group coordinator: the groups and offsets of one partition of `__consumer_offsets`.

Handlers take a request and return records and a response. Components that share one `ShardContext` do the work:
`ClassicGroups` (JoinGroup and related APIs), `ConsumerGroups` (KIP-848), `ShareProtocolGroups` with `ShareStates`
(KIP-932) and `Offsets` (commits for groups with offsets).
`context.groups` contains the groups of all types. This module routes records and requests to the components, and
implements the operations for all group types: list, delete, expire.

Left out: streams groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ottla.common.errors import KafkaError
from ottla.coordinator.group.classic.handlers import ClassicGroups
from ottla.coordinator.group.classic.member import JoinReply, SyncReply
from ottla.coordinator.group.classic.rebalance import Result
from ottla.coordinator.group.context import RequestContext, ShardContext
from ottla.coordinator.group.group import Group, GroupType
from ottla.coordinator.group.modern.consumer.handlers import ConsumerGroups
from ottla.coordinator.group.modern.share.handlers import ShareProtocolGroups
from ottla.coordinator.group.modern.share.offsets import ShareStates, refuse_group_with_state
from ottla.coordinator.group.offsets.offsets import Offsets
from ottla.coordinator.group.records import GroupRecord, OffsetPlace
from ottla.coordinator.runtime import CoordinatorResult
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.messages.list_groups import ListedGroup
from ottla.protocol.messages.sync_group import SyncGroupRequest

EXPIRATION_TIMER = "expire-group-metadata"

EXPIRATION_SLICE_OFFSETS = 2_000
"""Offsets that one expiry operation examines before it yields to others; a group is never split."""


class GroupFilter:
    """State and type filters of ListGroups (empty: any), case-insensitive."""

    __slots__ = ("_states", "_types")

    def __init__(self, states: Iterable[str], types: Iterable[str]) -> None:
        self._states = frozenset(state.lower() for state in states)
        self._types = frozenset(name.lower() for name in types)

    def takes(self, group: Group, as_of: int) -> bool:
        """Return whether a group matches the filters."""
        return (not self._states or group.state_name(as_of).lower() in self._states) and (
            not self._types or group.type.value in self._types
        )


class GroupCoordinatorShard:
    """Group state machine that the coordinator runtime loads, replays into and calls."""

    __slots__ = ("_replays", "_unswept", "classic", "consumer", "context", "offsets", "share", "share_states")

    def __init__(self, context: ShardContext) -> None:
        self.context = context
        self.classic = ClassicGroups(context)
        self.consumer = ConsumerGroups(context, self.classic.rebalance)
        self.share = ShareProtocolGroups(context)
        self.share_states = ShareStates(context, self.share)
        self.offsets = Offsets(context, self.classic.rebalance)
        self._replays: dict[type, Callable[[Any, Any], None]] = {
            **self.classic.replays(),
            **self.consumer.replays(),
            **self.share.replays(),
        }
        self._unswept: Iterator[str] | None = None
        """Groups that the current expiry pass still has to examine; None between passes."""

    # -- CoordinatorShard ----------------------------------------------------------------------------------------------

    def replay(self, offset: int, record: GroupRecord, producer_id: int, producer_epoch: int) -> None:
        """Apply one record, while loading or right before it is appended; only offset commits are transactional."""
        key, value = record
        if type(key) is OffsetPlace:
            self.offsets.replay_offset_commit(offset, key, value, producer_id)
        else:
            self._replays[type(key)](key, value)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """Commit or discard the offsets of a transaction."""
        self.offsets.replay_end_transaction_marker(producer_id, committed=committed)

    def loaded(self) -> None:
        """All records were replayed: known members get a full session to reconnect."""
        self.context.memory.loaded(self.context.groups.held_bytes())
        self.classic.loaded()
        self.consumer.loaded()
        self.share.loaded()
        self._schedule_expiration(self.context.config.offsets_retention_check_interval_ms)

    def unloaded(self) -> None:
        """Leadership is lost: members that wait in a rebalance get NOT_COORDINATOR."""
        self.classic.unloaded()
        self.consumer.unloaded()

    def release(self) -> Iterator[None]:
        """Release offsets, then groups, in short steps: there may be millions of offsets and many groups."""
        yield from self.offsets.release()
        yield from self.context.groups.release()

    # -- classic protocol; members of consumer groups may use it too (KIP-848, migration) ------------------------------

    def classic_join(self, request_context: RequestContext, request: JoinGroupRequest, reply: JoinReply) -> Result:
        """Process JoinGroup: raises KafkaError, or responds through `reply`."""
        if self._is_live_consumer_group(request.group_id):
            return self.consumer.classic_join(request_context, request, reply)
        return self.classic.join(request_context, request, reply)

    def classic_sync(self, request_context: RequestContext, request: SyncGroupRequest, reply: SyncReply) -> Result:
        """Process SyncGroup: raises KafkaError, or responds through `reply`."""
        if self._is_live_consumer_group(request.group_id):
            return self.consumer.classic_sync(request_context, request, reply)
        return self.classic.sync(request_context, request, reply)

    def classic_heartbeat(
        self, request_context: RequestContext, request: HeartbeatRequest
    ) -> CoordinatorResult[GroupRecord, HeartbeatResponse]:
        """Process Heartbeat. Raises KafkaError."""
        if self._is_live_consumer_group(request.group_id):
            return self.consumer.classic_heartbeat(request_context, request)
        return self.classic.heartbeat(request_context, request)

    def classic_leave(
        self, request_context: RequestContext, request: LeaveGroupRequest
    ) -> CoordinatorResult[GroupRecord, LeaveGroupResponse]:
        """Process LeaveGroup. Raises KafkaError."""
        if self._is_live_consumer_group(request.group_id):
            return self.consumer.classic_leave(request_context, request)
        return self.classic.leave(request_context, request)

    def _is_live_consumer_group(self, group_id: str) -> bool:
        group = self.context.groups.find(group_id)
        return group is not None and group.type is GroupType.CONSUMER and not group.is_empty()

    # -- groups of any type --------------------------------------------------------------------------------------------

    def list_groups(self, wanted: GroupFilter, group_ids: Iterable[str], committed_offset: int) -> list[ListedGroup]:
        """Return the existing groups among `group_ids` that match the filter."""
        groups = self.context.groups
        return [
            group.as_listed_group(committed_offset)
            for group_id in group_ids
            if (group := groups.find(group_id, committed_offset)) is not None and wanted.takes(group, committed_offset)
        ]

    def delete_groups(
        self, group_ids: Sequence[str], request_context: RequestContext
    ) -> CoordinatorResult[GroupRecord, list[DeletableGroupResult]]:
        """Delete the empty groups with their offsets; results are per group id."""
        records: list[GroupRecord] = []
        results = []
        for group_id in group_ids:
            result = DeletableGroupResult(group_id=group_id)
            try:
                group = self.context.groups.get(group_id)
                group.validate_delete_group()
                refuse_group_with_state(group)
            except KafkaError as error:
                result.error_code = error.code
            else:
                records += self.offsets.group_tombstones(group_id)
                records += group.tombstone_records()
            results.append(result)
        return CoordinatorResult(records, results, atomic=False)

    # -- expiry (KIP-211) ----------------------------------------------------------------------------------------------

    def _schedule_expiration(self, delay_ms: int) -> None:
        self.context.timer.schedule(EXPIRATION_TIMER, delay_ms, self._expire)

    def _expire(self) -> Result:
        """Examine some groups: expire due offsets, and delete groups that are empty and have no offsets."""
        records: list[GroupRecord] = []
        examined = 0
        if self._unswept is None:
            self._unswept = self.context.groups.ids()
        for group_id in self._unswept:
            group = self.context.groups.find(group_id)
            if group is None:
                continue
            examined += 1 + self.offsets.count(group_id)
            tombstones, all_expired = self.offsets.expired(group)
            records += tombstones
            # A share group has state elsewhere, which DeleteGroups deletes before the group.
            if all_expired and group.is_empty() and group.type is not GroupType.SHARE:
                records += group.tombstone_records()
            if examined >= EXPIRATION_SLICE_OFFSETS:
                self._schedule_expiration(0)
                return CoordinatorResult(records, atomic=False)
        self._unswept = None
        self._schedule_expiration(self.context.config.offsets_retention_check_interval_ms)
        return CoordinatorResult(records, atomic=False)
