"""Requests for brokers, features, quorum, elections and reassignments: one exchange each, on a given connection.

As in `client.admin.admin_calls`, nothing is retried, and errors of partitions are combined into one KafkaError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import ottla
from ottla.client.wire.connection import CLIENT_NAME, Connection
from ottla.client.wire.failure import raise_all, raise_for, response_error
from ottla.client.wire.model import (
    ClusterBroker,
    FeatureInfo,
    FeatureUpdate,
    OngoingReassignment,
    Position,
    QuorumInfo,
    QuorumReplicaInfo,
)
from ottla.common.errors import ErrorCode
from ottla.common.kafka.topic_partition import by_topic
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    QuorumReplica,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, ElectLeadersTopic
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.registry import ApiKey

METADATA_TOPIC = "__cluster_metadata"
PREFERRED, UNCLEAN = 0, 1
_NO_ELECTION_NEEDED = frozenset({ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED})


def describe_brokers(connection: Connection) -> list[ClusterBroker]:
    """DescribeCluster: all registered brokers by id, including fenced ones."""
    request = DescribeClusterRequest(include_fenced_brokers=True)
    response: DescribeClusterResponse = connection.request(ApiKey.DESCRIBE_CLUSTER, request)
    raise_for(response.error_code, "the cluster", response.error_message)
    brokers = [
        ClusterBroker(item.broker_id, item.host, item.port, item.rack, item.is_fenced) for item in response.brokers
    ]
    return sorted(brokers, key=lambda broker: broker.node_id)


def describe_quorum(connection: Connection) -> QuorumInfo:
    """DescribeQuorum of the metadata log."""
    topic = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition(partition_index=0)])
    response: DescribeQuorumResponse = connection.request(ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest(topics=[topic]))
    raise_for(response.error_code, "the quorum", response.error_message)
    for found in (partition for each in response.topics for partition in each.partitions):
        raise_for(found.error_code, "the quorum", found.error_message)
        return QuorumInfo(
            found.leader_id,
            found.leader_epoch,
            found.high_watermark,
            _replicas(found.current_voters),
            _replicas(found.observers),
        )
    raise response_error(ErrorCode.UNKNOWN_SERVER_ERROR, "the quorum", "the response contains no partition")


def _replicas(items: Iterable[QuorumReplica]) -> tuple[QuorumReplicaInfo, ...]:
    return tuple(
        QuorumReplicaInfo(
            item.replica_id,
            item.replica_directory_id,
            item.log_end_offset,
            item.last_fetch_timestamp,
            item.last_caught_up_timestamp,
        )
        for item in items
    )


def elect_leaders(
    connection: Connection, positions: Sequence[Position] | None, election: int, timeout_ms: int
) -> list[Position]:
    """ElectLeaders for some partitions (None: all); returns those with a new leader.

    Raises KafkaError that lists each failed election.
    """
    topics = None
    if positions is not None:
        topics = [ElectLeadersTopic(topic=name, partitions=indexes) for name, indexes in by_topic(positions).items()]
    request = ElectLeadersRequest(election_type=election, topic_partitions=topics, timeout_ms=timeout_ms)
    response: ElectLeadersResponse = connection.request(
        ApiKey.ELECT_LEADERS, request, timeout_s=timeout_ms / 1000 + 5.0
    )
    raise_for(response.error_code, "the election")
    results = [
        ((topic.topic, item.partition_id), item.error_code, item.error_message)
        for topic in response.replica_election_results
        for item in topic.partition_result
    ]
    _raise_failures(result for result in results if result[1] not in _NO_ELECTION_NEEDED)
    return [position for position, code, _ in results if code == ErrorCode.NONE]


def alter_reassignments(
    connection: Connection, targets: Mapping[Position, Sequence[int] | None], timeout_ms: int
) -> None:
    """AlterPartitionReassignments: start reassignments, or cancel those with the target None.

    Raises KafkaError that lists each rejected partition.
    """
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(partition_index=index, replicas=_listed(targets[name, index]))
                for index in indexes
            ],
        )
        for name, indexes in by_topic(targets).items()
    ]
    request = AlterPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)
    response: AlterPartitionReassignmentsResponse = connection.request(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, timeout_s=timeout_ms / 1000 + 5.0
    )
    raise_for(response.error_code, "the reassignment", response.error_message)
    _raise_failures(
        ((topic.name, item.partition_index), item.error_code, item.error_message)
        for topic in response.responses
        for item in topic.partitions
    )


def list_reassignments(connection: Connection, timeout_ms: int) -> dict[Position, OngoingReassignment]:
    """ListPartitionReassignments: all ongoing reassignments."""
    request = ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None)
    response: ListPartitionReassignmentsResponse = connection.request(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, request, timeout_s=timeout_ms / 1000 + 5.0
    )
    raise_for(response.error_code, "the reassignments", response.error_message)
    return {
        (topic.name, item.partition_index): OngoingReassignment(
            tuple(item.replicas), tuple(item.adding_replicas), tuple(item.removing_replicas)
        )
        for topic in response.topics
        for item in topic.partitions
    }


def describe_features(connection: Connection) -> dict[str, FeatureInfo]:
    """The features that the broker supports or the cluster has finalized, by name."""
    request = ApiVersionsRequest(client_software_name=CLIENT_NAME, client_software_version=ottla.__version__)
    response: ApiVersionsResponse = connection.request(ApiKey.API_VERSIONS, request)
    raise_for(response.error_code, "the features")
    levels = {item.name: item.max_version_level for item in response.finalized_features}
    supported = {item.name: (item.min_version, item.max_version) for item in response.supported_features}
    return {
        name: FeatureInfo(levels.get(name, 0), *supported.get(name, (0, 0))) for name in sorted({*levels, *supported})
    }


def update_features(
    connection: Connection, updates: Sequence[FeatureUpdate], timeout_ms: int, *, validate_only: bool
) -> None:
    """UpdateFeatures: all of them, or none. Raises KafkaError with the controller's reason."""
    keys = [
        FeatureUpdateKey(feature=each.feature, max_version_level=each.level, upgrade_type=each.upgrade_type)
        for each in updates
    ]
    request = UpdateFeaturesRequest(timeout_ms=timeout_ms, feature_updates=keys, validate_only=validate_only)
    response: UpdateFeaturesResponse = connection.request(
        ApiKey.UPDATE_FEATURES, request, timeout_s=timeout_ms / 1000 + 5.0
    )
    raise_for(response.error_code, "the features", response.error_message)
    for result in response.results:
        raise_for(result.error_code, result.feature, result.error_message)


def unregister_broker(connection: Connection, broker_id: int) -> None:
    """UnregisterBroker: remove the registration of a broker that will not return."""
    response: UnregisterBrokerResponse = connection.request(
        ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=broker_id)
    )
    raise_for(response.error_code, f"broker {broker_id}", response.error_message)


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _raise_failures(results: Iterable[tuple[Position, int, str | None]]) -> None:
    failures = [
        response_error(code, f"{name}-{index}", message)
        for (name, index), code, message in results
        if code != ErrorCode.NONE
    ]
    raise_all(failures)
