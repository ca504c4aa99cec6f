"""DescribeConfigs (32): versions 1 to 4, from the published image.

`controller.configs` finds the resources; `common.config.broker_configs` decides the source of each value. A request for
`ottla.version` of a broker returns the version of this node; no other request lists that name.
"""

from __future__ import annotations

from ottla import full_version
from ottla.common.config.config_def import ConfigResourceType, ConfigSource, ConfigType
from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.configs import handle_describe_configs
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
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

NODE_VERSION = "ottla.version"
"""Name of the read-only entry with the version of a node."""

error_response = resource_errors(DescribeConfigsResponse, "results", DescribeConfigsResult)


def handle(context: AdminContext, request: Request, message: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe topics and this broker."""
    response = handle_describe_configs(context.metadata.image, message, context.config)
    for resource, result in zip(message.resources, response.results, strict=True):
        keys = resource.configuration_keys
        is_node = resource.resource_type == ConfigResourceType.BROKER and resource.resource_name
        if keys and NODE_VERSION in keys and is_node and result.error_code == ErrorCode.NONE:
            result.configs.append(_version_entry())
    return response


def _version_entry() -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=NODE_VERSION,
        value=full_version(),
        read_only=True,
        config_source=ConfigSource.STATIC_BROKER_CONFIG,
        config_type=ConfigType.STRING,
    )


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
