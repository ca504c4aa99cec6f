"""DescribeConfigs (32): versions 1 to 4, from the published image; the rules are `controller.configs`'."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.configs import handle_describe_configs
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.handlers.submit import count_errors
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe topics and this broker."""
    response = handle_describe_configs(context.image, message, context.config)
    count_errors(request, response)
    return response


def error_response(message: DescribeConfigsRequest, code: ErrorCode, text: str) -> DescribeConfigsResponse:
    """The same error for every resource."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in message.resources
        ]
    )


DESCRIBE_CONFIGS = DeclaredApi(ApiKey.DESCRIBE_CONFIGS, handle, error_response)
