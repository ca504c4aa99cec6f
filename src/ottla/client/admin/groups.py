"""Groups and their offsets: requests, and the service `Cluster.groups`.

See `client.admin.topics`. All requests except `list_groups` must be sent to the coordinator of the group. Offsets are
sent with topic names: versions with topic ids only (OffsetCommit and OffsetFetch from 10) are not needed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ottla.client.admin.coordinators import CoordinatorType, coordinator_of, coordinators_of
from ottla.client.admin.router import NO_COORDINATOR_ERRORS, ClusterService
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for, response_error
from ottla.client.wire.model import BrokerInfo, CommittedOffset, GroupDescription, GroupListing, GroupMember
from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.acl import operations_of
from ottla.common.kafka.topic_partition import TopicPartition, by_topic
from ottla.protocol.codec import read_message
from ottla.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.protocol.registry import ApiKey

LAST_DESCRIBE_MISSING_GROUPS = 5
"""Last version of DescribeGroups in which a missing group is not an error."""
FIRST_OF_SEVERAL_GROUPS = 8
"""First version of OffsetFetch with several groups (KIP-709)."""
GROUPS_AT_ONCE = 100
"""Groups of one OffsetFetch request, whose response takes the broker some milliseconds."""
NAMED_TOPICS_VERSION = 9
"""Last version of OffsetCommit and OffsetFetch with topic names."""
CONSUMER_PROTOCOL_TYPE = "consumer"
ASSIGNMENT_HEADER_BYTES = 2
MAX_ASSIGNMENT_VERSION = 3
DEAD = "Dead"
OTHER_TYPE_TEXT = "is not a classic group."
"""End of the brokers' message for a group of another type."""
MEMBER_TYPES = {0: "classic", 1: "consumer"}


