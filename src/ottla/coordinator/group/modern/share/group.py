"""A share group (KIP-932): the state of its records, and the queries on it.

`group_epoch` rises when members, subscriptions, topics or initialized partitions change. A target assignment is
computed for a group epoch, which `assignment_epoch` records; each member moves to it with its next heartbeat. A share
group has no committed offsets: the share coordinator stores the state of its partitions, and `state` lists them.

Invariant: all state is timeline state, changed by the replay methods only, except hints: `topics_checked_at_epoch`,
`state_is_complete`, `initializing_since_ms` and `deleting_topics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.share_state import SharePartitionKey
from ottla.coordinator.group.assignors.assignor import EMPTY_ASSIGNMENT, Assignment
from ottla.coordinator.group.group import LATEST, GroupType, OffsetExpiration, PartitionCheck
from ottla.coordinator.group.modern.share.member import ShareMember
from ottla.coordinator.group.modern.share.state_partitions import NO_STATE, StatePartitions
from ottla.coordinator.group.modern.subscriber_counts import add_count, positive_counts
from ottla.coordinator.group.records import GroupRecord
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.coordinator_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)
from ottla.protocol.messages.list_groups import ListedGroup
from ottla.timeline import SnapshotRegistry, TimelineDict, TimelineValue

SHARE_PROTOCOL_TYPE = "share"

NEW_GROUP_EPOCH = 1
"""Epoch of a new group and of its first target assignment, which is empty. That needs no records, and a member has an
epoch before a target is computed. So the first subscription raises it to 2, as in Apache Kafka."""

NO_ASSIGNMENT_EPOCH = -1
"""Value after the tombstone of the target assignment's epoch."""


