"""ListPartitionReassignments (46): version 0. Lists the partition reassignments in progress (KIP-455)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.reassignments import handle_list_partition_reassignments
from ottla.controller.result import ControllerResult
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import controller_api


def error_response(
    message: ListPartitionReassignmentsRequest, code: ErrorCode, text: str
) -> ListPartitionReassignmentsResponse:
    """The error for the whole request."""
    return ListPartitionReassignmentsResponse(error_code=code, error_message=text)


LIST_PARTITION_REASSIGNMENTS = controller_api(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    lambda image, message, controller: ControllerResult([], handle_list_partition_reassignments(image, message)),
    error_response,
    needs=RequiredPermission(AclOperation.DESCRIBE, ResourceType.CLUSTER),
    forwarded=True,
)
