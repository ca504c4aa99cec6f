"""A consumer group member, as restored from the log (KIP-848): an immutable value, replaced at every change.

Its fields come from two records: member metadata (identity, subscription) and current assignment (epoch, state,
partitions). `assigned` and `pending_revocation` map each partition to the member epoch in which it was assigned, so
that commits from earlier epochs can be rejected (KIP-1251).

Invariant: a partition is in at most one of `assigned` and `pending_revocation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.assignors.assignor import Assignment
from ottla.coordinator.group.member_memory import MEMBER_BYTES, NAME_BYTES
from ottla.coordinator.group.records import GroupRecord
from ottla.protocol.messages.coordinator_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    CurrentAssignmentTopicPartitions,
    TargetAssignmentTopicPartition,
)

JOIN_MEMBER_EPOCH = 0
LEAVE_MEMBER_EPOCH = -1
LEAVE_STATIC_MEMBER_EPOCH = -2
"""Reserved member epochs: join or rejoin, leave, leave temporarily (static members)."""

OwnedPartitions = Mapping[Uuid, Mapping[int, int]]
"""Member epoch of the assignment, by topic id and partition; contains no topic without partitions."""

NO_PARTITIONS: OwnedPartitions = {}


class MemberState(IntEnum):
    """Reconciliation state of a member; the numbers are those in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It was requested to revoke partitions and has not confirmed."""
    UNRELEASED_PARTITIONS = 2
    """Other members still own partitions of its target."""
    UNKNOWN = 127


class ConsumerMember(NamedTuple):
    """One member of a consumer group."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    """Empty for none."""
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """Set for a member that uses the classic protocol in a consumer group."""
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: OwnedPartitions = NO_PARTITIONS
    pending_revocation: OwnedPartitions = NO_PARTITIONS

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the member without its partitions, in bytes (`member_memory`)."""
        size = MEMBER_BYTES + len(self.subscribed_topic_regex)
        size += sum(NAME_BYTES + len(name) for name in self.subscribed_topic_names)
        if self.classic is not None:
            size += sum(NAME_BYTES + len(each.name) + len(each.metadata) for each in self.classic.supported_protocols)
        return size

    def sent_the_same(self, other: ConsumerMember) -> bool:
        """Return whether both share the objects that `held_bytes` counts, compared by identity."""
        return (
            self.subscribed_topic_names is other.subscribed_topic_names
            and self.subscribed_topic_regex is other.subscribed_topic_regex
            and self.classic is other.classic
        )

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, target_assignment_epoch: int) -> bool:
        """Return whether the member has reached that target."""
        return self.state is MemberState.STABLE and self.member_epoch == target_assignment_epoch

    def owns(self, topic_id: Uuid, partition: int) -> bool:
        """Return whether the member may still read the partition."""
        return partition in self.assigned.get(topic_id, ()) or partition in self.pending_revocation.get(topic_id, ())

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """Return the member epoch in which it got the partition; None if it does not own it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """Return the member after a member metadata record."""
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex or "",
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """Return the member after a current assignment record."""
        return self._replace(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=_state(value.state),
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            pending_revocation=_owned(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_assignment(self) -> ConsumerMember:
        """Return the member after the tombstone of its current assignment, which precedes its removal."""
        return self._replace(
            member_epoch=LEAVE_MEMBER_EPOCH,
            previous_member_epoch=LEAVE_MEMBER_EPOCH,
            assigned=NO_PARTITIONS,
            pending_revocation=NO_PARTITIONS,
        )

    def left_for_a_while(self) -> ConsumerMember:
        """Return a static member that left temporarily: it retains its partitions, except those pending revocation."""
        return self._replace(member_epoch=LEAVE_STATIC_MEMBER_EPOCH, pending_revocation=NO_PARTITIONS)

    def metadata_record(self, group_id: str) -> GroupRecord:
        """Return the member metadata record: identity and subscription."""
        return GroupRecord(
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=self.member_id),
            ConsumerGroupMemberMetadataValue(
                instance_id=self.instance_id,
                rack_id=self.rack_id,
                client_id=self.client_id,
                client_host=self.client_host,
                subscribed_topic_names=sorted(self.subscribed_topic_names),
                subscribed_topic_regex=self.subscribed_topic_regex,
                rebalance_timeout_ms=self.rebalance_timeout_ms,
                server_assignor=self.server_assignor,
                classic_member_metadata=self.classic,
            ),
        )

    def assignment_record(self, group_id: str) -> GroupRecord:
        """Return the current assignment record: epoch and partitions."""
        return GroupRecord(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.member_id),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=self.member_epoch,
                previous_member_epoch=self.previous_member_epoch,
                state=self.state,
                assigned_partitions=_owned_records(self.assigned),
                partitions_pending_revocation=_owned_records(self.pending_revocation),
            ),
        )


def removal_records(group_id: str, member_id: str) -> list[GroupRecord]:
    """Return the tombstones of a member, in an order that frees its partitions before it is removed."""
    return [
        GroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def target_assignment_record(group_id: str, member_id: str, target: Assignment) -> GroupRecord:
    """Return the record of a member's target assignment."""
    return GroupRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TargetAssignmentTopicPartition(topic_id=topic_id, partitions=sorted(target[topic_id]))
                for topic_id in sorted(target)
            ]
        ),
    )


def target_from_record(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    """Inverse of `target_assignment_record`."""
    return {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions if each.partitions}


def _state(number: int) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:
        # A later version may add states; UNKNOWN makes the member start over.
        return MemberState.UNKNOWN


def _owned(entries: Iterable[CurrentAssignmentTopicPartitions], member_epoch: int) -> OwnedPartitions:
    owned: dict[Uuid, dict[int, int]] = {}
    for entry in entries:
        epochs = entry.assignment_epochs
        if not entry.partitions:
            continue
        if epochs is None or len(epochs) != len(entry.partitions):
            # Written before Kafka 4.2: the record only shows that the member owned it in this epoch.
            owned[entry.topic_id] = dict.fromkeys(entry.partitions, member_epoch)
        else:
            owned[entry.topic_id] = dict(zip(entry.partitions, epochs, strict=True))
    return owned


def _owned_records(owned: OwnedPartitions) -> list[CurrentAssignmentTopicPartitions]:
    entries = []
    for topic_id in sorted(owned):
        partitions = owned[topic_id]
        numbers = sorted(partitions)
        entries.append(
            CurrentAssignmentTopicPartitions(
                topic_id=topic_id, partitions=numbers, assignment_epochs=[partitions[number] for number in numbers]
            )
        )
    return entries
