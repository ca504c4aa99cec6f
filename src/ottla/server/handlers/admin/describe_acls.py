"""DescribeAcls (29): versions 1 to 3. There is no authorizer, which is said as Apache Kafka says it without one."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, Listeners
from ottla.server.authorization import Need
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.request import Request


def handle(context: AdminContext, request: Request, message: DescribeAclsRequest) -> DescribeAclsResponse:
    """Raises KafkaError SECURITY_DISABLED."""
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")


def error_response(message: DescribeAclsRequest, code: ErrorCode, text: str) -> DescribeAclsResponse:
    """The error, of the request as a whole."""
    return DescribeAclsResponse(error_code=code, error_message=text)


DESCRIBE_ACLS = DeclaredApi(
    ApiKey.DESCRIBE_ACLS,
    handle,
    error_response,
    listeners=Listeners.BOTH,
    needs=Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),
)
