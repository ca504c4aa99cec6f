"""TxnOffsetCommit (28): versions 0 to 6. The group coordinator decides and answers after the commit."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import coordinated, guard_read_topics
from ottla.server.requests.api import partition_errors
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division

error_response = partition_errors(
    TxnOffsetCommitResponse, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition, by_id=True
)


def guard(context: GroupContext, request: Request, message: TxnOffsetCommitRequest) -> object | None:
    """A group may commit offsets of topics that the client may read."""
    if not request.allowed(AclOperation.READ, ResourceType.GROUP, message.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return guard_read_topics(context, request, message, error_response)


TXN_OFFSET_COMMIT = coordinated(
    ApiKey.TXN_OFFSET_COMMIT,
    GroupCoordinator.txn_offset_commit,
    error_response,
    guard=guard,
    needs=RequiredPermission(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
    item_needs=(
        RequiredPermission(AclOperation.READ, ResourceType.GROUP),
        RequiredPermission(AclOperation.READ, ResourceType.TOPIC),
    ),
    divisions=(Division(("topics",), "topics", items=1000, inner=(("partitions", "partitions"),)),),
)