class ShareGroup:
    """One group; implements `group.Group`."""

    __slots__ = (
        "_assignment_epoch",
        "_assignment_timestamp_ms",
        "_group_epoch",
        "_held_bytes",
        "_metadata_hash",
        "_state",
        "deleting_topics",
        "group_id",
        "initializing_since_ms",
        "members",
        "state_is_complete",
        "targets",
        "topic_subscribers",
        "topics_checked_at_epoch",
    )

    def __init__(self, registry: SnapshotRegistry, group_id: str) -> None:
        self.group_id = group_id
        self.members: TimelineDict[str, ShareMember] = TimelineDict(registry)
        self.targets: TimelineDict[str, Assignment] = TimelineDict(registry)
        self.topic_subscribers: TimelineDict[str, int] = TimelineDict(registry)
        """Number of members that name the topic."""
        self._group_epoch = TimelineValue(registry, NEW_GROUP_EPOCH)
        self._metadata_hash = TimelineValue(registry, 0)
        self._assignment_epoch = TimelineValue(registry, NEW_GROUP_EPOCH)
        self._assignment_timestamp_ms = TimelineValue(registry, 0)
        self._held_bytes = TimelineValue(registry, 0)
        self._state: TimelineValue[StatePartitions] = TimelineValue(registry, NO_STATE)
        self.topics_checked_at_epoch: int | None = None
        """Group epoch when the topics were last compared with the metadata; None requests another comparison."""
        self.state_is_complete = False
        """All subscribed partitions had initialized share state at the last check; a change requests another one."""
        self.initializing_since_ms: dict[SharePartitionKey, int] = {}
        """Start of each initialization whose outcome is not known yet."""
        self.deleting_topics: set[Uuid] = set()
        """Topics whose state the share coordinator is deleting now; it is initialized again only afterwards."""

    @property
    def held_bytes(self) -> int:
        return self._held_bytes.value

    # -- epochs --------------------------------------------------------------------------------------------------------

    @property
    def group_epoch(self) -> int:
        return self._group_epoch.value

    def group_epoch_at(self, as_of: int) -> int:
        """Return the group epoch as of an offset of the log."""
        return self._group_epoch.value_at(as_of)

    def assignment_epoch_at(self, as_of: int) -> int:
        """Return the assignment epoch as of an offset of the log."""
        return self._assignment_epoch.value_at(as_of)

    @property
    def metadata_hash(self) -> int:
        return self._metadata_hash.value

    @property
    def assignment_epoch(self) -> int:
        return self._assignment_epoch.value

    @property
    def assignment_timestamp_ms(self) -> int:
        """Time at which the target assignment was computed; 0 if there is none."""
        return self._assignment_timestamp_ms.value

    @property
    def state(self) -> StatePartitions:
        """Partitions with share state."""
        return self._state.value

    def state_at(self, as_of: int) -> StatePartitions:
        """Return the partitions with share state as of an offset of the log."""
        return self._state.value_at(as_of)

    def topics_need_check(self) -> bool:
        """Return whether topics or initialized partitions changed since the last check, or a failed append reverted
        that check."""
        checked = self.topics_checked_at_epoch
        return checked is None or self.group_epoch < checked

    def request_checks(self) -> None:
        """Let the next heartbeat compare topics and share state with the metadata again."""
        self.topics_checked_at_epoch = None
        self.state_is_complete = False

    # -- Group ---------------------------------------------------------------------------------------------------------

    @property
    def type(self) -> GroupType:
        return GroupType.SHARE

    @property
    def protocol_type(self) -> str | None:
        return SHARE_PROTOCOL_TYPE

    def state_name(self, as_of: int | None = LATEST) -> str:
        members = self.members if as_of is None else list(self.members.values_at(as_of))
        return "Stable" if members else "Empty"

    def is_empty(self) -> bool:
        return not self.members

    def as_listed_group(self, as_of: int | None = LATEST) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=SHARE_PROTOCOL_TYPE,
            group_state=self.state_name(as_of),
            group_type=GroupType.SHARE.value,
        )

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_or_member_epoch: int, api_version: int
    ) -> PartitionCheck | None:
        """Raises KafkaError GROUP_ID_NOT_FOUND: share groups have no committed offsets."""
        raise self._without_offsets()

    def validate_transactional_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_or_member_epoch: int
    ) -> PartitionCheck | None:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        raise self._without_offsets()

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, as_of: int | None) -> None:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        raise self._without_offsets()

    def validate_offset_delete(self) -> None:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        raise self._without_offsets()

    def _without_offsets(self) -> KafkaError:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def validate_delete_group(self) -> None:
        """Raises KafkaError NON_EMPTY_GROUP."""
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} is not empty.")

    def is_subscribed_to_topic(self, topic: str) -> bool:
        return topic in self.topic_subscribers

    def offset_expiration(self) -> OffsetExpiration | None:
        """Return None. An empty share group is not deleted: its state in the share coordinator would remain."""
        return None

    def tombstone_records(self) -> Sequence[GroupRecord]:
        """Return tombstones in an order that can be replayed: member state before members, members before the group."""
        group_id = self.group_id
        member_ids = sorted(self.members)
        keys: list[object] = [
            ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id) for member_id in member_ids
        ]
        keys += [
            ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
            for member_id in sorted({*member_ids, *self.targets})
        ]
        keys.append(ShareGroupTargetAssignmentMetadataKey(group_id=group_id))
        keys += [ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id) for member_id in member_ids]
        keys.append(ShareGroupStatePartitionMetadataKey(group_id=group_id))
        keys.append(ShareGroupMetadataKey(group_id=group_id))
        return [GroupRecord(key, None) for key in keys]

    # -- members and subscriptions -------------------------------------------------------------------------------------

    def member(self, member_id: str) -> ShareMember:
        """Return the member. Raises KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def target(self, member_id: str) -> Assignment:
        """Return the target of a member."""
        return self.targets.get(member_id, EMPTY_ASSIGNMENT)

    def subscribed_topics_after(self, before: ShareMember | None, after: ShareMember | None) -> frozenset[str]:
        """Return the topics that the group subscribes to, after the change of one member."""
        changes: Counter[str] = Counter()
        for member, step in ((before, -1), (after, 1)):
            for name in () if member is None else member.subscribed_topic_names:
                changes[name] += step
        return frozenset(positive_counts(self.topic_subscribers, changes))

    def lacks_initialized(self, names: Iterable[str], image: MetadataImage) -> bool:
        """Return whether an initialized partition of these topics is not in any target."""
        targeted: dict[Uuid, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                targeted.setdefault(topic_id, set()).update(partitions)
        for name in names:
            topic = image.topic(name)
            if topic is not None:
                assignable = self.state.initialized(topic.topic_id) & topic.partitions.keys()
                if not assignable <= targeted.get(topic.topic_id, set()):
                    return True
        return False

    # -- replay --------------------------------------------------------------------------------------------------------

    def replay_group_epoch(self, group_epoch: int, metadata_hash: int) -> None:
        self._group_epoch.value = group_epoch
        self._metadata_hash.value = metadata_hash

    def replay_assignment_epoch(self, assignment_epoch: int, timestamp_ms: int) -> None:
        self._assignment_epoch.value = assignment_epoch
        self._assignment_timestamp_ms.value = timestamp_ms

    def replay_target(self, member_id: str, target: Assignment | None) -> None:
        """Set or remove (None) the target of a member."""
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def replay_state(self, state: StatePartitions) -> None:
        """Set the partitions with share state; the next heartbeat assigns those that are initialized now."""
        self._state.value = state
        self.request_checks()

    def replay_member(self, member_id: str, member: ShareMember | None) -> None:
        """Put or remove a member and update the counters."""
        before = self.members.get(member_id)
        names_before = frozenset() if before is None else before.subscribed_topic_names
        names_after = frozenset() if member is None else member.subscribed_topic_names
        for name in sorted(names_before - names_after):
            add_count(self.topic_subscribers, name, -1)
        for name in sorted(names_after - names_before):
            add_count(self.topic_subscribers, name, 1)
        if before is None or member is None or names_before is not names_after:
            self._held_bytes.value += (0 if member is None else member.held_bytes) - (
                0 if before is None else before.held_bytes
            )
        if member is None:
            self.members.pop(member_id, None)
        else:
            self.members[member_id] = member


def group_epoch_record(group_id: str, group_epoch: int, metadata_hash: int) -> GroupRecord:
    """Return the record of a group epoch."""
    return GroupRecord(
        ShareGroupMetadataKey(group_id=group_id),
        ShareGroupMetadataValue(epoch=group_epoch, metadata_hash=metadata_hash),
    )
