"""AlterConfigs (33): versions 0 to 2. Replaces all settings of a resource; deprecated, still used."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.controller.configs import handle_alter_configs
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import Listeners
from ottla.server.authorization import Need
from ottla.server.decisions import DecidingContext, decided
from ottla.server.guards import Items, guard_configs, resource_key
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.handlers.admin.reconfiguration import screen_configs
from ottla.server.request import Request
from ottla.server.stepped import Division


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


def guard(context: DecidingContext, request: Request, message: AlterConfigsRequest) -> object | None:
    """Each resource for itself."""
    return guard_configs(request, message, AclOperation.ALTER_CONFIGS, Items("resources", "responses", error_response))


def screen(context: AdminContext, request: Request, message: AlterConfigsRequest) -> object | None:
    """What this broker can't follow of its own settings."""

    def proposed(_old: Mapping[str, str], item: AlterConfigsResource) -> Mapping[str, str]:
        return {config.name: config.value for config in item.configs if config.value is not None}

    return screen_configs(context, request, message, proposed, error_response)


ALTER_CONFIGS = decided(
    ApiKey.ALTER_CONFIGS,
    handle_alter_configs,
    error_response,
    guard=guard,
    listeners=Listeners.BOTH,
    item_needs=(
        Need(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),
        Need(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC),
        Need(AclOperation.ALTER_CONFIGS, ResourceType.GROUP),
    ),
    forwarded=screen,
    division=Division(("resources",), "responses", resource_key, mentions=2),
)
