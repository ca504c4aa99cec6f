"""Metadata requests: the brokers and topics of a cluster.

One exchange each, on a given connection, without retries. Offsets and records: `client.wire.record_requests`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import TopicNotFound, raise_for, response_error
from ottla.client.wire.model import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo
from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.acl import operations_of
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.protocol.registry import ApiKey


class Metadata(NamedTuple):
    """Contents of a Metadata response; `error` is the first failure among the requested topics."""

    cluster: ClusterInfo
    topics: list[TopicInfo]
    error: KafkaError | None


def metadata(connection: Connection, topics: Sequence[str] | None) -> Metadata:
    """Request the brokers and topics: None means all topics, an empty sequence none. No topic is created."""
    connection.require_broker()
    request = MetadataRequest(
        topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
    )
    response: MetadataResponse = connection.request(ApiKey.METADATA, request)
    raise_for(response.error_code, "metadata")
    brokers = tuple(
        BrokerInfo(broker.node_id, broker.host, broker.port, broker.rack)
        for broker in sorted(response.brokers, key=lambda broker: broker.node_id)
    )
    found: list[TopicInfo] = []
    error: KafkaError | None = None
    for topic in response.topics:
        name = topic.name or ""
        if topic.error_code == ErrorCode.NONE:
            found.append(_topic_info(name, topic))
        elif error is None and topics is not None:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                error = TopicNotFound(name)
            else:
                error = response_error(topic.error_code, f"topic {name!r}")
    return Metadata(ClusterInfo(response.cluster_id, response.controller_id, brokers), found, error)


def topic_operations(connection: Connection, topics: Sequence[str]) -> dict[str, frozenset[int]]:
    """Operations that this user may perform on topics (KIP-430); without topics that are missing or not described."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    response: MetadataResponse = connection.request(ApiKey.METADATA, request)
    raise_for(response.error_code, "metadata")
    return {
        topic.name or "": operations_of(topic.topic_authorized_operations)
        for topic in response.topics
        if topic.error_code == ErrorCode.NONE
    }


def topic_not_found(connection: Connection, name: str) -> TopicNotFound:
    """The error for a missing topic, with a suggestion from the other topics, which are requested."""
    return TopicNotFound(name, known=[topic.name for topic in metadata(connection, None).topics])


def _topic_info(name: str, topic: MetadataResponseTopic) -> TopicInfo:
    partitions = tuple(
        PartitionInfo(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    )
    if [partition.index for partition in partitions] != list(range(len(partitions))):
        raise ProtocolError(f"metadata of topic {name!r} omits partitions")
    return TopicInfo(name, topic.topic_id, topic.is_internal, partitions)
