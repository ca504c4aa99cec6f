"""AlterPartitionReassignments (45): versions 0 to 1. Starts, changes and cancels partition reassignments (KIP-455)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.reassignments import handle_alter_partition_reassignments
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import controller_api
from ottla.server.requests.stepped import Division


def error_response(
    message: AlterPartitionReassignmentsRequest, code: ErrorCode, text: str
) -> AlterPartitionReassignmentsResponse:
    """The error for the whole request, and for each partition."""
    responses = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=partition.partition_index, error_code=code, error_message=text
                )
                for partition in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=text, responses=responses)


ALTER_PARTITION_REASSIGNMENTS = controller_api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    handle_alter_partition_reassignments,
    error_response,
    needs=RequiredPermission(AclOperation.ALTER, ResourceType.CLUSTER),
    forwarded=True,
    divisions=(Division(("topics",), "responses", items=256, inner=(("partitions", "partitions"),)),),
)