def group_not_found(group_id: str, *, kind: str = "group") -> KafkaError:
    """The error for a group that does not exist."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id!r} does not exist")


def list_groups(connection: Connection, states: Sequence[str], types: Sequence[str]) -> list[GroupListing]:
    """The groups that this broker coordinates. Raises KafkaError UNSUPPORTED_VERSION for an unsupported filter."""
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    response: ListGroupsResponse = connection.request(ApiKey.LIST_GROUPS, request)
    raise_for(response.error_code, f"groups of {connection.address}")
    return [
        GroupListing(group.group_id, group.protocol_type, group.group_state or None, group.group_type or None)
        for group in response.groups
    ]


def describe_group(connection: Connection, group_id: str, coordinator: BrokerInfo) -> GroupDescription:
    """State and members of a group of either protocol. Raises KafkaError GROUP_ID_NOT_FOUND."""
    try:
        return _describe_consumer_group(connection, group_id, coordinator)
    except KafkaError as error:
        # This API does not cover classic groups (KIP-848); older brokers lack it.
        if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            raise
    return _describe_classic_group(connection, group_id, coordinator)


def _describe_consumer_group(connection: Connection, group_id: str, coordinator: BrokerInfo) -> GroupDescription:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    response: ConsumerGroupDescribeResponse = connection.request(ApiKey.CONSUMER_GROUP_DESCRIBE, request)
    for group in response.groups:
        raise_for(group.error_code, f"group {group_id!r}", group.error_message)
        members = tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=host_of(member.client_host),
                protocol=MEMBER_TYPES.get(member.member_type, CONSUMER_PROTOCOL_TYPE),
                member_epoch=member.member_epoch,
                assignment=_assignment(member.assignment),
                target_assignment=_assignment(member.target_assignment),
            )
            for member in group.members
        )
        return GroupDescription(
            group_id=group_id,
            group_type="consumer",
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            state=group.group_state,
            assignor=group.assignor_name or None,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            coordinator=coordinator,
            members=members,
        )
    raise group_not_found(group_id)


def authorized_operations(connection: Connection, group_id: str) -> frozenset[int]:
    """Operations that this user may perform on a group, which need not exist (KIP-430); empty if the broker omits them.

    Raises KafkaError GROUP_AUTHORIZATION_FAILED.
    """
    request = DescribeGroupsRequest(groups=[group_id], include_authorized_operations=True)
    response: DescribeGroupsResponse = connection.request(
        ApiKey.DESCRIBE_GROUPS, request, max_version=LAST_DESCRIBE_MISSING_GROUPS
    )
    (group,) = response.groups
    raise_for(group.error_code, f"group {group_id!r}")
    return operations_of(group.authorized_operations)


def _assignment(assignment: Assignment) -> dict[str, tuple[int, ...]]:
    return {
        topic.topic_name: tuple(sorted(topic.partitions))
        for topic in sorted(assignment.topic_partitions, key=lambda topic: topic.topic_name)
    }


def _describe_classic_group(connection: Connection, group_id: str, coordinator: BrokerInfo) -> GroupDescription:
    response: DescribeGroupsResponse = connection.request(
        ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group_id])
    )
    for group in response.groups:
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (not group.error_code and group.group_state == DEAD):
            if (group.error_message or "").endswith(OTHER_TYPE_TEXT):
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} is not a consumer group")
            raise group_not_found(group_id)
        raise_for(group.error_code, f"group {group_id!r}", group.error_message)
        of_consumers = group.protocol_type == CONSUMER_PROTOCOL_TYPE
        members = tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                host=host_of(member.client_host),
                protocol="classic",
                member_epoch=None,
                assignment=decode_assignment(member.member_assignment) if of_consumers else {},
                target_assignment=None,
            )
            for member in group.members
        )
        return GroupDescription(
            group_id=group_id,
            group_type="classic",
            protocol_type=group.protocol_type,
            state=group.group_state,
            assignor=group.protocol_data or None,
            group_epoch=None,
            assignment_epoch=None,
            coordinator=coordinator,
            members=members,
        )
    raise group_not_found(group_id)


def decode_assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """The assignment of a member of a classic consumer group; empty if it cannot be decoded.

    The bytes are defined by clients, and foreign clients may use another format.
    """
    if len(data) < ASSIGNMENT_HEADER_BYTES:
        return {}
    version = int.from_bytes(data[:ASSIGNMENT_HEADER_BYTES], "big", signed=True)
    if version < 0:
        return {}
    try:
        assignment, _ = read_message(
            ConsumerProtocolAssignment,
            min(version, MAX_ASSIGNMENT_VERSION),
            data,
            ASSIGNMENT_HEADER_BYTES,
            len(data),
        )
    except ProtocolError:
        return {}
    return {
        topic.topic: tuple(sorted(topic.partitions))
        for topic in sorted(assignment.assigned_partitions, key=lambda topic: topic.topic)
    }


def fetch_offsets(connection: Connection, group_id: str, *, stable: bool) -> dict[TopicPartition, CommittedOffset]:
    """All committed offsets of the group; empty if there are none, or no such group.

    `stable`: raises KafkaError UNSTABLE_OFFSET_COMMIT while a transaction may change an offset (KIP-447).
    """
    if connection.version_for(ApiKey.OFFSET_FETCH) >= FIRST_OF_SEVERAL_GROUPS:
        groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None)]
        request = OffsetFetchRequest(groups=groups, require_stable=stable)
    else:
        request = OffsetFetchRequest(group_id=group_id, topics=None, require_stable=stable)
    response: OffsetFetchResponse = connection.request(ApiKey.OFFSET_FETCH, request, max_version=NAMED_TOPICS_VERSION)
    found: Any = response
    if response.groups:
        found = response.groups[0]
    raise_for(found.error_code, f"offsets of group {group_id!r}")
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic in found.topics:
        for partition in topic.partitions:
            raise_for(partition.error_code, f"offset of group {group_id!r} in {topic.name}-{partition.partition_index}")
            if partition.committed_offset >= 0:
                offsets[topic.name, partition.partition_index] = CommittedOffset(
                    partition.committed_offset, partition.committed_leader_epoch, partition.metadata or ""
                )
    return dict(sorted(offsets.items()))


def fetch_offsets_of_groups(
    connection: Connection, group_ids: Sequence[str], topics: Mapping[str, Sequence[int]] | None
) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """Committed offsets of groups that this broker coordinates, in `topics` or in all.

    Omits groups and partitions that this user may not see. Raises KafkaError for any other failure of a group.
    """
    wanted = None
    if topics is not None:
        wanted = [OffsetFetchRequestTopics(name=name, partition_indexes=list(found)) for name, found in topics.items()]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=each, topics=wanted) for each in group_ids])
    response: OffsetFetchResponse = connection.request(ApiKey.OFFSET_FETCH, request, max_version=NAMED_TOPICS_VERSION)
    offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for group in response.groups:
        if group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            continue
        raise_for(group.error_code, f"offsets of group {group.group_id!r}")
        offsets[group.group_id] = {
            (topic.name, each.partition_index): CommittedOffset(
                each.committed_offset, each.committed_leader_epoch, each.metadata or ""
            )
            for topic in group.topics
            for each in topic.partitions
            if not each.error_code and each.committed_offset >= 0
        }
    return offsets


def commit_offsets(connection: Connection, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set offsets without being a member: rejected while the group has members. Raises the first failure."""
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offsets[topic, partition], committed_metadata=""
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in by_topic(offsets).items()
        ],
    )
    response: OffsetCommitResponse = connection.request(ApiKey.OFFSET_COMMIT, request, max_version=NAMED_TOPICS_VERSION)
    for topic in response.topics:
        for partition in topic.partitions:
            _raise_for_position(partition.error_code, group_id, topic.name, partition.partition_index)


def delete_offsets(connection: Connection, group_id: str, positions: Iterable[TopicPartition]) -> None:
    """Delete committed offsets. Raises the first failure, for example GROUP_SUBSCRIBED_TO_TOPIC."""
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=partition) for partition in partitions],
            )
            for topic, partitions in by_topic(positions).items()
        ],
    )
    response: OffsetDeleteResponse = connection.request(ApiKey.OFFSET_DELETE, request)
    if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise group_not_found(group_id)
    raise_for(response.error_code, f"group {group_id!r}")
    for topic in response.topics:
        for partition in topic.partitions:
            _raise_for_position(partition.error_code, group_id, topic.name, partition.partition_index)


