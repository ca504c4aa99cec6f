"""DescribeClientQuotas (48): versions 0 to 1, from the published image; the rules are `controller.client_quotas`'."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.client_quotas import describe_client_quotas
from ottla.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(
    context: AdminContext, request: Request, message: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Describe the matching quotas."""
    return describe_client_quotas(context.metadata.image, message)


def error_response(message: DescribeClientQuotasRequest, code: ErrorCode, text: str) -> DescribeClientQuotasResponse:
    """The error for the whole request."""
    return DescribeClientQuotasResponse(error_code=code, error_message=text, entries=None)


DESCRIBE_CLIENT_QUOTAS = SchemaApi(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    handle,
    error_response,
    needs=RequiredPermission(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),
)
