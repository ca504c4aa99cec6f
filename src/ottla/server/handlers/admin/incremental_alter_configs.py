"""IncrementalAlterConfigs (44): versions 0 to 1. Changes single settings (KIP-339)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.configs import handle_incremental_alter_configs
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.handlers.submit import submit
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: IncrementalAlterConfigsRequest) -> None:
    """Hand the request to the controller; the channel parks until the change is committed."""
    submit(context, request, lambda image, controller: handle_incremental_alter_configs(image, message, controller))


def error_response(
    message: IncrementalAlterConfigsRequest, code: ErrorCode, text: str
) -> IncrementalAlterConfigsResponse:
    """The same error for every resource."""
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in message.resources
        ]
    )


INCREMENTAL_ALTER_CONFIGS = DeclaredApi(ApiKey.INCREMENTAL_ALTER_CONFIGS, handle, error_response, forwarded=True)
