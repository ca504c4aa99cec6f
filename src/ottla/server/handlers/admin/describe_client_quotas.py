"""DescribeClientQuotas (48): versions 0 to 1, from the published image; the rules are `controller.client_quotas`'."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.controller.client_quotas import describe_client_quotas
from ottla.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi
from ottla.server.authorization import Need
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.request import Request


def handle(
    context: AdminContext, request: Request, message: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Describe the limits that match."""
    return describe_client_quotas(context.metadata.image, message)


def error_response(message: DescribeClientQuotasRequest, code: ErrorCode, text: str) -> DescribeClientQuotasResponse:
    """The error, of the request as a whole."""
    return DescribeClientQuotasResponse(error_code=code, error_message=text, entries=None)


DESCRIBE_CLIENT_QUOTAS = DeclaredApi(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    handle,
    error_response,
    needs=Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),
)
