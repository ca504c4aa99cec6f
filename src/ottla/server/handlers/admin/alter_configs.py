"""AlterConfigs (33): versions 0 to 2. Replaces all settings of a resource; deprecated, still used."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.configs import handle_alter_configs
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.handlers.submit import submit
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: AlterConfigsRequest) -> None:
    """Hand the request to the controller; the channel parks until the change is committed."""
    submit(context, request, lambda image, controller: handle_alter_configs(image, message, controller))


def error_response(message: AlterConfigsRequest, code: ErrorCode, text: str) -> AlterConfigsResponse:
    """The same error for every resource."""
    return AlterConfigsResponse(
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


ALTER_CONFIGS = DeclaredApi(ApiKey.ALTER_CONFIGS, handle, error_response, forwarded=True)
