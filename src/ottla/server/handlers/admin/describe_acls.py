"""DescribeAcls (29): versions 1 to 3, from the published image; the rules are `controller.acls`'."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller.acls import matching_acls
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, Listeners, error_with_message
from ottla.server.authorization import Need
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.request import Request
from ottla.server.stepped import Steps


def handle(context: AdminContext, request: Request, message: DescribeAclsRequest) -> Steps:
    """Describe what matches. Raises KafkaError SECURITY_DISABLED without an authorizer."""
    if not request.is_guarded:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    return matching_acls(context.metadata.image, message)


DESCRIBE_ACLS = DeclaredApi(
    ApiKey.DESCRIBE_ACLS,
    handle,
    error_with_message(DescribeAclsResponse),
    listeners=Listeners.BOTH,
    needs=Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),
)
