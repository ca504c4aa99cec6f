"""Conversion of groups with members between the classic and the consumer protocol (KIP-848,
`group.consumer.migration.policy`).

Upgrade: the first consumer protocol member converts a classic group of consumers to a consumer group. Its members
retain their partitions, continue to use the classic protocol (`classic_members`), and from then on gain and lose
partitions one by one. An empty classic group is converted by the same records, under any policy. Downgrade: when the
last consumer protocol member leaves, the remaining members form a classic group again and rebalance.

Epochs continue through conversions, as a generation is an epoch. Members of the consumer protocol have their id for
life, so a returning member must not reuse the epoch in which it was removed. Apache Kafka resets the epoch of an empty
group that changes its type, so there an old commit may be mistaken for one of the member's next life.

Both conversions are functions of values: from one group to the records of both. Left out: soft state (timers, pending
replies).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.clock import Clock
from ottla.coordinator.group.classic.group import STABLE, ClassicGroup
from ottla.coordinator.group.classic.member import ClassicGroupMember
from ottla.coordinator.group.config import GroupCoordinatorConfig
from ottla.coordinator.group.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    metadata_version,
)
from ottla.coordinator.group.modern.consumer.group import NEW_GROUP_EPOCH, ConsumerGroup
from ottla.coordinator.group.modern.consumer.member import (
    ConsumerMember,
    MemberState,
    OwnedPartitions,
    target_assignment_record,
)
from ottla.coordinator.group.modern.consumer.regexes import group_epoch_record
from ottla.coordinator.group.modern.subscribed_topics import NO_TOPICS_HASH
from ottla.coordinator.group.records import GroupRecord
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
)
from ottla.protocol.messages.coordinator_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.schema import schema_of
from ottla.timeline import SnapshotRegistry


def may_upgrade(config: GroupCoordinatorConfig) -> bool:
    """Return whether the policy permits upgrades to consumer groups."""
    return config.group_consumer_migration_policy in ("bidirectional", "upgrade")


def may_downgrade(config: GroupCoordinatorConfig) -> bool:
    """Return whether the policy permits downgrades to classic groups."""
    return config.group_consumer_migration_policy in ("bidirectional", "downgrade")


# -- upgrade ---------------------------------------------------------------------------------------------------------


def check_upgrade(group: ClassicGroup, config: GroupCoordinatorConfig) -> None:
    """Raises KafkaError GROUP_ID_NOT_FOUND, the error for a consumer protocol member."""
    reason = None
    if not may_upgrade(config):
        reason = "online upgrade is disabled"
    elif not group.uses_consumer_protocol:
        reason = "the group does not use the consumer embedded protocol"
    elif len(group.members) > config.group_consumer_max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise _cannot_upgrade(group.group_id, reason)


def _cannot_upgrade(group_id: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {reason}."
    )


def upgrade(
    group: ClassicGroup, registry: SnapshotRegistry, image: MetadataImage, records: list[GroupRecord]
) -> ConsumerGroup:
    """Return the upgraded consumer group, not registered; appends the records of the conversion to `records`.

    Raises KafkaError GROUP_ID_NOT_FOUND when members' metadata can't be decoded.
    """
    upgraded = ConsumerGroup(registry, group.group_id)
    epoch = max(group.generation_id, NEW_GROUP_EPOCH)
    try:
        members = _upgraded_members(group, image)
    except ProtocolError as error:
        raise _cannot_upgrade(group.group_id, "the embedded consumer protocol is malformed") from error
    records += group.tombstone_records()
    records += [member.metadata_record(group.group_id) for member in members]
    records.append(group_epoch_record(group.group_id, epoch, NO_TOPICS_HASH))
    upgraded.replay_group_epoch(epoch, NO_TOPICS_HASH)
    for member in members:
        target = {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
        records.append(target_assignment_record(group.group_id, member.member_id, target))
        upgraded.replay_target(member.member_id, target)
    records.append(
        GroupRecord(
            ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id),
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
        )
    )
    upgraded.replay_assignment_epoch(epoch, 0)
    for member in members:
        records.append(member.assignment_record(group.group_id))
        upgraded.replay_member(member.member_id, member)
    return upgraded


def _upgraded_members(group: ClassicGroup, image: MetadataImage) -> list[ConsumerMember]:
    """Return the members in join order. A partition that was assigned to two members stays with the first.

    A cooperative member may have owned more when it joined than its assignment contains. It may not have revoked the
    rest, which no other member got so far. So the rest is pending revocation: the member's next JoinGroup confirms it.
    """
    taken: set[tuple[Uuid, int]] = set()
    members = []
    owned_before: list[list[SubscriptionTopicPartition]] = []
    for member in group:
        if not member.protocols:
            raise ProtocolError(f"member {member.member_id} has no protocol")
        name = group.protocol_name
        metadata = member.protocols.get(name) if name is not None else None
        subscription = decode_subscription(next(iter(member.protocols.values())) if metadata is None else metadata)
        assignment = decode_assignment(member.assignment) if member.assignment else ConsumerProtocolAssignment()
        if assignment.user_data:
            raise _cannot_upgrade(
                group.group_id,
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
                "assignor before re-attempting the upgrade",
            )
        assigned = _take(assignment.assigned_partitions, group.generation_id, taken, image)
        owned_before.append(subscription.owned_partitions)
        members.append(
            ConsumerMember(
                member.member_id,
                instance_id=member.group_instance_id,
                rack_id=subscription.rack_id or None,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                subscribed_topic_names=frozenset(subscription.topics),
                classic=classic_metadata(member.session_timeout_ms, member.protocols),
                member_epoch=group.generation_id,
                previous_member_epoch=group.generation_id,
                assigned=assigned,
            )
        )
    for place, owned in enumerate(owned_before):
        pending = _take(owned, group.generation_id, taken, image)
        if pending:
            members[place] = members[place]._replace(state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=pending)
    return members


def _take(
    entries: Sequence[AssignmentTopicPartition | SubscriptionTopicPartition],
    epoch: int,
    taken: set[tuple[Uuid, int]],
    image: MetadataImage,
) -> OwnedPartitions:
    """Return the partitions that exist and are not taken yet, assigned in `epoch`."""
    owned: dict[Uuid, dict[int, int]] = {}
    for entry in entries:
        topic = image.topic(entry.topic)
        for partition in entry.partitions:
            if topic is not None and partition in topic.partitions and (topic.topic_id, partition) not in taken:
                taken.add((topic.topic_id, partition))
                owned.setdefault(topic.topic_id, {})[partition] = epoch
    return owned


def classic_metadata(session_timeout_ms: int, protocols: Mapping[str, bytes]) -> ClassicMemberMetadata:
    """Return the metadata to store for a classic protocol member."""
    return ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in protocols.items()],
    )


# -- downgrade -------------------------------------------------------------------------------------------------------


def can_downgrade(group: ConsumerGroup, leaving: Collection[str], config: GroupCoordinatorConfig) -> bool:
    """Return whether members remain without `leaving`, and all of them use the classic protocol."""
    remaining = len(group.members) - len(leaving)
    return (
        0 < remaining <= config.group_max_size
        and may_downgrade(config)
        and group.all_use_classic_protocol_except(leaving)
    )


def downgrade(
    group: ConsumerGroup,
    leaving: Collection[str],
    joining: ConsumerMember | None,
    image: MetadataImage,
    clock: Clock,
    *,
    settled: bool,
) -> tuple[ClassicGroup, list[GroupRecord]]:
    """Return the classic group without `leaving` and with `joining`, and the records of the conversion.

    `settled`: it needs no rebalance. Raises KafkaError GROUP_ID_NOT_FOUND when members' metadata can't be decoded.
    """
    members = [member for member_id, member in sorted(group.members.items()) if member_id not in leaving]
    if joining is not None:
        members.append(joining)
    classic = ClassicGroup(
        group.group_id,
        clock,
        STABLE,
        generation_id=group.group_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        current_state_timestamp=clock.time_ms(),
    )
    for member in members:
        classic.add(_downgraded_member(member))
    classic.protocol_name = classic.select_protocol()
    classic.subscribed_topics = frozenset().union(*(member.subscribed_topic_names for member in members))
    try:
        for member in members:
            downgraded = classic.members[member.member_id]
            version = metadata_version(downgraded.metadata(classic.protocol_name))
            classic.assign(downgraded, encoded_assignment(member.assigned, version, image))
    except ProtocolError as error:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot downgrade the consumer group {group.group_id}: {error}."
        ) from error
    assignments = {member.member_id: member.assignment for member in classic}
    return classic, [*group.tombstone_records(), classic.metadata_record(assignments, settled=settled)]


def _downgraded_member(member: ConsumerMember) -> ClassicGroupMember:
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol.")
    return ClassicGroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        CONSUMER_PROTOCOL_TYPE,
        {protocol.name: protocol.metadata for protocol in member.classic.supported_protocols},
    )


# -- embedded consumer protocol ----------------------------------------------------------------------------------------


def encoded_assignment(assigned: OwnedPartitions, version: int, image: MetadataImage) -> bytes:
    """Encode an assignment for a client of the classic protocol: topics by name, sorted."""
    entries = []
    for topic_id, partitions in assigned.items():
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            entries.append(AssignmentTopicPartition(topic=topic.name, partitions=sorted(partitions)))
    entries.sort(key=lambda entry: entry.topic)
    known = schema_of(ConsumerProtocolAssignment).versions.high
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=entries), min(version, known))


def with_classic_subscription(
    member: ConsumerMember,
    subscription: ConsumerProtocolSubscription,
    classic: ClassicMemberMetadata,
    rebalance_timeout_ms: int,
) -> ConsumerMember:
    """Return the member after a JoinGroup."""
    return member._replace(
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        classic=classic,
    )
