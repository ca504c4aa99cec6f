"""DescribeConfigs (32): versions 1 to 4, from the published image.

`controller.configs` finds the resources; `common.config.broker_configs` decides the source of each value.
"""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.configs import handle_describe_configs
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi, resource_errors
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, guard_configs
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division

error_response = resource_errors(DescribeConfigsResponse, "results", DescribeConfigsResult)


def handle(context: AdminContext, request: Request, message: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe topics and this broker."""
    return handle_describe_configs(context.metadata.image, message, context.config)


def guard(context: AdminContext, request: Request, message: DescribeConfigsRequest) -> object | None:
    """Authorize each resource separately."""
    return guard_configs(request, message, AclOperation.DESCRIBE_CONFIGS, Items("resources", "results", error_response))


def _item_key(resource: DescribeConfigsResource) -> tuple[object, ...]:
    """Identity of an entry: one resource may be repeated with other configs."""
    wanted = resource.configuration_keys
    return resource.resource_type, resource.resource_name, None if wanted is None else tuple(wanted)


DESCRIBE_CONFIGS = SchemaApi(
    ApiKey.DESCRIBE_CONFIGS,
    handle,
    error_response,
    guard=guard,
    item_needs=(
        RequiredPermission(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),
        RequiredPermission(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
        RequiredPermission(AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP),
    ),
).divided(Division(("resources",), "results", _item_key, mentions=1, items=8))
