"""IncrementalAlterConfigs (44): versions 0 to 1. Changes single settings (KIP-339)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.controller.configs import handle_incremental_alter_configs
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import Listeners
from ottla.server.authorization import Need
from ottla.server.decisions import DecidingContext, decided
from ottla.server.guards import Items, guard_configs
from ottla.server.request import Request


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


def guard(context: DecidingContext, request: Request, message: IncrementalAlterConfigsRequest) -> object | None:
    """Each resource for itself."""
    return guard_configs(request, message, AclOperation.ALTER_CONFIGS, Items("resources", "responses", error_response))


INCREMENTAL_ALTER_CONFIGS = decided(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    handle_incremental_alter_configs,
    error_response,
    guard=guard,
    listeners=Listeners.BOTH,
    item_needs=(
        Need(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),
        Need(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC),
        Need(AclOperation.ALTER_CONFIGS, ResourceType.GROUP),
    ),
    forwarded=True,
)
