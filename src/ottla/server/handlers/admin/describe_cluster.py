"""DescribeCluster (60): versions 0 to 2. Brokers of the requested listener, cluster id, controller (KIP-700).

From version 1 on a client requests brokers or controllers (KIP-919); each listener answers for its own kind only.
Version 2 may include fenced brokers.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import DENIED_TEXT, NOT_REQUESTED, RequiredPermission
from ottla.server.requests.request import Request

BROKERS, CONTROLLERS = 1, 2
_NAMES = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


def handle(context: AdminContext, request: Request, message: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the brokers as Metadata does, or the controllers, depending on the listener."""
    here = CONTROLLERS if _is_controller(context, request) else BROKERS
    if message.endpoint_type not in _NAMES:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {message.endpoint_type}")
    if message.endpoint_type != here:
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            f"The request was sent to an endpoint of type {_NAMES[here]}, but we wanted an endpoint of type "
            f"{_NAMES[message.endpoint_type]}",
        )
    asked = message.include_cluster_authorized_operations
    metadata, listener = context.metadata, request.listener_name
    if here == BROKERS:
        nodes = metadata.brokers_on(listener, include_fenced=message.include_fenced_brokers)
    else:
        nodes = metadata.controllers_on(listener)
    return DescribeClusterResponse(
        endpoint_type=here,
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id() if here == BROKERS else metadata.active_controller(),
        brokers=[
            DescribeClusterBroker(
                broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack, is_fenced=node.fenced
            )
            for node in nodes
        ],
        cluster_authorized_operations=(request.cluster_operations() if asked else NOT_REQUESTED),
    )


def _is_controller(context: AdminContext, request: Request) -> bool:
    return request.listener_name in context.config.controller_listener_names


def error_response(message: DescribeClusterRequest, code: ErrorCode, text: str) -> DescribeClusterResponse:
    """The error for the whole request, from an endpoint of brokers."""
    return DescribeClusterResponse(error_code=code, error_message=text, endpoint_type=BROKERS)


def guard(context: AdminContext, request: Request, message: DescribeClusterRequest) -> None:
    """Open to all clients of a broker; a controller requires cluster permission, as in Apache Kafka."""
    if request.dispatcher.serves_controller and not request.allowed(AclOperation.ALTER, ResourceType.CLUSTER):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, DENIED_TEXT)


DESCRIBE_CLUSTER = SchemaApi(
    ApiKey.DESCRIBE_CLUSTER,
    handle,
    error_response,
    guard=guard,
    item_needs=(RequiredPermission(AclOperation.ALTER, ResourceType.CLUSTER),),
)
