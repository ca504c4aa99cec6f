"""AlterPartitionReassignments (45): versions 0 to 1. Begins, changes and cancels moves of replicas (KIP-455)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.reassignments import handle_alter_partition_reassignments
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.handlers.submit import submit
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: AlterPartitionReassignmentsRequest) -> None:
    """Hand the request to the controller; the channel parks until what it decided is committed."""
    submit(context, request, lambda image, controller: handle_alter_partition_reassignments(image, message, controller))


def error_response(
    message: AlterPartitionReassignmentsRequest, code: ErrorCode, text: str
) -> AlterPartitionReassignmentsResponse:
    """The error as a whole."""
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=text)


ALTER_PARTITION_REASSIGNMENTS = DeclaredApi(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS, handle, error_response, forwarded=True
)
