"""DeleteAcls (31): versions 1 to 3. There is no authorizer, which is said as Apache Kafka says it without one."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, Listeners
from ottla.server.authorization import Need
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.request import Request


def handle(context: AdminContext, request: Request, message: DeleteAclsRequest) -> DeleteAclsResponse:
    """Raises KafkaError SECURITY_DISABLED."""
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def error_response(message: DeleteAclsRequest, code: ErrorCode, text: str) -> DeleteAclsResponse:
    """The same error for every filter."""
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=text) for _ in message.filters]
    )


DELETE_ACLS = DeclaredApi(
    ApiKey.DELETE_ACLS,
    handle,
    error_response,
    listeners=Listeners.BOTH,
    needs=Need(AclOperation.ALTER, ResourceType.CLUSTER),
)
