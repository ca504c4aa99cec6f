"""Keys and values of the records in `__consumer_offsets`, as `kafka-dump-log --offsets-decoder` reads them.

A key is the record type (16 bits) and the body in its version 0; a value is its version (16 bits) and the body, or null
for a tombstone. `ottla.coordinator.group.records` implements the framing. Types of streams groups are not declared yet.
"""

from __future__ import annotations

from ottla.protocol.schema import BYTES, INT8, INT32, INT64, STRING, UUID, array, f, message, struct


@message("0", api_key=0)
class LegacyOffsetCommitKey:
    group: str = f(STRING, "0")
    topic: str = f(STRING, "0")
    partition: int = f(INT32, "0")


@message("0", api_key=0)
class LegacyOffsetCommitValue:
    offset: int = f(INT64, "0")
    metadata: str = f(STRING, "0")
    commit_timestamp: int = f(INT64, "0")


@message("0", api_key=1)
class OffsetCommitKey:
    group: str = f(STRING, "0")
    topic: str = f(STRING, "0")
    partition: int = f(INT32, "0")


@message("0-4", flexible="4+", api_key=1)
class OffsetCommitValue:
    offset: int = f(INT64, "0+")
    leader_epoch: int = f(INT32, "3+", default=-1, ignorable=True)
    metadata: str = f(STRING, "0+")
    commit_timestamp: int = f(INT64, "0+")
    expire_timestamp: int = f(INT64, "1", default=-1, ignorable=True)
    topic_id: bytes = f(UUID, "4+", tag=0, ignorable=True)


@message("0", api_key=2)
class GroupMetadataKey:
    group: str = f(STRING, "0")


@struct
class MemberMetadata:
    member_id: str = f(STRING, "0+")
    group_instance_id: str | None = f(STRING, "3+", nullable="3+", default=None, ignorable=True)
    client_id: str = f(STRING, "0+")
    client_host: str = f(STRING, "0+")
    rebalance_timeout: int = f(INT32, "1+", default=-1, ignorable=True)
    session_timeout: int = f(INT32, "0+")
    subscription: bytes = f(BYTES, "0+")
    assignment: bytes = f(BYTES, "0+")


@message("0-4", flexible="4+", api_key=2)
class GroupMetadataValue:
    protocol_type: str = f(STRING, "0+")
    generation: int = f(INT32, "0+")
    protocol: str | None = f(STRING, "0+", nullable="0+", default=None)
    leader: str | None = f(STRING, "0+", nullable="0+", default=None)
    current_state_timestamp: int = f(INT64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = f(array(MemberMetadata), "0+")


@message("0", api_key=3)
class ConsumerGroupMetadataKey:
    group_id: str = f(STRING, "0")


@message("0", flexible="0+", api_key=3)
class ConsumerGroupMetadataValue:
    epoch: int = f(INT32, "0+")
    metadata_hash: int = f(INT64, "0+", tag=0)


@message("0", api_key=4)
class ConsumerGroupPartitionMetadataKey:
    group_id: str = f(STRING, "0")


@struct
class PartitionMetadata:
    partition: int = f(INT32, "0+")
    racks: list[str] = f(array(STRING), "0+")


@struct
class TopicMetadata:
    topic_id: bytes = f(UUID, "0+")
    topic_name: str = f(STRING, "0+")
    num_partitions: int = f(INT32, "0+")
    partition_metadata: list[PartitionMetadata] = f(array(PartitionMetadata), "0+")


@message("0", flexible="0+", api_key=4)
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata] = f(array(TopicMetadata), "0+")


@message("0", api_key=5)
class ConsumerGroupMemberMetadataKey:
    group_id: str = f(STRING, "0")
    member_id: str = f(STRING, "0")


@struct
class ClassicProtocol:
    name: str = f(STRING, "0+")
    metadata: bytes = f(BYTES, "0+")


@struct
class ClassicMemberMetadata:
    session_timeout_ms: int = f(INT32, "0+")
    supported_protocols: list[ClassicProtocol] = f(array(ClassicProtocol), "0+")


