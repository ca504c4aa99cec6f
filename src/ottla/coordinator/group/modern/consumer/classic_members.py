"""Classic protocol members of a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-848).

Such a member needs three requests for one consumer protocol heartbeat. JoinGroup sends its subscription and owned
partitions, and moves it one step towards its target; the returned generation is its own member epoch. SyncGroup fetches
its assignment. Heartbeat returns REBALANCE_IN_PROGRESS when the member has to rejoin: when the group epoch rose, when
it has to revoke partitions, or when partitions of its target became free. Members do not wait for each other, so
JoinGroup and SyncGroup are answered immediately.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol, TypeVar

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.logs import RATE_LIMITED
from ottla.coordinator.group.classic.join import MEMBER_ID_REQUIRED_VERSION
from ottla.coordinator.group.classic.member import JoinReply, SyncReply, request_protocols
from ottla.coordinator.group.classic.rebalance import Rebalance, Result, join_error
from ottla.coordinator.group.consumer_protocol import CONSUMER_PROTOCOL_TYPE, decode_subscription, metadata_version
from ottla.coordinator.group.context import RequestContext, ShardContext
from ottla.coordinator.group.modern.consumer.group import ConsumerGroup
from ottla.coordinator.group.modern.consumer.heartbeat import ConsumerHeartbeat, MemberChange, known_static_member
from ottla.coordinator.group.modern.consumer.member import ConsumerMember, MemberState
from ottla.coordinator.group.modern.consumer.migration import (
    can_downgrade,
    classic_metadata,
    downgrade,
    encoded_assignment,
    with_classic_subscription,
)
from ottla.coordinator.group.modern.consumer.regexes import RegexChange, RegexSubscriptions
from ottla.coordinator.group.modern.consumer.timers import ConsumerTimers
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.runtime import EMPTY_RESULT, CoordinatorResult
from ottla.protocol.messages.consumer_group_heartbeat import TopicPartitions
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger(__name__)

R_co = TypeVar("R_co")


class Leave(Protocol):
    """Removes members and responds; may downgrade the group."""

    def __call__(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember], response: R_co
    ) -> CoordinatorResult[GroupRecord, R_co]: ...


class ClassicMembers:
    """Classic protocol members of all consumer groups of one shard."""

    __slots__ = ("_context", "_heartbeat", "_leave", "_rebalance", "_regexes", "_timers")

    def __init__(
        self,
        context: ShardContext,
        heartbeat: ConsumerHeartbeat,
        regexes: RegexSubscriptions,
        timers: ConsumerTimers,
        rebalance: Rebalance,
        leave: Leave,
    ) -> None:
        self._context = context
        self._heartbeat = heartbeat
        self._regexes = regexes
        self._timers = timers
        self._rebalance = rebalance
        self._leave = leave

    # -- JoinGroup -----------------------------------------------------------------------------------------------------

    def join(
        self, group: ConsumerGroup, request_context: RequestContext, request: JoinGroupRequest, reply: JoinReply
    ) -> Result:
        """Process JoinGroup of a classic member; responds through `reply`.

        Raises KafkaError, e.g. INCONSISTENT_GROUP_PROTOCOL if the migration policy forbids the join.
        """
        self._check_join(group, request)
        if not request.member_id and request.group_instance_id is None:
            member_id = self._context.new_classic_member_id(request_context.client_id)
            if request_context.api_version >= MEMBER_ID_REQUIRED_VERSION:
                reply.answer(join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED))
                return EMPTY_RESULT
        else:
            member_id = request.member_id or self._context.new_classic_member_id(str(request.group_instance_id))
        protocols = request_protocols(request)
        try:
            subscription = decode_subscription(next(iter(protocols.values())))
        except ProtocolError as error:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
        change = MemberChange(group, [])
        existing = self._find_member(change, request, member_id)
        timeout_ms = request.rebalance_timeout_ms
        subscribed = with_classic_subscription(
            change.before,
            subscription,
            classic_metadata(request.session_timeout_ms, protocols),
            request.session_timeout_ms if timeout_ms == -1 else timeout_ms,
        )
        change.after = subscribed._replace(
            instance_id=change.before.instance_id if request.group_instance_id is None else request.group_instance_id,
            client_id=request_context.client_id,
            client_host=request_context.client_host,
        )
        self._heartbeat.admit(change)
        changed = self._heartbeat.note_metadata(change)
        may_describe = request_context.may_describe
        regex = self._regexes.update(group, change.before, change.after, change.records, may_describe)
        changed = regex is not RegexChange.NONE or changed
        if existing is not None and can_downgrade(group, [existing.member_id], self._context.config):
            return self._join_and_downgrade(change, existing, changed, subscription, reply)
        target_epoch, target = self._heartbeat.advance_group(change, raise_epoch=changed)
        owned = self._owned(subscription)
        self._heartbeat.reconcile(change, target_epoch, target, owned, subscription_changed=changed)
        response = _join_response(change.after)
        timers, sync_timeout_ms = self._timers, change.after.rebalance_timeout_ms
        # Also at this point: if the response is too late for its client, the member may be in the group all the same.
        timers.schedule_session(group.group_id, response.member_id, request.session_timeout_ms)

        def outcome(error: KafkaError | None) -> None:
            if error is not None:
                reply.answer(join_error(request.member_id, error.code))
                return
            if timers.serve(group):
                timers.cancel_join(group.group_id, response.member_id)
                timers.schedule_session(group.group_id, response.member_id, request.session_timeout_ms)
                timers.schedule_sync(group.group_id, response.member_id, sync_timeout_ms)
            reply.answer(response)

        reply.outcome = outcome
        return CoordinatorResult(change.records, appended=reply.settle)

    def _check_join(self, group: ConsumerGroup, request: JoinGroupRequest) -> None:
        if self._context.config.group_consumer_migration_policy == "disabled":
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {group.group_id} with the classic protocol because the group "
                "migration is disabled.",
            )
        self._heartbeat.check_size(group, request.member_id)
        names = {protocol.name for protocol in request.protocols}
        for member in group.members.values():
            if member.classic is not None:
                names &= {protocol.name for protocol in member.classic.supported_protocols}
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {request.member_id}'s protocols are not supported."
            )

    def _find_member(self, change: MemberChange, request: JoinGroupRequest, member_id: str) -> ConsumerMember | None:
        """Return the current holder of the request's instance id, if any, which the member may replace."""
        group, instance_id = change.group, request.group_instance_id
        existing = None if instance_id is None else group.static_member(instance_id)
        if instance_id is not None and request.member_id:
            change.found(known_static_member(existing, member_id, instance_id), joins=False)
        elif existing is not None:
            self._heartbeat.replace_static_member(change, existing, member_id)
        else:
            member = group.members.get(member_id)
            change.found(member or ConsumerMember(member_id), joins=member is None)
        return existing

    def _owned(self, subscription: ConsumerProtocolSubscription) -> list[TopicPartitions]:
        """Return the partitions that the member still owns; an eager member revokes all of them before it joins."""
        owned = []
        for entry in subscription.owned_partitions:
            topic = self._context.image.topic(entry.topic)
            if topic is not None:
                owned.append(TopicPartitions(topic_id=topic.topic_id, partitions=entry.partitions))
        return owned

    def _join_and_downgrade(
        self,
        change: MemberChange,
        replaced: ConsumerMember,
        changed: bool,
        subscription: ConsumerProtocolSubscription,
        reply: JoinReply,
    ) -> Result:
        """The last static member of the consumer protocol rejoined with the classic protocol.

        The other members need no rebalance for that, unless one was in progress.
        """
        group, timers = change.group, self._timers
        if not changed:
            target = group.target(change.after.member_id, change.after.instance_id)
            owned = self._owned(subscription)
            self._heartbeat.reconcile(change, group.assignment_epoch, target, owned, subscription_changed=False)
        others = (member for member in group.members.values() if member is not replaced)
        settled = all(member.is_reconciled_to(group.group_epoch) for member in (*others, change.after))
        result = self.downgrade(group, [replaced], change.after, rebalance=changed or not settled)
        response = _join_response(change.after)

        def outcome(error: KafkaError | None) -> None:
            if error is not None:
                timers.schedule_lives_of(group, list(group.members))
            reply.answer(response if error is None else join_error("", error.code))

        reply.outcome = outcome
        return result._replace(appended=reply.settle)

    def downgrade(
        self,
        group: ConsumerGroup,
        leaving: Sequence[ConsumerMember],
        joining: ConsumerMember | None,
        *,
        rebalance: bool,
    ) -> Result:
        """Replace the group with a classic one at once, since its rebalance is soft state; the records serve a later
        load.

        If the append fails, the caller has to restart the timers of `leaving`.
        """
        gone = frozenset(member.member_id for member in leaving)
        staying = [member_id for member_id in group.members if member_id not in gone]
        classic, records = downgrade(
            group, gone, joining, self._context.image, self._context.clock, settled=not rebalance
        )
        for member_id in group.members:
            self._timers.cancel_all(group.group_id, member_id)
        self._context.groups.put(classic)
        logger.info(
            "downgrading: group %s with %d members becomes a classic group",
            group.group_id,
            len(classic.members),
            extra=RATE_LIMITED,
        )
        for member in classic:
            self._rebalance.restart_session(classic, member)
        if rebalance:
            reason = "downgrade from the consumer to the classic protocol"
            records += self._rebalance.prepare(classic, reason).records

        def appended(error: KafkaError | None) -> None:
            if error is not None:
                self._timers.schedule_lives_of(group, staying)

        return CoordinatorResult(records, appended=appended, replay=False)

    # -- SyncGroup -----------------------------------------------------------------------------------------------------

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, reply: SyncReply) -> Result:
        """Process SyncGroup of a classic member; responds through `reply`.

        Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
        REBALANCE_IN_PROGRESS.
        """
        member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        classic = member.classic
        if classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        first = classic.supported_protocols[0]
        for named, expected in ((request.protocol_type, CONSUMER_PROTOCOL_TYPE), (request.protocol_name, first.name)):
            if named is not None and named != expected:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.group_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            # A member with partitions to revoke does that first: it was already requested to rejoin.
            self._timers.schedule_join_if_absent(group.group_id, member.member_id, member.rebalance_timeout_ms)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        assignment = encoded_assignment(member.assigned, metadata_version(first.metadata), self._context.image)
        timers = self._timers

        def outcome(error: KafkaError | None) -> None:
            if error is not None:
                reply.answer(SyncGroupResponse(error_code=error.code))
                return
            if timers.serve(group):
                timers.cancel_sync(group.group_id, member.member_id)
                timers.schedule_session(group.group_id, member.member_id, classic.session_timeout_ms)
            reply.answer(
                SyncGroupResponse(
                    protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
                )
            )

        reply.outcome = outcome
        return CoordinatorResult(appended=reply.settle)

    # -- Heartbeat -----------------------------------------------------------------------------------------------------

    def heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest
    ) -> CoordinatorResult[GroupRecord, HeartbeatResponse]:
        """Process Heartbeat of a classic member.

        Raises KafkaError as `sync`; REBALANCE_IN_PROGRESS requests the member to rejoin.
        """
        member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        if member.classic is not None:
            self._timers.schedule_session(group.group_id, member.member_id, member.classic.session_timeout_ms)
        if (
            member.member_epoch < group.group_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_unreleased(member))
        ):
            self._timers.schedule_join_if_absent(group.group_id, member.member_id, member.rebalance_timeout_ms)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return CoordinatorResult((), HeartbeatResponse())

    # -- LeaveGroup ----------------------------------------------------------------------------------------------------

    def leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest
    ) -> CoordinatorResult[GroupRecord, LeaveGroupResponse]:
        """Remove members of either protocol; admins may also remove a static member by its instance id alone."""
        leaving: dict[str, ConsumerMember] = {}
        responses = []
        for identity in request.members:
            code = ErrorCode.NONE
            try:
                member = _identified(group, identity)
                leaving[member.member_id] = member
            except KafkaError as error:
                code = error.code
            responses.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        return self._leave(group, list(leaving.values()), LeaveGroupResponse(members=responses))


def _identified(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id)
    existing = group.static_member(instance_id)
    if existing is not None and not identity.member_id:
        return existing
    return known_static_member(existing, identity.member_id, instance_id)


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> ConsumerMember:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = known_static_member(group.static_member(instance_id), member_id, instance_id)
    if not member.uses_classic_protocol:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if member.member_epoch != generation_id:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation_id} is not equal to the member epoch {member.member_epoch} "
            f"of member {member_id}.",
        )
    return member


def _join_response(member: ConsumerMember) -> JoinGroupResponse:
    """Return the JoinGroup response. It names no leader: only the coordinator assigns."""
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.supported_protocols[0].name,
    )
