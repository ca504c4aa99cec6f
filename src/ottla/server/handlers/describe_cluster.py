"""DescribeCluster (60): versions 0 to 2. Brokers of the listener that asks, cluster id, controller (KIP-700).

From version 1 on the request says whether it wants brokers or controllers (KIP-919); a broker listener answers only for
brokers. Version 2 may ask for fenced brokers too.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.authorized import CLUSTER_OPERATIONS, NOT_REQUESTED
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.request import Request

BROKERS, CONTROLLERS = 1, 2


def handle(context: BrokerContext, request: Request, message: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the cluster as Metadata does."""
    if message.endpoint_type == CONTROLLERS:
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if message.endpoint_type != BROKERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {message.endpoint_type}")
    asked = message.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=context.cluster_id,
        controller_id=context.controller_id(),
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack, is_fenced=broker.fenced
            )
            for broker in context.brokers_on(
                request.channel.listener_name, include_fenced=message.include_fenced_brokers
            )
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_REQUESTED,
    )


def error_response(message: DescribeClusterRequest, code: ErrorCode, text: str) -> DescribeClusterResponse:
    """The error as a whole, from an endpoint of brokers."""
    return DescribeClusterResponse(error_code=code, error_message=text, endpoint_type=BROKERS)


DESCRIBE_CLUSTER = DeclaredApi(ApiKey.DESCRIBE_CLUSTER, handle, error_response)
