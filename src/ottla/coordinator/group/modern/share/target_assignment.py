"""Target assignment of a share group: computes records from its state and one change, as a pure function.

Only members with a changed target get a record. Tombstones of the targets of removed members belong to their removal.
Only partitions with initialized share state are assigned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.assignors.assignor import Assignment, MemberSpec
from ottla.coordinator.group.assignors.simple import assign_simple
from ottla.coordinator.group.modern.share.group import ShareGroup
from ottla.coordinator.group.modern.share.member import ShareMember, target_assignment_record
from ottla.coordinator.group.modern.subscribed_topics import topic_ids
from ottla.coordinator.group.records import GroupRecord
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.coordinator_records import (
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)


class ShareTarget(NamedTuple):
    """A new target: its records, and the target of the member that sent the heartbeat."""

    records: list[GroupRecord]
    of_member: Assignment


def compute_target(
    group: ShareGroup, group_epoch: int, member: ShareMember, image: MetadataImage, time_ms: Callable[[], int]
) -> ShareTarget:
    """Compute the target for `group_epoch`, with `member` as it is after the current request."""
    members = {**group.members, member.member_id: member}
    ids_of: dict[frozenset[str], frozenset[Uuid]] = {}
    specs = []
    for member_id in sorted(members):
        each = members[member_id]
        names = each.subscribed_topic_names
        if names not in ids_of:
            ids_of[names] = topic_ids(names, image)
        specs.append(MemberSpec(member_id, None, each.rack_id, ids_of[names], group.target(member_id)))
    assignment = assign_simple(
        specs, {topic_id: _assignable(group, topic_id, image) for topic_id in frozenset().union(*ids_of.values())}
    )
    records = [
        target_assignment_record(group.group_id, member_id, target)
        for member_id, target in sorted(assignment.items())
        if group.targets.get(member_id) != target
    ]
    records.append(
        GroupRecord(
            ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id),
            ShareGroupTargetAssignmentMetadataValue(
                assignment_epoch=group_epoch, assignment_timestamp=max(1, time_ms())
            ),
        )
    )
    return ShareTarget(records, assignment[member.member_id])


def _assignable(group: ShareGroup, topic_id: Uuid, image: MetadataImage) -> list[int]:
    topic = image.topic_by_id(topic_id)
    return [] if topic is None else sorted(group.state.initialized(topic_id) & topic.partitions.keys())
