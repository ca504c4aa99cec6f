"""ShareGroupDescribe (KIP-932): describes one group as of the committed offset of `__consumer_offsets`.

Members are described in short steps, so that a large group does not block the loop. Lookup of the group, and its
errors, are in `handlers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.coordinator.group.assignors.assignor import Assignment as AssignedPartitions
from ottla.coordinator.group.assignors.simple import SIMPLE
from ottla.coordinator.group.modern.share.group import ShareGroup
from ottla.coordinator.group.modern.share.member import ShareMember
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions


class ShareDescriptionSteps(NamedTuple):
    """One group, with an iterator that describes its members in short steps."""

    row: DescribedGroup
    members: Iterator[None] = iter(())
    """Appends the members to the row, as of the time at which the group was read."""


def describe_share_group(group: ShareGroup, as_of: int, image: MetadataImage) -> ShareDescriptionSteps:
    """Describe a group; topics that are deleted meanwhile are left out, because their name is unknown."""
    row = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name(as_of),
        group_epoch=group.group_epoch_at(as_of),
        assignment_epoch=group.assignment_epoch_at(as_of),
        assignor_name=SIMPLE,
    )
    return ShareDescriptionSteps(row, _describe_members(row, dict(group.members.items_at(as_of)), image))


def _describe_members(row: DescribedGroup, members: Mapping[str, ShareMember], image: MetadataImage) -> Iterator[None]:
    for member_id in sorted(members):
        member = members[member_id]
        row.members.append(
            Member(
                member_id=member_id,
                rack_id=member.rack_id,
                member_epoch=member.member_epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.subscribed_topic_names),
                assignment=_assignment(member.assigned, image),
            )
        )
        yield


def _assignment(partitions: AssignedPartitions, image: MetadataImage) -> Assignment:
    entries = []
    for topic_id in sorted(partitions):
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            entries.append(
                TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions[topic_id]))
            )
    return Assignment(topic_partitions=entries)
