"""Reassignments and elections of leaders: requests, and the service `Cluster.reassignments`.

See `client.admin.topics`. Errors of partitions are combined into one KafkaError.

Left out: plans (`client.admin.reassignment_plan`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.client.admin.router import ClusterService, request_timeout_s
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_all, raise_for, response_error
from ottla.client.wire.model import OngoingReassignment
from ottla.common.errors import ErrorCode
from ottla.common.kafka.topic_partition import TopicPartition, by_topic
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, ElectLeadersTopic
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.protocol.registry import ApiKey

PREFERRED, UNCLEAN = 0, 1
_NO_ELECTION_NEEDED = frozenset({ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED})


def elect_leaders(
    connection: Connection, positions: Sequence[TopicPartition] | None, election: int, timeout_ms: int
) -> list[TopicPartition]:
    """ElectLeaders for some partitions (None: all); returns those with a new leader.

    Raises KafkaError that lists each failed election.
    """
    topics = None
    if positions is not None:
        topics = [ElectLeadersTopic(topic=name, partitions=indexes) for name, indexes in by_topic(positions).items()]
    request = ElectLeadersRequest(election_type=election, topic_partitions=topics, timeout_ms=timeout_ms)
    response: ElectLeadersResponse = connection.request(
        ApiKey.ELECT_LEADERS, request, timeout_s=request_timeout_s(timeout_ms)
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
    connection: Connection, targets: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int
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
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, timeout_s=request_timeout_s(timeout_ms)
    )
    raise_for(response.error_code, "the reassignment", response.error_message)
    _raise_failures(
        ((topic.name, item.partition_index), item.error_code, item.error_message)
        for topic in response.responses
        for item in topic.partitions
    )


def list_reassignments(connection: Connection, timeout_ms: int) -> dict[TopicPartition, OngoingReassignment]:
    """ListPartitionReassignments: all ongoing reassignments."""
    request = ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None)
    response: ListPartitionReassignmentsResponse = connection.request(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, request, timeout_s=request_timeout_s(timeout_ms)
    )
    raise_for(response.error_code, "the reassignments", response.error_message)
    return {
        (topic.name, item.partition_index): OngoingReassignment(
            tuple(item.replicas), tuple(item.adding_replicas), tuple(item.removing_replicas)
        )
        for topic in response.topics
        for item in topic.partitions
    }


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _raise_failures(results: Iterable[tuple[TopicPartition, int, str | None]]) -> None:
    failures = [
        response_error(code, f"{name}-{index}", message)
        for (name, index), code, message in results
        if code != ErrorCode.NONE
    ]
    raise_all(failures)


class ReassignmentService(ClusterService):
    """Reassignments of partitions, and elections of their leaders."""

    def all(self) -> dict[TopicPartition, OngoingReassignment]:
        """All ongoing reassignments."""
        timeout_ms = self._router.timeout_ms()
        return self._router.retry(lambda: list_reassignments(self._router.any_connection(), timeout_ms))

    def alter(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Start reassignments, or cancel those with the target None. Raises KafkaError that lists each rejected one."""
        timeout_ms = self._router.timeout_ms()
        self._router.change(lambda connection: alter_reassignments(connection, targets, timeout_ms))

    def elect_leaders(
        self, positions: Sequence[TopicPartition] | None, *, unclean: bool = False
    ) -> list[TopicPartition]:
        """Elect the preferred leaders of partitions (None: all), or with `unclean` any live replica.

        Returns the partitions with a new leader. Raises KafkaError that lists each failed election.
        """
        timeout_ms = self._router.timeout_ms()
        election = UNCLEAN if unclean else PREFERRED
        elected: list[TopicPartition] = []
        self._router.change(
            lambda connection: elected.extend(elect_leaders(connection, positions, election, timeout_ms))
        )
        return elected