def delete_group(connection: Connection, group_id: str) -> None:
    """Delete an empty group with its offsets. Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    response: DeleteGroupsResponse = connection.request(
        ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=[group_id])
    )
    for result in response.results:
        if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise group_not_found(group_id)
        if result.error_code == ErrorCode.NON_EMPTY_GROUP:
            raise response_error(result.error_code, f"group {group_id!r}", "it still has members")
        raise_for(result.error_code, f"group {group_id!r}")


def _raise_for_position(code: int, group_id: str, topic: str, partition: int) -> None:
    subject = f"offset of group {group_id!r} in {topic}-{partition}"
    if code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        raise response_error(code, subject, "a member is subscribed to the topic")
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        raise response_error(code, subject, "the group has members; stop them first")
    raise_for(code, subject)


def host_of(client_host: str) -> str:
    """The host without the slash that Java brokers prepend."""
    return client_host.removeprefix("/")


class GroupService(ClusterService):
    """Groups and their committed offsets."""

    def find(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
        """All groups of the cluster, sorted by id; filters are Kafka's names of states and types."""
        return self._router.ask_brokers(
            lambda connection, _: list_groups(connection, states, types), lambda each: each.group_id
        )

    def describe(self, group_id: str) -> GroupDescription:
        """State and members of a group of either protocol. Raises KafkaError GROUP_ID_NOT_FOUND."""

        def attempt() -> GroupDescription:
            coordinator = coordinator_of(self._router, CoordinatorType.GROUP, group_id)
            return describe_group(self._router.connection(coordinator.node_id), group_id, coordinator)

        return self._router.retry(attempt)

    def offsets(self, group_id: str, *, stable: bool = False) -> dict[TopicPartition, CommittedOffset]:
        """All committed offsets of a group; empty for a group that does not exist.

        `stable`: wait for pending transactions that change an offset.
        """
        return self._router.retry(lambda: fetch_offsets(self._connection(group_id), group_id, stable=stable))

    def offsets_of(
        self, group_ids: Sequence[str], topics: Mapping[str, Sequence[int]] | None = None
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Committed offsets of several groups, in some partitions or in all, with few requests.

        Omits groups and partitions that this user may not see.
        """
        if not group_ids:
            return {}
        if self._router.retry(self._takes_one_group):
            return self._offsets_one_by_one(group_ids, topics)

        def attempt() -> dict[str, dict[TopicPartition, CommittedOffset]]:
            found: dict[str, dict[TopicPartition, CommittedOffset]] = {}
            for node_id, names in coordinators_of(self._router, CoordinatorType.GROUP, group_ids).items():
                for start in range(0, len(names), GROUPS_AT_ONCE):
                    some = names[start : start + GROUPS_AT_ONCE]
                    found |= fetch_offsets_of_groups(self._router.connection(node_id), some, topics)
            return found

        return self._router.retry(attempt)

    def _offsets_one_by_one(
        self, group_ids: Sequence[str], topics: Mapping[str, Sequence[int]] | None
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        found: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for group_id in group_ids:
            with suppress(KafkaError):
                found[group_id] = {
                    key: each
                    for key, each in self.offsets(group_id).items()
                    if topics is None or key[1] in topics.get(key[0], ())
                }
        return found

    def _takes_one_group(self) -> bool:
        """True for a cluster before Kafka 3.0."""
        return self._router.any_connection().version_for(ApiKey.OFFSET_FETCH) < FIRST_OF_SEVERAL_GROUPS

    def operations(self, group_id: str) -> frozenset[int]:
        """Operations that this user may perform on a group, as ACL numbers. Raises KafkaError
        GROUP_AUTHORIZATION_FAILED."""
        return self._router.retry(lambda: authorized_operations(self._connection(group_id), group_id))

    def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set offsets of a group without members; a missing group is created. Safe to repeat.

        Raises KafkaError UNKNOWN_MEMBER_ID if the group has members.
        """
        self._router.retry(lambda: commit_offsets(self._connection(group_id), group_id, offsets))

    def delete_offsets(self, group_id: str, positions: Iterable[TopicPartition]) -> None:
        """Delete committed offsets. Raises KafkaError GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC."""
        doomed = list(positions)
        self._router.retry(lambda: delete_offsets(self._connection(group_id), group_id, doomed))

    def delete(self, group_id: str) -> None:
        """Delete a group and its offsets. Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        self._router.retry(
            lambda: delete_group(self._router.retry(lambda: self._connection(group_id)), group_id),
            NO_COORDINATOR_ERRORS,
        )

    def _connection(self, group_id: str) -> Connection:
        return self._router.connection(coordinator_of(self._router, CoordinatorType.GROUP, group_id).node_id)
