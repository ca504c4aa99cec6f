"""ListPartitionReassignments (46): version 0. The moves of replicas that are under way (KIP-455)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.controller.reassignments import handle_list_partition_reassignments
from ottla.controller.result import ControllerResult
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import Listeners
from ottla.server.authorization import Need
from ottla.server.decisions import decided


def error_response(
    message: ListPartitionReassignmentsRequest, code: ErrorCode, text: str
) -> ListPartitionReassignmentsResponse:
    """The error as a whole."""
    return ListPartitionReassignmentsResponse(error_code=code, error_message=text)


LIST_PARTITION_REASSIGNMENTS = decided(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    lambda image, message, controller: ControllerResult([], handle_list_partition_reassignments(image, message)),
    error_response,
    listeners=Listeners.BOTH,
    needs=Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),
    forwarded=True,
)
