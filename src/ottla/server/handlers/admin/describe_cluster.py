"""DescribeCluster (60): versions 0 to 2. Brokers of the listener that asks, cluster id, controller (KIP-700).

From version 1 on the request says whether it wants brokers or controllers (KIP-919); each listener answers for its own
kind only. Version 2 may ask for fenced brokers too.
"""

from __future__ import annotations

from ottla.common.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, Listeners
from ottla.server.authorization import NOT_REQUESTED, Need
from ottla.server.context import BrokerContext
from ottla.server.request import Request

BROKERS, CONTROLLERS = 1, 2
_NAMES = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


def handle(context: BrokerContext, request: Request, message: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the brokers as Metadata does, or the controllers, as the listener has it."""
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
    listener = request.listener_name
    return DescribeClusterResponse(
        endpoint_type=here,
        cluster_id=context.cluster_id,
        controller_id=context.controller_id() if here == BROKERS else context.quorum.leader.leader_id,
        brokers=_controllers(context, listener) if here == CONTROLLERS else _brokers(context, listener, message),
        cluster_authorized_operations=(
            request.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME) if asked else NOT_REQUESTED
        ),
    )


def _is_controller(context: BrokerContext, request: Request) -> bool:
    return request.listener_name in context.config.controller_listener_names


def _brokers(context: BrokerContext, listener: str, message: DescribeClusterRequest) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(
            broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack, is_fenced=broker.fenced
        )
        for broker in context.brokers_on(listener, include_fenced=message.include_fenced_brokers)
    ]


def _controllers(context: BrokerContext, listener: str) -> list[DescribeClusterBroker]:
    """Those that are registered, where they say that they listen."""
    return [
        DescribeClusterBroker(broker_id=controller_id, host=endpoint.host, port=endpoint.port)
        for controller_id, controller in sorted(context.image.controllers.items())
        if (endpoint := controller.endpoint(listener)) is not None
    ]


def error_response(message: DescribeClusterRequest, code: ErrorCode, text: str) -> DescribeClusterResponse:
    """The error as a whole, from an endpoint of brokers."""
    return DescribeClusterResponse(error_code=code, error_message=text, endpoint_type=BROKERS)


DESCRIBE_CLUSTER = DeclaredApi(
    ApiKey.DESCRIBE_CLUSTER,
    handle,
    error_response,
    listeners=Listeners.BOTH,
    item_needs=(Need(AclOperation.ALTER, ResourceType.CLUSTER),),
)
