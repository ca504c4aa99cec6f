"""A consumer group (KIP-848): the state of its records, and the queries on it.

`group_epoch` rises when members, subscriptions or topics change. A target assignment is computed for a group epoch,
which `assignment_epoch` records; each member converges independently (`reconciliation`). Counters by topic, regular
expression and partition are stored next to the members, so that no heartbeat iterates over all of them.

Invariants: all state is timeline state, changed by the replay methods only (except `topics_checked_at_epoch`, which is
a hint); `owners` contains exactly the partitions that members own or are revoking. Replaying a compacted log may show a
partition with two owners for a moment: the later record wins, and the earlier owner can no longer free it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.assignors.assignor import EMPTY_ASSIGNMENT, Assignment
from ottla.coordinator.group.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from ottla.coordinator.group.group import LATEST, GroupType, OffsetExpiration, PartitionCheck
from ottla.coordinator.group.modern.consumer.member import ConsumerMember, OwnedPartitions
from ottla.coordinator.group.modern.subscriber_counts import add_count, positive_counts
from ottla.coordinator.group.records import GroupRecord
from ottla.protocol.messages.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.protocol.messages.list_groups import ListedGroup
from ottla.timeline import SnapshotRegistry, TimelineDict, TimelineValue

FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCH = 9
NO_MEMBER_EPOCH = -1

NEW_GROUP_EPOCH = 1
"""Epoch of a new group and of its first target assignment, which is empty. That needs no records, and a member has an
epoch before a target is computed. So the first subscription raises it to 2, as in Apache Kafka."""

NO_ASSIGNMENT_EPOCH = -1
"""Value after the tombstone of the target assignment's epoch."""


