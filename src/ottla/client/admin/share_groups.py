"""Share groups and their start offsets (KIP-932): requests, and the service `Cluster.share_groups`.

See `client.admin.topics`. All requests must be sent to the coordinator of the group. `Cluster.groups` lists and deletes
share groups as all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.client.admin.coordinators import CoordinatorType, coordinator_of, coordinators_of
from ottla.client.admin.groups import GROUPS_AT_ONCE, group_not_found, host_of
from ottla.client.admin.router import NO_COORDINATOR_ERRORS, ClusterService
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for, response_error
from ottla.client.wire.model import BrokerInfo, GroupDescription, GroupMember, ShareOffset
from ottla.common.errors import ErrorCode
from ottla.common.kafka.topic_partition import TopicPartition, by_topic
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.messages.share_group_describe import (
    Assignment,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ottla.protocol.registry import ApiKey

SHARE = "share"
"""Group type, and protocol type, of a share group."""


def describe_group(connection: Connection, group_id: str, coordinator: BrokerInfo) -> GroupDescription:
    """State and members of a share group. Raises KafkaError GROUP_ID_NOT_FOUND."""
    response: ShareGroupDescribeResponse = connection.request(
        ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest(group_ids=[group_id])
    )
    for group in response.groups:
        _raise_for_group(group.error_code, group_id, group.error_message)
        members = tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=None,
                client_id=member.client_id,
                host=host_of(member.client_host),
                protocol=SHARE,
                member_epoch=member.member_epoch,
                assignment=_assignment(member.assignment),
                target_assignment=None,
            )
            for member in group.members
        )
        return GroupDescription(
            group_id=group_id,
            group_type=SHARE,
            protocol_type=SHARE,
            state=group.group_state,
            assignor=group.assignor_name or None,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            coordinator=coordinator,
            members=members,
        )
    raise group_not_found(group_id)


def _assignment(assignment: Assignment) -> dict[str, tuple[int, ...]]:
    return {
        topic.topic_name: tuple(sorted(topic.partitions))
        for topic in sorted(assignment.topic_partitions, key=lambda topic: topic.topic_name)
    }


def fetch_offsets(connection: Connection, group_ids: Sequence[str]) -> dict[str, dict[TopicPartition, ShareOffset]]:
    """Start offsets of share groups that this broker coordinates; empty for a group that does not exist."""
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=each, topics=None) for each in group_ids]
    )
    response: DescribeShareGroupOffsetsResponse = connection.request(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request)
    found: dict[str, dict[TopicPartition, ShareOffset]] = {}
    for group in response.groups:
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            found[group.group_id] = {}
            continue
        raise_for(group.error_code, f"offsets of share group {group.group_id!r}", group.error_message)
        offsets: dict[TopicPartition, ShareOffset] = {}
        for topic in group.topics:
            for each in topic.partitions:
                _raise_for_position(
                    each.error_code, group.group_id, topic.topic_name, each.partition_index, each.error_message
                )
                if each.start_offset >= 0:
                    lag = each.lag if each.lag >= 0 else None
                    offsets[topic.topic_name, each.partition_index] = ShareOffset(each.start_offset, lag)
        found[group.group_id] = dict(sorted(offsets.items()))
    return found


def alter_offsets(connection: Connection, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set start offsets: rejected while the group has members. Raises the first failure."""
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=partition, start_offset=offsets[topic, partition]
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in by_topic(offsets).items()
        ],
    )
    response: AlterShareGroupOffsetsResponse = connection.request(ApiKey.ALTER_SHARE_GROUP_OFFSETS, request)
    _raise_for_group(response.error_code, group_id, response.error_message)
    for topic in response.responses:
        for each in topic.partitions:
            _raise_for_position(each.error_code, group_id, topic.topic_name, each.partition_index, each.error_message)


def delete_offsets(connection: Connection, group_id: str, topics: Iterable[str]) -> None:
    """Delete the state of topics: rejected while the group has members. Raises the first failure."""
    request = DeleteShareGroupOffsetsRequest(
        group_id=group_id, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
    )
    response: DeleteShareGroupOffsetsResponse = connection.request(ApiKey.DELETE_SHARE_GROUP_OFFSETS, request)
    _raise_for_group(response.error_code, group_id, response.error_message)
    for topic in response.responses:
        subject = f"offsets of share group {group_id!r} in {topic.topic_name}"
        raise_for(topic.error_code, subject, topic.error_message)


def _raise_for_group(code: int, group_id: str, message: str | None) -> None:
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise group_not_found(group_id, kind="share group")
    if code == ErrorCode.NON_EMPTY_GROUP:
        raise response_error(code, f"share group {group_id!r}", "it has members; stop them first")
    raise_for(code, f"share group {group_id!r}", message)


def _raise_for_position(code: int, group_id: str, topic: str, partition: int, message: str | None) -> None:
    raise_for(code, f"offset of share group {group_id!r} in {topic}-{partition}", message)


class ShareGroupAdminService(ClusterService):
    """Share groups and their start offsets."""

    def describe(self, group_id: str) -> GroupDescription:
        """State and members of a share group. Raises KafkaError GROUP_ID_NOT_FOUND."""

        def attempt() -> GroupDescription:
            coordinator = coordinator_of(self._router, CoordinatorType.GROUP, group_id)
            return describe_group(self._router.connection(coordinator.node_id), group_id, coordinator)

        return self._router.retry(attempt)

    def offsets(self, group_id: str) -> dict[TopicPartition, ShareOffset]:
        """Start offset and lag of each partition that the group has read; empty for a group that does not exist."""
        return self._router.retry(lambda: fetch_offsets(self._connection(group_id), [group_id])[group_id])

    def offsets_of(self, group_ids: Sequence[str]) -> dict[str, dict[TopicPartition, ShareOffset]]:
        """The same for several groups with few requests; omits groups that this user may not see."""

        def attempt() -> dict[str, dict[TopicPartition, ShareOffset]]:
            found: dict[str, dict[TopicPartition, ShareOffset]] = {}
            for node_id, names in coordinators_of(self._router, CoordinatorType.GROUP, group_ids).items():
                for start in range(0, len(names), GROUPS_AT_ONCE):
                    some = names[start : start + GROUPS_AT_ONCE]
                    found |= fetch_offsets(self._router.connection(node_id), some)
            return found

        return self._router.retry(attempt) if group_ids else {}

    def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set start offsets of a share group without members. Safe to repeat.

        Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        self._router.retry(lambda: alter_offsets(self._connection(group_id), group_id, offsets))

    def delete_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Delete the state of topics. Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        names = list(topics)
        self._router.retry(
            lambda: delete_offsets(self._router.retry(lambda: self._connection(group_id)), group_id, names),
            NO_COORDINATOR_ERRORS,
        )

    def _connection(self, group_id: str) -> Connection:
        return self._router.connection(coordinator_of(self._router, CoordinatorType.GROUP, group_id).node_id)
