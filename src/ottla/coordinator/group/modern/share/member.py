"""A share group member, as restored from the log (KIP-932): an immutable value, replaced at every change.

Its fields come from two records: member metadata (subscription) and current assignment (epoch, partitions). Partitions
are shared, so an assignment takes effect at once and no partition has to be revoked first.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinator.group.assignors.assignor import EMPTY_ASSIGNMENT, Assignment
from ottla.coordinator.group.member_memory import MEMBER_BYTES, NAME_BYTES
from ottla.coordinator.group.records import GroupRecord
from ottla.protocol.messages.coordinator_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    TargetAssignmentTopicPartition,
)

JOIN_MEMBER_EPOCH = 0
LEAVE_MEMBER_EPOCH = -1
"""Reserved member epochs: join or rejoin, leave."""

STABLE_STATE = 0
"""The only state of a member, in its current assignment record."""


class ShareMember(NamedTuple):
    """One member of a share group."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    member_epoch: int = 0
    previous_member_epoch: int = -1
    assigned: Assignment = EMPTY_ASSIGNMENT

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the member without its partitions, in bytes (`member_memory`)."""
        return MEMBER_BYTES + sum(NAME_BYTES + len(name) for name in self.subscribed_topic_names)

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        """Return the member after a member metadata record."""
        return self._replace(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
        )

    def with_assignment(self, value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
        """Return the member after a current assignment record."""
        return self._replace(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            assigned=_assignment(value.assigned_partitions),
        )

    def without_assignment(self) -> ShareMember:
        """Return the member after the tombstone of its current assignment, which precedes its removal."""
        return self._replace(
            member_epoch=LEAVE_MEMBER_EPOCH, previous_member_epoch=LEAVE_MEMBER_EPOCH, assigned=EMPTY_ASSIGNMENT
        )

    def moved_to(self, target_epoch: int, target: Assignment) -> ShareMember:
        """Return the member in the epoch of a target assignment, with the partitions of that target."""
        if self.member_epoch == target_epoch and self.assigned == target:
            return self
        return self._replace(member_epoch=target_epoch, previous_member_epoch=self.member_epoch, assigned=target)

    def metadata_record(self, group_id: str) -> GroupRecord:
        """Return the member metadata record: identity and subscription."""
        return GroupRecord(
            ShareGroupMemberMetadataKey(group_id=group_id, member_id=self.member_id),
            ShareGroupMemberMetadataValue(
                rack_id=self.rack_id,
                client_id=self.client_id,
                client_host=self.client_host,
                subscribed_topic_names=sorted(self.subscribed_topic_names),
            ),
        )

    def assignment_record(self, group_id: str) -> GroupRecord:
        """Return the current assignment record: epoch and partitions."""
        return GroupRecord(
            ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.member_id),
            ShareGroupCurrentMemberAssignmentValue(
                member_epoch=self.member_epoch,
                previous_member_epoch=self.previous_member_epoch,
                state=STABLE_STATE,
                assigned_partitions=_entries(self.assigned),
            ),
        )


def removal_records(group_id: str, member_id: str) -> list[GroupRecord]:
    """Return the tombstones of a member, in an order that can be replayed."""
    return [
        GroupRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def target_assignment_record(group_id: str, member_id: str, target: Assignment) -> GroupRecord:
    """Return the record of a member's target assignment."""
    return GroupRecord(
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberValue(topic_partitions=_entries(target)),
    )


def target_from_record(value: ShareGroupTargetAssignmentMemberValue) -> Assignment:
    """Inverse of `target_assignment_record`."""
    return _assignment(value.topic_partitions)


def _assignment(entries: list[TargetAssignmentTopicPartition]) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in entries if each.partitions}


def _entries(assignment: Assignment) -> list[TargetAssignmentTopicPartition]:
    return [
        TargetAssignmentTopicPartition(topic_id=topic_id, partitions=sorted(assignment[topic_id]))
        for topic_id in sorted(assignment)
    ]
