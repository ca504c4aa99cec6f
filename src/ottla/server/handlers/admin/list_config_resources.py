"""ListConfigResources (74): versions 0 and 1 (KIP-1142). Names of all resources with configs.

Version 0 was ListClientMetricsResources and lists only client metrics subscriptions.
"""

from __future__ import annotations

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request

_LISTED = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)


def handle(context: AdminContext, request: Request, message: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """List the resources of the requested types, or of all types."""
    types: list[int] = list(message.resource_types)
    if request.api_version == 0:
        types = [ConfigResourceType.CLIENT_METRICS]
    unknown = [number for number in types if number not in _LISTED]
    if unknown:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    wanted = types or _LISTED
    resources: list[ConfigResource] = []
    if ConfigResourceType.TOPIC in wanted:
        resources += [
            ConfigResource(resource_name=name, resource_type=ConfigResourceType.TOPIC)
            for name in context.metadata.image.topics
        ]
    for kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        if kind in wanted:
            resources += [
                ConfigResource(resource_name=str(broker_id), resource_type=kind)
                for broker_id in context.metadata.image.brokers
            ]
    for kind in (ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP):
        if kind in wanted:
            resources += [
                ConfigResource(resource_name=resource.name, resource_type=kind)
                for resource in context.metadata.image.configs
                if resource.type is kind
            ]
    return ListConfigResourcesResponse(config_resources=resources)


LIST_CONFIG_RESOURCES = SchemaApi(
    ApiKey.LIST_CONFIG_RESOURCES,
    handle,
    bare_error(ListConfigResourcesResponse),
    needs=RequiredPermission(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),
)
