"""Heartbeats of share group members, leaving excepted (KIP-932).

One heartbeat passes through these steps, each of which may add records:

1. Find or create the group and the member.
2. Apply the member's own data from the request.
3. Raise the group epoch if subscriptions, topics or initialized partitions changed.
4. Compute a target assignment if the group epoch is ahead and the last target is old enough (KIP-1263).
5. Move the member to its target.
6. Request the initialization of subscribed partitions without share state.

Replaying the records changes the state. Only timers and hints change here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.share_state import SharePartitionKey
from ottla.common.logs import RATE_LIMITED
from ottla.coordinator.group.assignors.assignor import Assignment
from ottla.coordinator.group.context import RequestContext, ShardContext
from ottla.coordinator.group.modern.assignment_interval import may_assign
from ottla.coordinator.group.modern.share.group import ShareGroup, group_epoch_record
from ottla.coordinator.group.modern.share.member import JOIN_MEMBER_EPOCH, ShareMember
from ottla.coordinator.group.modern.share.requests import assignment_message, validate_member_epoch
from ottla.coordinator.group.modern.share.target_assignment import compute_target
from ottla.coordinator.group.modern.share.timers import ShareTimers
from ottla.coordinator.group.modern.share.work import CHOSEN_AT_FIRST_FETCH, ShareHeartbeat, StateInitialization
from ottla.coordinator.group.modern.subscribed_topics import metadata_hash, topic_ids
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.runtime import CoordinatorResult
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

logger = logging.getLogger(__name__)

FindGroup = Callable[[str, bool], ShareGroup]
"""Takes (group id, whether to create it); raises KafkaError GROUP_ID_NOT_FOUND."""


class ShareGroupHeartbeats:
    """Handles the heartbeats of one shard."""

    __slots__ = ("_context", "_find_group", "_timers")

    def __init__(self, context: ShardContext, find_group: FindGroup, timers: ShareTimers) -> None:
        self._context = context
        self._find_group = find_group
        self._timers = timers

    def heartbeat(
        self, request_context: RequestContext, request: ShareGroupHeartbeatRequest
    ) -> CoordinatorResult[GroupRecord, ShareHeartbeat]:
        """Handle any heartbeat except a leave. Raises KafkaError with the code that the member gets."""
        joins = request.member_epoch == JOIN_MEMBER_EPOCH
        group = self._find_group(request.group_id, joins)
        before = self._find_member(group, request)
        member = _with_request(before or ShareMember(request.member_id), request_context, request)
        self._admit(group, before, member)
        records: list[GroupRecord] = []
        if member != before:
            records.append(member.metadata_record(group.group_id))
        group_epoch = self._advance_group(group, before, member, records)
        target_epoch, target = self._target(group, group_epoch, member, records)
        subscribed = topic_ids(member.subscribed_topic_names, self._context.image)
        allowed = {topic_id: numbers for topic_id, numbers in target.items() if topic_id in subscribed}
        after = member.moved_to(target_epoch, allowed)
        if after is not member:
            records.append(after.assignment_record(group.group_id))
        initialization = self._initialize(group, group_epoch, before, after, records)
        config, overrides = self._context.config, self._context.image.group_configs(group.group_id)
        self._timers.schedule_session(group.group_id, after.member_id, config.share_session_timeout_ms(overrides))
        response = ShareGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=config.share_heartbeat_interval_ms(overrides),
        )
        # A member that sends its subscription may have missed the last response.
        full = joins or request.subscribed_topic_names is not None
        if full or before is None or after.assigned != before.assigned:
            response.assignment = assignment_message(after.assigned)
        return CoordinatorResult(
            records, ShareHeartbeat(response, initialization), self._appended(group, after, initialization)
        )

    def _appended(
        self, group: ShareGroup, member: ShareMember, initialization: StateInitialization | None
    ) -> Callable[[KafkaError | None], None]:
        def appended(error: KafkaError | None) -> None:
            if error is None:
                return
            group.request_checks()
            self._timers.schedule_session_of(group, member.member_id)
            for key in () if initialization is None else initialization.start_offsets:
                group.initializing_since_ms.pop(key, None)

        return appended

    # -- the member ----------------------------------------------------------------------------------------------------

    def _find_member(self, group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember | None:
        """Return the member, None for one that joins. Raises KafkaError GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID or
        FENCED_MEMBER_EPOCH."""
        limit = self._context.config.group_share_max_size
        member = group.members.get(request.member_id)
        if member is None:
            if len(group.members) >= limit:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {limit} members.",
                )
            return None if request.member_epoch == JOIN_MEMBER_EPOCH else group.member(request.member_id)
        validate_member_epoch(member, request.member_epoch)
        return member

    def _admit(self, group: ShareGroup, before: ShareMember | None, after: ShareMember) -> None:
        """Raises KafkaError INVALID_REQUEST or GROUP_MAX_SIZE_REACHED when a memory limit is exceeded."""
        if before is not None and before.subscribed_topic_names is after.subscribed_topic_names:
            return
        held, size = 0 if before is None else before.held_bytes, after.held_bytes
        limit = self._context.config.group_member_max_bytes
        if size > limit:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The member has {size} bytes, above group.coordinator.member.max.bytes={limit}.",
            )
        self._context.memory.admit(group.held_bytes - held, held, size)

    # -- the group -----------------------------------------------------------------------------------------------------

    def _advance_group(
        self, group: ShareGroup, before: ShareMember | None, after: ShareMember, records: list[GroupRecord]
    ) -> int:
        """Raise the group epoch if required; return it."""
        raised = before is None or before.subscribed_topic_names != after.subscribed_topic_names
        group_epoch = group.group_epoch
        if not raised and not group.topics_need_check():
            return group_epoch
        image = self._context.image
        names = group.subscribed_topics_after(before, after)
        topics_hash = metadata_hash(names, image)
        if raised or topics_hash != group.metadata_hash or group.lacks_initialized(names, image):
            group_epoch += 1
            records.append(group_epoch_record(group.group_id, group_epoch, topics_hash))
        group.topics_checked_at_epoch = group_epoch
        return group_epoch

    def _target(
        self, group: ShareGroup, group_epoch: int, member: ShareMember, records: list[GroupRecord]
    ) -> tuple[int, Assignment]:
        """Return epoch and member's part of the target assignment, after computing a new one if required."""
        config, image = self._context.config, self._context.image
        interval_ms = config.share_assignment_interval_ms(image.group_configs(group.group_id))
        now_ms = self._context.clock.time_ms()
        if group_epoch <= group.assignment_epoch or not may_assign(group.assignment_timestamp_ms, interval_ms, now_ms):
            return group.assignment_epoch, group.target(member.member_id)
        target = compute_target(group, group_epoch, member, image, self._context.clock.time_ms)
        records += target.records
        logger.info(
            "computed a target assignment of share group %s for epoch %d",
            group.group_id,
            group_epoch,
            extra=RATE_LIMITED,
        )
        return group_epoch, target.of_member

    # -- share state ---------------------------------------------------------------------------------------------------

    def _initialize(
        self,
        group: ShareGroup,
        group_epoch: int,
        before: ShareMember | None,
        after: ShareMember,
        records: list[GroupRecord],
    ) -> StateInitialization | None:
        """Return the subscribed partitions to initialize, except those whose initialization is in progress."""
        image, now_ms = self._context.image, self._context.clock.time_ms()
        changed = before is None or before.subscribed_topic_names != after.subscribed_topic_names
        if group.state_is_complete and not changed:
            return None
        names = group.subscribed_topics_after(before, after) if changed else group.topic_subscribers
        missing = group.state.missing(names, image)
        group.state_is_complete = not missing
        missing = {topic_id: numbers for topic_id, numbers in missing.items() if topic_id not in group.deleting_topics}
        if not missing:
            return None
        retry_ms = self._context.config.group_share_initialize_retry_interval_ms
        started = group.initializing_since_ms
        keys = [
            key
            for topic_id, numbers in sorted(missing.items())
            for key in (SharePartitionKey(group.group_id, topic_id, number) for number in sorted(numbers))
            if key not in started or now_ms - started[key] >= retry_ms
        ]
        if not keys:
            return None
        topics = {topic_id: image.topic_by_id(topic_id) for topic_id in missing}
        state = group.state.with_initializing(
            missing, {topic_id: topic.name for topic_id, topic in topics.items() if topic is not None}
        )
        if state != group.state:
            records.append(state.record(group.group_id))
        for key in keys:
            started[key] = now_ms
        return StateInitialization(group.group_id, group_epoch, dict.fromkeys(keys, CHOSEN_AT_FIRST_FETCH))


def _with_request(
    member: ShareMember, request_context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareMember:
    """Return the member with its fields in the request; null means no change."""
    names = None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names)
    if names is None or names == member.subscribed_topic_names:
        names = member.subscribed_topic_names
    return member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        subscribed_topic_names=names,
        client_id=request_context.client_id,
        client_host=request_context.client_host,
    )
