"""CreateAcls (30): versions 1 to 3. There is no authorizer, which is said as Apache Kafka says it without one."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, Listeners
from ottla.server.authorization import Need
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.request import Request


def handle(context: AdminContext, request: Request, message: CreateAclsRequest) -> CreateAclsResponse:
    """Raises KafkaError SECURITY_DISABLED."""
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def error_response(message: CreateAclsRequest, code: ErrorCode, text: str) -> CreateAclsResponse:
    """The same error for every entry."""
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=text) for _ in message.creations]
    )


CREATE_ACLS = DeclaredApi(
    ApiKey.CREATE_ACLS,
    handle,
    error_response,
    listeners=Listeners.BOTH,
    needs=Need(AclOperation.ALTER, ResourceType.CLUSTER),
)
