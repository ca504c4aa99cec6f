"""ConsumerGroupDescribe (KIP-848): describes one group as of the committed offset of `__consumer_offsets`.

Changes whose records are not yet committed are left out. Members are described in short steps, so that a large group
does not block the loop. Lookup of the group, and its errors, are in `handlers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.assignors.assignor import EMPTY_ASSIGNMENT
from ottla.coordinator.group.assignors.assignor import Assignment as OwnedAssignment
from ottla.coordinator.group.modern.consumer.group import ConsumerGroup
from ottla.coordinator.group.modern.consumer.member import ConsumerMember
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

MEMBER_TYPE_CLASSIC, MEMBER_TYPE_CONSUMER = 0, 1
"""Values of MemberType (KIP-1099)."""


class GroupDescriptionSteps(NamedTuple):
    """One group, with an iterator that describes its members in short steps."""

    row: DescribedGroup
    members: Iterator[None] = iter(())
    """Appends the members to the row, as of the time at which the group was read."""


def describe_consumer_group(
    group: ConsumerGroup, as_of: int, default_assignor: str, image: MetadataImage
) -> GroupDescriptionSteps:
    """Describe a group; topics that are deleted meanwhile are left out, because their name is unknown."""
    row = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name(as_of),
        group_epoch=group.group_epoch_at(as_of),
        assignment_epoch=group.assignment_epoch_at(as_of),
        assignor_name=group.preferred_assignor_at(as_of) or default_assignor,
    )
    members, targets = dict(group.members.items_at(as_of)), dict(group.targets.items_at(as_of))
    return GroupDescriptionSteps(row, _describe_members(row, members, targets, image))


def _describe_members(
    row: DescribedGroup,
    members: Mapping[str, ConsumerMember],
    targets: Mapping[str, OwnedAssignment],
    image: MetadataImage,
) -> Iterator[None]:
    for member_id in sorted(members):
        member = members[member_id]
        row.members.append(
            Member(
                member_id=member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.member_epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.subscribed_topic_names),
                subscribed_topic_regex=member.subscribed_topic_regex,
                assignment=_assignment(_owned(member), image),
                target_assignment=_assignment(targets.get(member_id) or EMPTY_ASSIGNMENT, image),
                member_type=MEMBER_TYPE_CLASSIC if member.uses_classic_protocol else MEMBER_TYPE_CONSUMER,
            )
        )
        yield


def _owned(member: ConsumerMember) -> Mapping[Uuid, Iterable[int]]:
    """Return the member's assigned partitions and those pending revocation."""
    topic_ids = {*member.assigned, *member.pending_revocation}
    return {
        topic_id: {*member.assigned.get(topic_id, ()), *member.pending_revocation.get(topic_id, ())}
        for topic_id in topic_ids
    }


def _assignment(partitions: Mapping[Uuid, Iterable[int]], image: MetadataImage) -> Assignment:
    entries = []
    for topic_id in sorted(partitions):
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            entries.append(
                TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions[topic_id]))
            )
    return Assignment(topic_partitions=entries)
