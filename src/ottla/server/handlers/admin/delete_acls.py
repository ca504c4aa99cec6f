"""DeleteAcls (31): versions 1 to 3, forwarded to the active controller; the rules are `controller.acls`'."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.acls import handle_delete_acls
from ottla.controller.result import ControllerContext, ControllerResult
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.registry import ApiKey
from ottla.security.authorizer import log_changes
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division


def handle(context: AdminContext, request: Request, message: DeleteAclsRequest) -> None:
    """Delete ACLs and write them to the audit log. Raises KafkaError SECURITY_DISABLED without an authorizer."""
    if not request.is_guarded:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")

    def decide(image: MetadataImage, controller: ControllerContext) -> ControllerResult[DeleteAclsResponse]:
        result = handle_delete_acls(image, message)
        removed = [image.acls[record.message.id] for record in result.records]
        log_changes(request.principal, request.channel.client_host, "removes", removed)
        return result

    context.decisions.submit(request, decide)


def error_response(message: DeleteAclsRequest, code: ErrorCode, text: str) -> DeleteAclsResponse:
    """The error for every filter."""
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=text) for _ in message.filters]
    )


DELETE_ACLS = SchemaApi(
    ApiKey.DELETE_ACLS,
    handle,
    error_response,
    needs=RequiredPermission(AclOperation.ALTER, ResourceType.CLUSTER),
    forwarded=True,
).divided(Division(("filters",), "filter_results", items=1))
