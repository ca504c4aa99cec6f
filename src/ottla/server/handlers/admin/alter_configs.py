"""AlterConfigs (33): versions 0 to 2. Replaces all configs of a resource; deprecated, still used."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.configs import handle_alter_configs
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.handlers.admin.reconfiguration import screen_configs
from ottla.server.requests.api import Listeners
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import DecidingContext, controller_api
from ottla.server.requests.guards import Items, guard_configs, resource_key
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division


def error_response(message: AlterConfigsRequest, code: ErrorCode, text: str) -> AlterConfigsResponse:
    """The error for every resource."""
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


def guard(context: DecidingContext, request: Request, message: AlterConfigsRequest) -> object | None:
    """Authorize each resource separately."""
    return guard_configs(request, message, AclOperation.ALTER_CONFIGS, Items("resources", "responses", error_response))


def broker_prevalidate(context: AdminContext, request: Request, message: AlterConfigsRequest) -> object | None:
    """Reject configs of this broker that it can't apply."""

    def proposed(_old: Mapping[str, str], item: AlterConfigsResource) -> Mapping[str, str]:
        return {config.name: config.value for config in item.configs if config.value is not None}

    return screen_configs(context, request, message, proposed, error_response)


ALTER_CONFIGS = controller_api(
    ApiKey.ALTER_CONFIGS,
    handle_alter_configs,
    error_response,
    guard=guard,
    listeners=Listeners.BOTH,
    item_needs=(
        RequiredPermission(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),
        RequiredPermission(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC),
        RequiredPermission(AclOperation.ALTER_CONFIGS, ResourceType.GROUP),
    ),
    forwarded=broker_prevalidate,
    divisions=(Division(("resources",), "responses", resource_key, mentions=2),),
)
