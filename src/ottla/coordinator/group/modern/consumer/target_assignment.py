"""Target assignment of a consumer group: computes records from its state and one change, as a pure function.

Only members with a changed target get a record. Tombstones of the targets of removed members belong to their removal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.assignors.assignor import Assignment, Assignor, MemberSpec, TopicSpec
from ottla.coordinator.group.assignors.range import assign_range
from ottla.coordinator.group.assignors.uniform import assign_uniform
from ottla.coordinator.group.modern.consumer.group import ConsumerGroup
from ottla.coordinator.group.modern.consumer.member import ConsumerMember, target_assignment_record
from ottla.coordinator.group.modern.subscribed_topics import topic_ids, topic_spec
from ottla.coordinator.group.records import GroupRecord
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.coordinator_records import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""By name in `group.consumer.assignors`; custom classes can't be loaded."""


class TargetAssignment(NamedTuple):
    """A new target: its records, and the target of the member that sent the heartbeat."""

    records: list[GroupRecord]
    of_member: Assignment


def compute_target(
    group: ConsumerGroup,
    group_epoch: int,
    member: ConsumerMember,
    replaced_member_id: str | None,
    assignor_name: str,
    image: MetadataImage,
    time_ms: Callable[[], int],
) -> TargetAssignment:
    """Compute the target for `group_epoch`, with `member` as it is after the current request.

    `replaced_member_id` is the static member that it replaces; its target is the starting point.
    """
    members = dict(group.members)
    if replaced_member_id is not None:
        members.pop(replaced_member_id, None)
    members[member.member_id] = member
    ids_of: dict[frozenset[str], frozenset[Uuid]] = {}
    specs = []
    for member_id in sorted(members):
        each = members[member_id]
        names = group.subscribed_topics(each)
        if names not in ids_of:
            ids_of[names] = topic_ids(names, image)
        source = replaced_member_id if each is member and replaced_member_id is not None else member_id
        specs.append(
            MemberSpec(member_id, each.instance_id, each.rack_id, ids_of[names], group.targets.get(source, {}))
        )
    topics: dict[Uuid, TopicSpec] = {}
    for topic_id in frozenset().union(*ids_of.values()):
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            topics[topic_id] = topic_spec(topic, image)
    assignment = ASSIGNORS[assignor_name](specs, topics)
    records = [
        target_assignment_record(group.group_id, member_id, target)
        for member_id, target in sorted(assignment.items())
        if group.targets.get(member_id) != target
    ]
    records.append(
        GroupRecord(
            ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id),
            ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=group_epoch, assignment_timestamp=max(1, time_ms())
            ),
        )
    )
    return TargetAssignment(records, assignment[member.member_id])
