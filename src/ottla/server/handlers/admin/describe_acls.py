"""DescribeAcls (29): versions 1 to 3, from the published image; the rules are `controller.acls`'."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.acls import matching_acls
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi, error_with_message
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Steps


def handle(context: AdminContext, request: Request, message: DescribeAclsRequest) -> Steps:
    """Describe the matching ACLs. Raises KafkaError SECURITY_DISABLED without an authorizer."""
    if not request.is_guarded:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    return matching_acls(context.metadata.image, message)


DESCRIBE_ACLS = SchemaApi(
    ApiKey.DESCRIBE_ACLS,
    handle,
    error_with_message(DescribeAclsResponse),
    needs=RequiredPermission(AclOperation.DESCRIBE, ResourceType.CLUSTER),
)
