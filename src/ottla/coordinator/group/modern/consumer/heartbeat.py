"""Heartbeats of the consumer protocol, leaving excepted (KIP-848).

One heartbeat passes through these steps, each of which may add records:

1. Find or create the group and the member.
2. Apply the member's own data from the request.
3. Raise the group epoch if subscriptions or topics changed.
4. Compute a target assignment if the group epoch is ahead and the last target is old enough (KIP-1263).
5. Move the member one step towards its target.

Replaying the records changes the state. Only timers and the hint of when topics were checked change here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.logs import RATE_LIMITED
from ottla.coordinator.group.assignors.assignor import Assignment
from ottla.coordinator.group.context import RequestContext, ShardContext
from ottla.coordinator.group.modern.assignment_interval import may_assign
from ottla.coordinator.group.modern.consumer.group import ConsumerGroup
from ottla.coordinator.group.modern.consumer.member import (
    JOIN_MEMBER_EPOCH,
    LEAVE_STATIC_MEMBER_EPOCH,
    ConsumerMember,
    MemberState,
    removal_records,
    target_assignment_record,
)
from ottla.coordinator.group.modern.consumer.reconciliation import Reconciliation
from ottla.coordinator.group.modern.consumer.regexes import RegexChange, RegexSubscriptions, group_epoch_record
from ottla.coordinator.group.modern.consumer.requests import assignment_message, is_full, validate_member_epoch
from ottla.coordinator.group.modern.consumer.target_assignment import compute_target
from ottla.coordinator.group.modern.consumer.timers import ConsumerTimers
from ottla.coordinator.group.modern.subscribed_topics import metadata_hash, topic_ids
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.runtime import CoordinatorResult
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.messages.coordinator_records import ConsumerGroupPartitionMetadataKey

logger = logging.getLogger(__name__)

FindGroup = Callable[[str, bool, list[GroupRecord]], ConsumerGroup]
"""Takes (group id, whether to create it, records of its creation); raises KafkaError GROUP_ID_NOT_FOUND."""


class MemberChange:
    """Changes of one member within one request, with the records so far."""

    __slots__ = ("after", "before", "group", "joins", "records", "replaced_member_id")

    def __init__(self, group: ConsumerGroup, records: list[GroupRecord]) -> None:
        self.group = group
        self.records = records
        self.before = self.after = ConsumerMember("")
        self.joins = False
        """The member is new; one that replaces a static member counts as known."""
        self.replaced_member_id: str | None = None

    def found(self, member: ConsumerMember, *, joins: bool) -> None:
        self.before = self.after = member
        self.joins = joins


class ConsumerHeartbeat:
    """Handles the heartbeats of one shard."""

    __slots__ = ("_context", "_find_group", "_regexes", "_timers")

    def __init__(
        self, context: ShardContext, find_group: FindGroup, regexes: RegexSubscriptions, timers: ConsumerTimers
    ) -> None:
        self._context = context
        self._find_group = find_group
        self._regexes = regexes
        self._timers = timers

    def heartbeat(
        self, request_context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> CoordinatorResult[GroupRecord, ConsumerGroupHeartbeatResponse]:
        """Handle any heartbeat except a leave. Raises KafkaError with the code that the member gets."""
        records: list[GroupRecord] = []
        joins = request.member_epoch == JOIN_MEMBER_EPOCH
        group = self._find_group(request.group_id, joins, records)
        self.check_size(group, request.member_id)
        change = MemberChange(group, records)
        self._find_member(change, request)
        self._take_over(change, request_context, request)
        self.admit(change)
        names_changed = self.note_metadata(change)
        regex = self._regexes.update(group, change.before, change.after, records, request_context.may_describe)
        # An unresolved pattern raises the epoch later.
        raises = names_changed or regex is RegexChange.CHANGED_AND_RESOLVED
        target_epoch, target = self.advance_group(change, raise_epoch=raises)
        # A member that joins or rejoins has given up all its partitions.
        owned = [] if joins else request.topic_partitions
        subscription_changed = names_changed or regex is not RegexChange.NONE
        self.reconcile(change, target_epoch, target, owned, subscription_changed=subscription_changed)
        after = change.after
        config, overrides = self._context.config, self._context.image.group_configs(group.group_id)
        self._timers.schedule_session(group.group_id, after.member_id, config.session_timeout_ms(overrides))
        response = ConsumerGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=config.heartbeat_interval_ms(overrides),
        )
        if joins or is_full(request) or after.assigned != change.before.assigned:
            response.assignment = assignment_message(after.assigned)
        if not records:
            return CoordinatorResult((), response)

        def appended(error: KafkaError | None) -> None:
            if error is not None:
                self._timers.schedule_lives_of(group, (after.member_id,))

        return CoordinatorResult(records, response, appended)

    def check_size(self, group: ConsumerGroup, member_id: str) -> None:
        """Raises KafkaError GROUP_MAX_SIZE_REACHED for a new member of a full group."""
        limit = self._context.config.group_consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def admit(self, change: MemberChange) -> None:
        """Raises KafkaError INVALID_REQUEST or GROUP_MAX_SIZE_REACHED when a memory limit is exceeded."""
        before, after = change.before, change.after
        if not change.joins and after.sent_the_same(before):
            return
        held, size = 0 if change.joins else before.held_bytes, after.held_bytes
        limit = self._context.config.group_member_max_bytes
        if size > limit:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The member has {size} bytes, above group.coordinator.member.max.bytes={limit}.",
            )
        self._context.memory.admit(change.group.held_bytes - held, held, size)

    # -- the member ----------------------------------------------------------------------------------------------------

    def _find_member(self, change: MemberChange, request: ConsumerGroupHeartbeatRequest) -> None:
        group = change.group
        joins = request.member_epoch == JOIN_MEMBER_EPOCH
        member_id = request.member_id or self._context.new_member_id()
        if request.instance_id is not None:
            self._find_static_member(change, request, member_id, request.instance_id)
            return
        member = group.members.get(member_id)
        if member is None:
            if not joins:
                group.member(member_id)
            change.found(ConsumerMember(member_id), joins=True)
            return
        validate_member_epoch(member, request.member_epoch, request.topic_partitions)
        change.found(member, joins=False)

    def _find_static_member(
        self, change: MemberChange, request: ConsumerGroupHeartbeatRequest, member_id: str, instance_id: str
    ) -> None:
        """A static member joins if its predecessor left or has the same id; classic predecessors are replaced."""
        existing = change.group.static_member(instance_id)
        if request.member_epoch != JOIN_MEMBER_EPOCH:
            member = known_static_member(existing, member_id, instance_id)
            validate_member_epoch(member, request.member_epoch, request.topic_partitions)
            change.found(member, joins=False)
            return
        if existing is None:
            member_or_none = change.group.members.get(member_id)
            change.found(member_or_none or ConsumerMember(member_id), joins=member_or_none is None)
            return
        if existing.member_epoch != LEAVE_STATIC_MEMBER_EPOCH and not existing.uses_classic_protocol:
            if existing.member_id == member_id:
                # The member was fenced and rejoins under its own id, so no other process is meant. (Kafka waits for the
                # session timeout.)
                change.found(existing, joins=False)
                return
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {existing.member_id} member.",
            )
        self.replace_static_member(change, existing, member_id)

    def replace_static_member(self, change: MemberChange, existing: ConsumerMember, member_id: str) -> None:
        """Replace `existing` by `member_id`, which inherits subscription, target and partitions."""
        group = change.group
        member = existing._replace(
            member_id=member_id, member_epoch=JOIN_MEMBER_EPOCH, previous_member_epoch=JOIN_MEMBER_EPOCH
        )
        # The old member's timers remain, because the change may be reverted; they do nothing for a removed member.
        change.records += removal_records(group.group_id, existing.member_id)
        change.records.append(member.metadata_record(group.group_id))
        change.records.append(
            target_assignment_record(group.group_id, member_id, group.targets.get(existing.member_id, {}))
        )
        change.records.append(member.assignment_record(group.group_id))
        change.found(member, joins=False)
        change.replaced_member_id = existing.member_id

    def _take_over(
        self, change: MemberChange, request_context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> None:
        """Apply the member's fields in the request; null means no change."""
        before = change.before
        names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        timeout_ms = request.rebalance_timeout_ms
        change.after = before._replace(
            instance_id=before.instance_id if request.instance_id is None else request.instance_id,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
            subscribed_topic_names=before.subscribed_topic_names if names is None else frozenset(names),
            subscribed_topic_regex=before.subscribed_topic_regex if regex is None else regex,
            client_id=request_context.client_id,
            client_host=request_context.client_host,
            classic=None,
        )

    def note_metadata(self, change: MemberChange) -> bool:
        """Add a record if the member changed; return whether its subscribed names changed."""
        if change.joins or change.after != change.before:
            change.records.append(change.after.metadata_record(change.group.group_id))
        return change.after.subscribed_topic_names != change.before.subscribed_topic_names

    # -- the group -----------------------------------------------------------------------------------------------------

    def advance_group(self, change: MemberChange, *, raise_epoch: bool) -> tuple[int, Assignment]:
        """Raise the group epoch and compute a target if required; return the target epoch and the member's target."""
        group = change.group
        group_epoch = group.group_epoch
        if raise_epoch or group.topics_need_check():
            group_epoch = self.check_topics(change, raise_epoch=raise_epoch)
        if group_epoch > group.assignment_epoch and self._may_assign(group):
            config = self._context.config
            name = group.preferred_assignor(self._changed_members(change))
            target = compute_target(
                group,
                group_epoch,
                change.after,
                change.replaced_member_id,
                name if name in config.group_consumer_assignors else config.group_consumer_assignors[0],
                self._context.image,
                self._context.clock.time_ms,
            )
            change.records += target.records
            logger.info(
                "computed a target assignment of group %s for epoch %d", group.group_id, group_epoch, extra=RATE_LIMITED
            )
            return group_epoch, target.of_member
        return group.assignment_epoch, group.target(change.after.member_id, change.after.instance_id)

    def _changed_members(self, change: MemberChange) -> list[tuple[str, ConsumerMember | None]]:
        changed: list[tuple[str, ConsumerMember | None]] = [(change.after.member_id, change.after)]
        if change.replaced_member_id not in (None, change.after.member_id):
            changed.append((str(change.replaced_member_id), None))
        return changed

    def check_topics(self, change: MemberChange, *, raise_epoch: bool) -> int:
        """Compare the subscribed topics with the metadata; return the group epoch."""
        group = change.group
        topics = group.subscribed_topics_after([(change.before, change.after)])
        topics_hash = metadata_hash(topics, self._context.image)
        group_epoch = group.group_epoch
        if raise_epoch or topics_hash != group.metadata_hash:
            group_epoch += 1
            change.records.append(group_epoch_record(group.group_id, group_epoch, topics_hash))
        group.topics_checked_at_epoch = group_epoch
        if group.has_partition_metadata:
            change.records.append(GroupRecord(ConsumerGroupPartitionMetadataKey(group_id=group.group_id), None))
        return group_epoch

    def _may_assign(self, group: ConsumerGroup) -> bool:
        interval_ms = self._context.config.assignment_interval_ms(self._context.image.group_configs(group.group_id))
        return may_assign(group.assignment_timestamp_ms, interval_ms, self._context.clock.time_ms())

    # -- the assignment ------------------------------------------------------------------------------------------------

    def reconcile(
        self,
        change: MemberChange,
        target_epoch: int,
        target: Assignment,
        owned: list[TopicPartitions] | None,
        *,
        subscription_changed: bool,
    ) -> None:
        """Move the member one step towards its target; start or stop the timer that limits a revocation."""
        group, member = change.group, change.after
        if not subscription_changed and member.is_reconciled_to(target_epoch):
            return
        subscribed = topic_ids(group.subscribed_topics(member), self._context.image)
        step = Reconciliation(member, target_epoch, target, subscribed, group.owner, owned)
        moved = step.next_member(subscription_changed)
        if moved is member:
            return
        change.after = moved
        change.records.append(moved.assignment_record(group.group_id))
        if moved.uses_classic_protocol:
            return
        if moved.state is MemberState.UNREVOKED_PARTITIONS:
            self._timers.schedule_rebalance(
                group.group_id, moved.member_id, moved.member_epoch, moved.rebalance_timeout_ms
            )
        else:
            self._timers.cancel_rebalance(group.group_id, moved.member_id)


def known_static_member(existing: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """Return the holder of the instance id. Raises KafkaError UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if it is not
    `member_id`."""
    if existing is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if existing.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.member_id}.",
        )
    return existing
