"""Key of a share partition at its coordinator: `group:topicId:partition` (KIP-932).

FindCoordinator names share partitions by it, and its hash selects the partition of `__share_group_state`. A group id
may contain colons, so the key is split from the right.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import uuid_from_string, uuid_to_string
from ottla.common.kafka.share_state import SharePartitionKey

MAX_GROUP_ID_BYTES = 32_767
"""The keys of records have 16-bit lengths."""
MAX_PARTITION = (1 << 31) - 1


def coordinator_key(key: SharePartitionKey) -> str:
    """Return the key as FindCoordinator has it."""
    return f"{key.group_id}:{uuid_to_string(key.topic_id)}:{key.partition}"


def parse_coordinator_key(text: str) -> SharePartitionKey:
    """Inverse of `coordinator_key`. Raises KafkaError INVALID_REQUEST."""
    group_id, *rest = text.rsplit(":", 2)
    if len(rest) != 2 or not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The key of a share coordinator is group:topicId:partition.")
    topic, partition = rest
    if not (partition.isascii() and partition.isdigit()) or len(partition) > 10 or int(partition) > MAX_PARTITION:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The key of a share coordinator ends with no partition number.")
    try:
        topic_id = uuid_from_string(topic)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The key of a share coordinator has no valid topic id.") from error
    return SharePartitionKey(group_id, topic_id, int(partition))