@message("0", flexible="0+", api_key=5)
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = f(STRING, "0+", nullable="0+", default=None)
    rack_id: str | None = f(STRING, "0+", nullable="0+", default=None)
    client_id: str = f(STRING, "0+")
    client_host: str = f(STRING, "0+")
    subscribed_topic_names: list[str] = f(array(STRING), "0+")
    subscribed_topic_regex: str | None = f(STRING, "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = f(INT32, "0+", default=-1)
    server_assignor: str | None = f(STRING, "0+", nullable="0+", default=None)
    # Kafka's default is an empty struct, so null is written out: a reader that misses the tag sees a classic member.
    classic_member_metadata: ClassicMemberMetadata | None = f(ClassicMemberMetadata, "0+", nullable="0+", tag=0)


@message("0", api_key=6)
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = f(STRING, "0")


@message("0", flexible="0+", api_key=6)
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = f(INT32, "0+")
    assignment_timestamp: int = f(INT64, "0+", tag=0, ignorable=True)


@message("0", api_key=7)
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = f(STRING, "0")
    member_id: str = f(STRING, "0")


@struct
class TargetAssignmentTopicPartition:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[int] = f(array(INT32), "0+")


@message("0", flexible="0+", api_key=7)
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TargetAssignmentTopicPartition] = f(array(TargetAssignmentTopicPartition), "0+")


@message("0", api_key=8)
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = f(STRING, "0")
    member_id: str = f(STRING, "0")


@struct
class CurrentAssignmentTopicPartitions:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[int] = f(array(INT32), "0+")
    assignment_epochs: list[int] | None = f(array(INT32), "0+", nullable="0+", tag=0, default=None)


@message("0", flexible="0+", api_key=8)
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = f(INT32, "0+")
    previous_member_epoch: int = f(INT32, "0+")
    state: int = f(INT8, "0+")
    assigned_partitions: list[CurrentAssignmentTopicPartitions] = f(array(CurrentAssignmentTopicPartitions), "0+")
    partitions_pending_revocation: list[CurrentAssignmentTopicPartitions] = f(
        array(CurrentAssignmentTopicPartitions), "0+"
    )


@message("0", api_key=10)
class ShareGroupMemberMetadataKey:
    group_id: str = f(STRING, "0")
    member_id: str = f(STRING, "0")


@message("0", flexible="0+", api_key=10)
class ShareGroupMemberMetadataValue:
    rack_id: str | None = f(STRING, "0+", nullable="0+")
    client_id: str = f(STRING, "0+")
    client_host: str = f(STRING, "0+")
    subscribed_topic_names: list[str] = f(array(STRING), "0+")


@message("0", api_key=11)
class ShareGroupMetadataKey:
    group_id: str = f(STRING, "0")


@message("0", flexible="0+", api_key=11)
class ShareGroupMetadataValue:
    epoch: int = f(INT32, "0+")
    metadata_hash: int = f(INT64, "0+")


@message("0", api_key=12)
class ShareGroupTargetAssignmentMetadataKey:
    group_id: str = f(STRING, "0")


@message("0", flexible="0+", api_key=12)
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = f(INT32, "0+")
    assignment_timestamp: int = f(INT64, "0+", tag=0, ignorable=True)


@message("0", api_key=13)
class ShareGroupTargetAssignmentMemberKey:
    group_id: str = f(STRING, "0")
    member_id: str = f(STRING, "0")


@message("0", flexible="0+", api_key=13)
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: list[TargetAssignmentTopicPartition] = f(array(TargetAssignmentTopicPartition), "0+")


@message("0", api_key=14)
class ShareGroupCurrentMemberAssignmentKey:
    group_id: str = f(STRING, "0")
    member_id: str = f(STRING, "0")


@message("0", flexible="0+", api_key=14)
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: int = f(INT32, "0+")
    previous_member_epoch: int = f(INT32, "0+")
    state: int = f(INT8, "0+")
    assigned_partitions: list[TargetAssignmentTopicPartition] = f(array(TargetAssignmentTopicPartition), "0+")


@message("0", api_key=15)
class ShareGroupStatePartitionMetadataKey:
    group_id: str = f(STRING, "0")


@struct
class TopicPartitionsInfo:
    topic_id: bytes = f(UUID, "0+")
    topic_name: str = f(STRING, "0+")
    partitions: list[int] = f(array(INT32), "0+")


@struct
class TopicInfo:
    topic_id: bytes = f(UUID, "0+")
    topic_name: str = f(STRING, "0+")


@message("0", flexible="0+", api_key=15)
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: list[TopicPartitionsInfo] = f(array(TopicPartitionsInfo), "0+")
    initialized_topics: list[TopicPartitionsInfo] = f(array(TopicPartitionsInfo), "0+")
    deleting_topics: list[TopicInfo] = f(array(TopicInfo), "0+")


@message("0", api_key=16)
class ConsumerGroupRegularExpressionKey:
    group_id: str = f(STRING, "0")
    regular_expression: str = f(STRING, "0")


@message("0", flexible="0+", api_key=16)
class ConsumerGroupRegularExpressionValue:
    topics: list[str] = f(array(STRING), "0+")
    version: int = f(INT64, "0+")
    timestamp: int = f(INT64, "0+")


COORDINATOR_RECORDS: dict[int, tuple[type, type]] = {
    0: (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""Key class and value class by the kind of record."""
