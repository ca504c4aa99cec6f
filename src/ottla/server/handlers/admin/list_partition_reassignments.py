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
from ottla.server.api import DeclaredApi, Listeners
from ottla.server.authorization import Need
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.request import Request


def handle(context: AdminContext, request: Request, message: ListPartitionReassignmentsRequest) -> None:
    """Hand the request to the controller; the channel parks until what it decided is committed."""
    context.decisions.submit(
        request,
        lambda image, controller: ControllerResult([], handle_list_partition_reassignments(image, message)),
    )


def error_response(
    message: ListPartitionReassignmentsRequest, code: ErrorCode, text: str
) -> ListPartitionReassignmentsResponse:
    """The error as a whole."""
    return ListPartitionReassignmentsResponse(error_code=code, error_message=text)


LIST_PARTITION_REASSIGNMENTS = DeclaredApi(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    handle,
    error_response,
    listeners=Listeners.BOTH,
    needs=Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),
    forwarded=True,
)