class ResolvedRegex(NamedTuple):
    """The topics that matched a regular expression, as of a metadata version (an image's offset) and a time (ms)."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


UNRESOLVED = ResolvedRegex(frozenset(), -1, -1)


class ConsumerGroup:
    """One group; implements `group.Group`."""

    __slots__ = (
        "_assignment_epoch",
        "_assignment_timestamp_ms",
        "_group_epoch",
        "_has_partition_metadata",
        "_held_bytes",
        "_metadata_hash",
        "group_id",
        "members",
        "owners",
        "regex_subscribers",
        "regexes",
        "static_members",
        "targets",
        "topic_subscribers",
        "topics_checked_at_epoch",
    )

    def __init__(self, registry: SnapshotRegistry, group_id: str) -> None:
        self.group_id = group_id
        self.members: TimelineDict[str, ConsumerMember] = TimelineDict(registry)
        self.static_members: TimelineDict[str, str] = TimelineDict(registry)
        """Member id by instance id."""
        self.targets: TimelineDict[str, Assignment] = TimelineDict(registry)
        self.owners: TimelineDict[tuple[Uuid, int], str] = TimelineDict(registry)
        self.topic_subscribers: TimelineDict[str, int] = TimelineDict(registry)
        """Number of members that name the topic; regular expressions are counted in `regex_subscribers`."""
        self.regex_subscribers: TimelineDict[str, int] = TimelineDict(registry)
        self.regexes: TimelineDict[str, ResolvedRegex] = TimelineDict(registry)
        self._group_epoch = TimelineValue(registry, NEW_GROUP_EPOCH)
        self._metadata_hash = TimelineValue(registry, 0)
        self._assignment_epoch = TimelineValue(registry, NEW_GROUP_EPOCH)
        self._assignment_timestamp_ms = TimelineValue(registry, 0)
        self._has_partition_metadata = TimelineValue(registry, False)
        self._held_bytes = TimelineValue(registry, 0)
        self.topics_checked_at_epoch: int | None = None
        """Group epoch when the topics were last compared with the metadata; None requests another comparison."""

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
        """Time at which the target assignment was computed; 0 if there is none or the record does not contain it."""
        return self._assignment_timestamp_ms.value

    @property
    def has_partition_metadata(self) -> bool:
        """Return whether the log contains a partition metadata record, which the metadata hash replaced (Kafka 4.1)."""
        return self._has_partition_metadata.value

    def topics_need_check(self) -> bool:
        """Return whether topics changed since the last check, or a failed append reverted that check."""
        checked = self.topics_checked_at_epoch
        return checked is None or self.group_epoch < checked

    # -- Group ---------------------------------------------------------------------------------------------------------

    @property
    def type(self) -> GroupType:
        return GroupType.CONSUMER

    @property
    def protocol_type(self) -> str | None:
        return CONSUMER_PROTOCOL_TYPE

    def state_name(self, as_of: int | None = LATEST) -> str:
        if as_of is None:
            members: Iterable[ConsumerMember] = self.members.values()
            group_epoch, assignment_epoch = self.group_epoch, self.assignment_epoch
        else:
            members = self.members.values_at(as_of)
            group_epoch, assignment_epoch = self._group_epoch.value_at(as_of), self._assignment_epoch.value_at(as_of)
        reconciled = [member.is_reconciled_to(assignment_epoch) for member in members]
        if not reconciled:
            return "Empty"
        if group_epoch > assignment_epoch:
            return "Assigning"
        return "Stable" if all(reconciled) else "Reconciling"

    def is_empty(self) -> bool:
        return not self.members

    def as_listed_group(self, as_of: int | None = LATEST) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            group_state=self.state_name(as_of),
            group_type=GroupType.CONSUMER.value,
        )

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_or_member_epoch: int, api_version: int
    ) -> PartitionCheck | None:
        """A negative epoch is a simple consumer or an admin, which may commit only while the group has no members.

        In a past epoch a member may commit the partitions that it has owned since then (KIP-1251). So a commit that was
        in flight when the epoch rose is accepted, and none reaches a partition that another member owned in between.

        Raises KafkaError UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH; for members of the classic
        protocol ILLEGAL_GENERATION.
        """
        member_epoch = generation_or_member_epoch
        if member_epoch < 0 and not self.members:
            return None
        member = self.member(member_id)
        if not member.uses_classic_protocol and api_version < FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCH:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        return self._check_commit_epoch(member, member_epoch)

    def validate_transactional_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_or_member_epoch: int
    ) -> PartitionCheck | None:
        """Validate a commit in a transaction; the producer may have no member id (KIP-447). Raises as above."""
        member_epoch = generation_or_member_epoch
        if member_epoch < 0 and not self.members:
            return None
        if member_epoch == NO_MEMBER_EPOCH and not member_id and group_instance_id is None:
            return None
        return self._check_commit_epoch(self.member(member_id), member_epoch)

    def _check_commit_epoch(self, member: ConsumerMember, member_epoch: int) -> PartitionCheck | None:
        if member_epoch == member.member_epoch:
            return None
        if member_epoch > member.member_epoch:
            raise _wrong_epoch(
                member,
                f"Received {_epoch_name(member)} {member_epoch} is newer than "
                f"current member epoch {member.member_epoch}.",
            )
        return lambda topic, topic_id, partition: _check_past_commit(member, member_epoch, topic, topic_id, partition)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, as_of: int | None) -> None:
        """Raises KafkaError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH or ILLEGAL_GENERATION; admins send no member."""
        if member_id is None and member_epoch < 0:
            return
        key = member_id or ""
        member = self.members.get(key) if as_of is None else self.members.get_at(key, as_of)
        if member is None:
            raise self._unknown_member(key)
        if member_epoch != member.member_epoch:
            raise _wrong_epoch(
                member,
                f"The received {_epoch_name(member)} {member_epoch} does not match the expected member epoch "
                f"{member.member_epoch}.",
            )

    def validate_offset_delete(self) -> None:
        """Always allowed; topics in use are rejected individually."""

    def validate_delete_group(self) -> None:
        """Raises KafkaError NON_EMPTY_GROUP."""
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to_topic(self, topic: str) -> bool:
        if topic in self.topic_subscribers:
            return True
        return any(topic in regex.topics for regex in self.regexes.values())

    def offset_expiration(self) -> OffsetExpiration | None:
        """Retention starts at the commit of each offset; subscribed topics never expire."""
        return OffsetExpiration(None)

    def tombstone_records(self) -> Sequence[GroupRecord]:
        """Return tombstones in an order that can be replayed: member state before members, members before the group."""
        group_id = self.group_id
        member_ids = sorted(self.members)
        keys: list[object] = [
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id) for member_id in member_ids
        ]
        keys += [
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
            for member_id in sorted({*member_ids, *self.targets})
        ]
        keys.append(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))
        keys += [ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id) for member_id in member_ids]
        keys += [
            ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
            for regex in sorted(self.regexes)
        ]
        if self.has_partition_metadata:
            keys.append(ConsumerGroupPartitionMetadataKey(group_id=group_id))
        keys.append(ConsumerGroupMetadataKey(group_id=group_id))
        return [GroupRecord(key, None) for key in keys]

    # -- members -------------------------------------------------------------------------------------------------------

    def member(self, member_id: str) -> ConsumerMember:
        """Return the member. Raises KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise self._unknown_member(member_id)
        return member

    def _unknown_member(self, member_id: str) -> KafkaError:
        return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """Return the holder of the instance id, or None."""
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target(self, member_id: str, instance_id: str | None) -> Assignment:
        """Return the target of a member; one that takes over an instance id has its predecessor's target."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, member_id)
        return self.targets.get(member_id, EMPTY_ASSIGNMENT)

    def owner(self, topic_id: Uuid, partition: int) -> str | None:
        """A `reconciliation.PartitionOwner`."""
        return self.owners.get((topic_id, partition))

    def all_use_classic_protocol_except(self, member_ids: Iterable[str]) -> bool:
        """Return whether all members except these use the classic protocol."""
        excepted = frozenset(member_ids)
        return all(
            member.uses_classic_protocol for member_id, member in self.members.items() if member_id not in excepted
        )

    def waits_for_unreleased(self, member: ConsumerMember) -> bool:
        """Return whether another member still owns a partition of the member's target."""
        for topic_id, partitions in self.target(member.member_id, member.instance_id).items():
            for partition in partitions:
                if not member.owns(topic_id, partition) and (topic_id, partition) in self.owners:
                    return True
        return False

    def preferred_assignor(self, changed: Sequence[tuple[str, ConsumerMember | None]] = ()) -> str | None:
        """Return the assignor that most members request, after changes given as (member id, member or None); None if no
        member requests one."""
        counts: Counter[str] = Counter()
        for member in self._members_after(changed):
            if member.server_assignor is not None:
                counts[member.server_assignor] += 1
        return min(counts, key=lambda name: (-counts[name], name), default=None)

    def preferred_assignor_at(self, as_of: int) -> str | None:
        """Return the assignor that most members requested as of an offset of the log."""
        counts = Counter(
            member.server_assignor for member in self.members.values_at(as_of) if member.server_assignor is not None
        )
        return min(counts, key=lambda name: (-counts[name], name), default=None)

    def _members_after(self, changed: Sequence[tuple[str, ConsumerMember | None]]) -> Iterator[ConsumerMember]:
        changes = dict(changed)
        for member_id, member in self.members.items():
            if member_id not in changes:
                yield member
        for changed_member in changes.values():
            if changed_member is not None:
                yield changed_member

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def regex_topics(self, regex: str) -> frozenset[str]:
        """Return the topics of a regular expression; empty while it is not resolved."""
        return self.regexes.get(regex, UNRESOLVED).topics if regex else frozenset()

    def subscribed_topics(self, member: ConsumerMember) -> frozenset[str]:
        """Return the subscribed topics, by name and by regular expression."""
        if not member.subscribed_topic_regex:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | self.regex_topics(member.subscribed_topic_regex)

    def subscribed_topics_after(
        self, changed: Sequence[tuple[ConsumerMember | None, ConsumerMember | None]]
    ) -> frozenset[str]:
        """Return the topics the group subscribes to, after changes given as (member before, member after)."""
        topics: Counter[str] = Counter()
        regexes: Counter[str] = Counter()
        for before, after in changed:
            for member, step in ((before, -1), (after, 1)):
                if member is None:
                    continue
                for name in member.subscribed_topic_names:
                    topics[name] += step
                if member.subscribed_topic_regex:
                    regexes[member.subscribed_topic_regex] += step
        names = positive_counts(self.topic_subscribers, topics)
        for regex in positive_counts(self.regex_subscribers, regexes):
            names |= self.regex_topics(regex)
        return frozenset(names)

    def last_regex_refresh_ms(self) -> int:
        """Time of the last resolution of regular expressions, milliseconds since the epoch; -2**62 if never."""
        return max((regex.timestamp_ms for regex in self.regexes.values()), default=-(2**62))

    def last_regex_version(self) -> int:
        """Metadata version of the last resolution of regular expressions."""
        return max((regex.version for regex in self.regexes.values()), default=0)

    # -- replay --------------------------------------------------------------------------------------------------------

    def replay_group_epoch(self, group_epoch: int, metadata_hash: int) -> None:
        self._group_epoch.value = group_epoch
        self._metadata_hash.value = metadata_hash

    def replay_partition_metadata(self, present: bool) -> None:
        self._has_partition_metadata.value = present

    def replay_assignment_epoch(self, assignment_epoch: int, timestamp_ms: int) -> None:
        self._assignment_epoch.value = assignment_epoch
        self._assignment_timestamp_ms.value = timestamp_ms

    def replay_target(self, member_id: str, target: Assignment | None) -> None:
        """Set or remove (None) the target of a member."""
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def replay_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set or remove (None) a regular expression; it is removed when the last subscriber is gone."""
        if resolved is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = resolved

    def replay_member(self, member_id: str, member: ConsumerMember | None) -> None:
        """Put or remove a member and update the counters."""
        before = self.members.get(member_id)
        self._count(before, -1)
        self._count(member, 1)
        if before is None or member is None or not member.sent_the_same(before):
            self._held_bytes.value += (0 if member is None else member.held_bytes) - (
                0 if before is None else before.held_bytes
            )
        _release(self.owners, member_id, before, member)
        if member is None:
            self.members.pop(member_id, None)
        else:
            self.members[member_id] = member
            for owned in (member.assigned, member.pending_revocation):
                _own(self.owners, member_id, owned)
        before_instance = None if before is None else before.instance_id
        after_instance = None if member is None else member.instance_id
        if before_instance not in (None, after_instance) and self.static_members.get(str(before_instance)) == member_id:
            # Skipped if another member took over the instance id.
            del self.static_members[str(before_instance)]
        if after_instance is not None:
            self.static_members[after_instance] = member_id

    def _count(self, member: ConsumerMember | None, step: int) -> None:
        if member is None:
            return
        for name in member.subscribed_topic_names:
            add_count(self.topic_subscribers, name, step)
        if member.subscribed_topic_regex:
            add_count(self.regex_subscribers, member.subscribed_topic_regex, step)


def _release(
    owners: TimelineDict[tuple[Uuid, int], str],
    member_id: str,
    before: ConsumerMember | None,
    after: ConsumerMember | None,
) -> None:
    """Free the partitions that `after` no longer owns, unless another member already owns them."""
    if before is None:
        return
    for owned in (before.assigned, before.pending_revocation):
        for topic_id, partitions in owned.items():
            if after is not None and after.assigned.get(topic_id) is partitions:
                continue
            for partition in partitions:
                if after is not None and after.owns(topic_id, partition):
                    continue
                if owners.get((topic_id, partition)) == member_id:
                    del owners[topic_id, partition]


def _own(owners: TimelineDict[tuple[Uuid, int], str], member_id: str, owned: OwnedPartitions) -> None:
    for topic_id, partitions in owned.items():
        for partition in partitions:
            if owners.get((topic_id, partition)) != member_id:
                owners[topic_id, partition] = member_id


def _check_past_commit(member: ConsumerMember, member_epoch: int, topic: str, topic_id: Uuid, partition: int) -> None:
    """A `group.PartitionCheck` with two more leading arguments."""
    assignment_epoch = member.assignment_epoch(topic_id, partition)
    if assignment_epoch is None:
        raise _wrong_epoch(member, f"Partition {topic}-{partition} is not assigned or pending revocation for member.")
    if member_epoch < assignment_epoch:
        raise _wrong_epoch(
            member,
            f"Received {_epoch_name(member)} {member_epoch} is older than assignment epoch {assignment_epoch} "
            f"for partition {topic}-{partition}.",
        )


def _epoch_name(member: ConsumerMember) -> str:
    return "generation id" if member.uses_classic_protocol else "member epoch"


def _wrong_epoch(member: ConsumerMember, message: str) -> KafkaError:
    code = ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(code, message)
