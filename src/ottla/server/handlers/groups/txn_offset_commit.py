"""TxnOffsetCommit (28): versions 0 to 6. All rules are the group coordinator's, which answers when it is stored."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.authorization import Need
from ottla.server.handlers.groups.group_requests import coordinated


def error_response(message: TxnOffsetCommitRequest, code: ErrorCode, text: str) -> TxnOffsetCommitResponse:
    """The same error for every partition."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


TXN_OFFSET_COMMIT = coordinated(
    ApiKey.TXN_OFFSET_COMMIT,
    GroupCoordinator.txn_offset_commit,
    error_response,
    needs=Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
    item_needs=(Need(AclOperation.READ, ResourceType.GROUP), Need(AclOperation.READ, ResourceType.TOPIC)),
)
