"""DescribeCluster (key 60): brokers, or controllers, and the cluster id (KIP-700). Flexible from the start.

1 adds the endpoint type (KIP-919), 2 can list fenced brokers (KIP-1073).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT8, INT16, INT32, STRING, array, f, message, struct


@message("0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = f(BOOL, "0+")
    endpoint_type: int = f(INT8, "1+", default=1)
    include_fenced_brokers: bool = f(BOOL, "2+")


@struct
class DescribeClusterBroker:
    broker_id: int = f(INT32, "0+")
    host: str = f(STRING, "0+")
    port: int = f(INT32, "0+")
    rack: str | None = f(STRING, "0+", nullable="0+", default=None)
    is_fenced: bool = f(BOOL, "2+", ignorable=True)


@message("0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    endpoint_type: int = f(INT8, "1+", default=1, ignorable=True)
    cluster_id: str = f(STRING, "0+")
    controller_id: int = f(INT32, "0+", default=-1)
    brokers: list[DescribeClusterBroker] = f(array(DescribeClusterBroker), "0+")
    cluster_authorized_operations: int = f(INT32, "0+", default=-2147483648)


SPEC = ApiSpec(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse)
