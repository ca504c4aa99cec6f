"""Metadata (key 3): brokers, topics, partitions and their leaders.

1 adds racks, the controller and internal topics, and a null list for all topics (version 0: an empty list). 2 adds the
cluster id, 4 the switch for topic auto-creation, 5 offline replicas, 7 leader epochs, 8 authorized operations (those of
the cluster only up to 10). 9 is flexible. 10 adds topic ids, which requests may use from 12 on (KIP-516). 13 has a
top-level error code (KIP-1102).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, STRING, UUID, array, f, message, struct


@struct
class MetadataRequestTopic:
    topic_id: bytes = f(UUID, "10+", ignorable=True)
    name: str | None = f(STRING, "0+", nullable="10+")


@message("0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = f(array(MetadataRequestTopic), "0+", nullable="1+")
    allow_auto_topic_creation: bool = f(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = f(BOOL, "8-10")
    include_topic_authorized_operations: bool = f(BOOL, "8+")


@struct
class MetadataResponseBroker:
    node_id: int = f(INT32, "0+")
    host: str = f(STRING, "0+")
    port: int = f(INT32, "0+")
    rack: str | None = f(STRING, "1+", nullable="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: int = f(INT16, "0+")
    partition_index: int = f(INT32, "0+")
    leader_id: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = f(array(INT32), "0+")
    isr_nodes: list[int] = f(array(INT32), "0+")
    offline_replicas: list[int] = f(array(INT32), "5+", ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: int = f(INT16, "0+")
    name: str | None = f(STRING, "0+", nullable="12+")
    topic_id: bytes = f(UUID, "10+", ignorable=True)
    is_internal: bool = f(BOOL, "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = f(array(MetadataResponsePartition), "0+")
    topic_authorized_operations: int = f(INT32, "8+", default=-2147483648, ignorable=True)


@message("0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int = f(INT32, "3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = f(array(MetadataResponseBroker), "0+")
    cluster_id: str | None = f(STRING, "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = f(INT32, "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = f(array(MetadataResponseTopic), "0+")
    cluster_authorized_operations: int = f(INT32, "8-10", default=-2147483648, ignorable=True)
    error_code: int = f(INT16, "13+", ignorable=True)


SPEC = ApiSpec(ApiKey.METADATA, MetadataRequest, MetadataResponse)
