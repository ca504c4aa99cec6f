"""Reconciliation of one member's assignment with its target (KIP-848): pure functions.

A member first revokes the partitions that are not in its target, in its current epoch (UNREVOKED_PARTITIONS). It
confirms by no longer reporting those partitions. Then it moves to the epoch of the target and gets the free partitions.
While other members still own partitions of its target it waits (UNRELEASED_PARTITIONS), and gets each partition as it
becomes free. Each member reconciles independently, so a member never stops reading a partition that it retains.

Invariants: a partition is only added to a member when it has no owner; a partition is removed from a member only when
the member did not report it as owned, or together with the member. So each partition has at most one owner. Left out:
when a target is computed, timeouts.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.assignors.assignor import Assignment
from ottla.coordinator.group.modern.consumer.member import (
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
)
from ottla.protocol.messages.consumer_group_heartbeat import TopicPartitions

PartitionOwner = Callable[[Uuid, int], str | None]
"""Returns the member that owns a partition, pending revocations included; None when it is free."""


class Reconciliation:
    """One step of one member. `owned` contains the partitions that the member reports; None means unchanged."""

    __slots__ = ("_member", "_owned", "_owner", "_subscribed", "_target", "_target_epoch")

    def __init__(
        self,
        member: ConsumerMember,
        target_epoch: int,
        target: Assignment,
        subscribed: Container[Uuid],
        owner: PartitionOwner,
        owned: Sequence[TopicPartitions] | None,
    ) -> None:
        """`subscribed`: ids of the existing topics that the member subscribes to now."""
        self._member = member
        self._target_epoch = target_epoch
        self._target = target
        self._subscribed = subscribed
        self._owner = owner
        self._owned = owned

    def next_member(self, subscription_changed: bool) -> ConsumerMember:
        """Return the member after this step; the same object when nothing changes.

        With `subscription_changed`, unsubscribed topics are revoked immediately, before a new target exists. Raises
        KafkaError FENCED_MEMBER_EPOCH for an unknown state.
        """
        member = self._member
        if member.state is MemberState.STABLE:
            if member.member_epoch != self._target_epoch:
                return self._towards_target(member.member_epoch)
            return self._without_unsubscribed() if subscription_changed else member
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            if self._reports_any_of(member.pending_revocation):
                return self._without_unsubscribed() if subscription_changed else member
            return self._towards_target(member.member_epoch)
        if member.state is MemberState.UNRELEASED_PARTITIONS:
            return self._towards_target(member.member_epoch)
        if self._owned is None or self._owned:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
        return self._towards_target(self._target_epoch)

    def _reports_any_of(self, partitions: OwnedPartitions) -> bool:
        """Return whether the member may still own one of `partitions`; True if it reported nothing."""
        if self._owned is None:
            return True
        for entry in self._owned:
            pending = partitions.get(entry.topic_id)
            if pending is not None and not pending.keys().isdisjoint(entry.partitions):
                return True
        return False

    def _without_unsubscribed(self) -> ConsumerMember:
        member = self._member
        leaving = {topic: epochs for topic, epochs in member.assigned.items() if topic not in self._subscribed}
        if not leaving:
            return member
        assigned = {topic: epochs for topic, epochs in member.assigned.items() if topic in self._subscribed}
        pending: dict[Uuid, dict[int, int]] = {
            topic: dict(epochs) for topic, epochs in member.pending_revocation.items()
        }
        for topic, epochs in leaving.items():
            pending.setdefault(topic, {}).update(epochs)
        if self._reports_any_of(pending):
            return self._moved(MemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, pending)
        return self._moved(member.state, member.member_epoch, assigned, member.pending_revocation)

    def _towards_target(self, member_epoch: int) -> ConsumerMember:
        """Revoke partitions if required; otherwise take the target's epoch and its free partitions."""
        member = self._member
        assigned: dict[Uuid, dict[int, int]] = {}
        revoked: dict[Uuid, dict[int, int]] = {}
        gained: dict[Uuid, list[int]] = {}
        unreleased = False
        for topic_id in sorted({*self._target, *member.assigned}):
            target = self._target.get(topic_id, frozenset()) if topic_id in self._subscribed else frozenset()
            has = member.assigned.get(topic_id, {})
            kept = {partition: epoch for partition, epoch in has.items() if partition in target}
            if len(kept) < len(has):
                revoked[topic_id] = {partition: epoch for partition, epoch in has.items() if partition not in target}
            wanted = [partition for partition in target if partition not in kept]
            free = [partition for partition in wanted if self._is_free(topic_id, partition)]
            unreleased = unreleased or len(free) < len(wanted)
            if kept:
                assigned[topic_id] = kept
            if free:
                gained[topic_id] = free
        if revoked and self._reports_any_of(revoked):
            return self._moved(MemberState.UNREVOKED_PARTITIONS, member_epoch, assigned, revoked)
        for topic_id, partitions in gained.items():
            assigned.setdefault(topic_id, {}).update(dict.fromkeys(partitions, self._target_epoch))
        state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
        return self._moved(state, self._target_epoch, assigned, NO_PARTITIONS)

    def _is_free(self, topic_id: Uuid, partition: int) -> bool:
        """Return whether it has no owner, or this member's pending revocation of it is confirmed at this point."""
        if self._owner(topic_id, partition) is None:
            return True
        return partition in self._member.pending_revocation.get(topic_id, ())

    def _moved(
        self, state: MemberState, member_epoch: int, assigned: OwnedPartitions, pending: OwnedPartitions
    ) -> ConsumerMember:
        moved = self._member._replace(
            state=state,
            member_epoch=member_epoch,
            previous_member_epoch=self._member.member_epoch,
            assigned=assigned,
            pending_revocation=pending,
        )
        return self._member if moved == self._member else moved
