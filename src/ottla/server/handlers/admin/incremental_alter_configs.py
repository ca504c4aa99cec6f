"""IncrementalAlterConfigs (44): versions 0 to 1. Changes single configs (KIP-339)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.configs import altered, handle_incremental_alter_configs
from ottla.metadata.image import ConfigResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
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


def error_response(
    message: IncrementalAlterConfigsRequest, code: ErrorCode, text: str
) -> IncrementalAlterConfigsResponse:
    """The error for every resource."""
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


def guard(context: DecidingContext, request: Request, message: IncrementalAlterConfigsRequest) -> object | None:
    """Authorize each resource separately."""
    return guard_configs(request, message, AclOperation.ALTER_CONFIGS, Items("resources", "responses", error_response))


def broker_prevalidate(
    context: AdminContext, request: Request, message: IncrementalAlterConfigsRequest
) -> object | None:
    """Reject configs of this broker that it can't apply."""

    def proposed(old: Mapping[str, str], item: AlterConfigsResource) -> Mapping[str, str]:
        resource = ConfigResource(ConfigResourceType.BROKER, item.resource_name)
        return altered(old, item.configs, resource, context.config)

    return screen_configs(context, request, message, proposed, error_response)


INCREMENTAL_ALTER_CONFIGS = controller_api(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    handle_incremental_alter_configs,
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
