"""A member of a consumer group as the log knows it (KIP-848): an immutable value, replaced at every change.

Its fields come from two records: member metadata (who it is, what it subscribes to) and current assignment (epoch,
state, partitions). `assigned` and `pending_revocation` hold for each partition the member epoch in which it was
assigned, so that a commit from before that epoch can be refused (KIP-1251).

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
"""Member epochs with a meaning of their own: join or join again, leave, leave for a while (static members)."""

OwnedPartitions = Mapping[Uuid, Mapping[int, int]]
"""By topic id and partition, the member epoch in which it was assigned; no topic without partitions."""

NO_PARTITIONS: OwnedPartitions = {}


class MemberState(IntEnum):
    """Where a member is on the way to its target; the numbers are those in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has been told to give partitions up and has not confirmed."""
    UNRELEASED_PARTITIONS = 2
    """Partitions of its target are still with other members."""
    UNKNOWN = 127


class ConsumerMember(NamedTuple):
    """One member."""

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
    """Set while the member speaks the classic protocol in a consumer group."""
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: OwnedPartitions = NO_PARTITIONS
    pending_revocation: OwnedPartitions = NO_PARTITIONS

    @property
    def held_bytes(self) -> int:
        """About what it keeps in memory besides its partitions (`member_memory`)."""
        size = MEMBER_BYTES + len(self.subscribed_topic_regex)
        size += sum(NAME_BYTES + len(name) for name in self.subscribed_topic_names)
        if self.classic is not None:
            size += sum(NAME_BYTES + len(each.name) + len(each.metadata) for each in self.classic.supported_protocols)
        return size

    def sent_the_same(self, other: ConsumerMember) -> bool:
        """Whether it has the very objects that `other` has of what is counted in `held_bytes`."""
        return (
            self.subscribed_topic_names is other.subscribed_topic_names
            and self.subscribed_topic_regex is other.subscribed_topic_regex
            and self.classic is other.classic
        )

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, target_assignment_epoch: int) -> bool:
        """Whether nothing is left to do for that target."""
        return self.state is MemberState.STABLE and self.member_epoch == target_assignment_epoch

    def owns(self, topic_id: Uuid, partition: int) -> bool:
        """Whether it may still be reading the partition."""
        return partition in self.assigned.get(topic_id, ()) or partition in self.pending_revocation.get(topic_id, ())

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """The member epoch in which it got the partition; None when it does not have it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """The member after a member metadata record."""
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
        """The member after a current assignment record."""
        return self._replace(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=_state(value.state),
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            pending_revocation=_owned(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_assignment(self) -> ConsumerMember:
        """The member after the tombstone of its current assignment: it is on the way out."""
        return self._replace(
            member_epoch=LEAVE_MEMBER_EPOCH,
            previous_member_epoch=LEAVE_MEMBER_EPOCH,
            assigned=NO_PARTITIONS,
            pending_revocation=NO_PARTITIONS,
        )

    def left_for_a_while(self) -> ConsumerMember:
        """A static member that said so: it has its partitions kept and owns nothing that it was giving up."""
        return self._replace(member_epoch=LEAVE_STATIC_MEMBER_EPOCH, pending_revocation=NO_PARTITIONS)

    def metadata_record(self, group_id: str) -> GroupRecord:
        """Who it is and what it wants."""
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
        """What it has and in which epoch."""
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
    """Tombstones of everything a member has; in this order, so that its partitions are free before it is gone."""
    return [
        GroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def target_assignment_record(group_id: str, member_id: str, target: Assignment) -> GroupRecord:
    """What a member is to have."""
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
        # A later version may know more states; UNKNOWN makes the member start over.
        return MemberState.UNKNOWN


def _owned(entries: Iterable[CurrentAssignmentTopicPartitions], member_epoch: int) -> OwnedPartitions:
    owned: dict[Uuid, dict[int, int]] = {}
    for entry in entries:
        epochs = entry.assignment_epochs
        if not entry.partitions:
            continue
        if epochs is None or len(epochs) != len(entry.partitions):
            # Written before Kafka 4.2: all that is known is that the member had it in this epoch.
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
