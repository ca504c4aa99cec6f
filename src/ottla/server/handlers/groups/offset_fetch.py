"""OffsetFetch (9); from version 8 on for several groups at once (KIP-709). Committed offsets only; version 0 differs
if ZooKeeper stores the cluster (`zookeeper_offsets`)."""

from __future__ import annotations

from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import coordinated
from ottla.server.requests.authorization import RequiredPermission, split_allowed
from ottla.server.requests.guards import amend, topic_name
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division

NO_OFFSET = -1
_FIRST_VERSION_OF_GROUPS = 8


def error_response(message: OffsetFetchRequest, code: ErrorCode, text: str) -> OffsetFetchResponse:
    """The error at the place of the request's version: groups, the top, or every partition."""
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in message.topics or []
        ],
        groups=[OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in message.groups],
    )


def guard(context: GroupContext, request: Request, message: OffsetFetchRequest) -> OffsetFetchResponse | None:
    """Authorize each group separately, and its topics by DESCRIBE: named ones are refused, and if all were requested
    the others are omitted."""
    image = context.metadata.image

    def may_describe(topic: Any, *, audit: bool = True) -> bool:
        # Before version 8 there are only names, from 10 on only ids.
        name = topic_name(image, topic.name or bytes(getattr(topic, "topic_id", b"")))
        return name is None or request.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name, audit=audit)

    def answered(row: Any) -> None:
        """Filter one group, or a response that has only one."""
        if row.error_code:
            return
        row.topics = [topic for topic in row.topics if may_describe(topic, audit=False)]
        row.topics += refused_rows.get(getattr(row, "group_id", None), [])

    refused_rows: dict[str | None, list[Any]] = {}
    if request.api_version < _FIRST_VERSION_OF_GROUPS:
        if not request.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, message.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if message.topics is not None:
            message.topics, refused = split_allowed(message.topics, may_describe)
            refused_rows[None] = [
                _refused(OffsetFetchResponseTopic, OffsetFetchResponsePartition, each) for each in refused
            ]
        amend(request, answered)
        return None
    groups, denied = split_allowed(
        message.groups, lambda group: request.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
    )
    denied_rows = [
        OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for group in denied
    ]
    if not groups:
        return OffsetFetchResponse(groups=denied_rows)
    for group in groups:
        if group.topics is not None:
            group.topics, refused_topics = split_allowed(group.topics, may_describe)
            refused_rows[group.group_id] = [
                _refused(OffsetFetchResponseTopics, OffsetFetchResponsePartitions, each, topic_id=each.topic_id)
                for each in refused_topics
            ]
    message.groups = groups

    def all_answered(response: OffsetFetchResponse) -> None:
        for row in response.groups:
            answered(row)
        response.groups += denied_rows

    amend(request, all_answered)
    return None


def _refused(topic_row: Any, partition_row: Any, asked: Any, **topic_id: bytes) -> Any:
    """The row of a topic without DESCRIBE permission."""
    return topic_row(
        name=asked.name,
        partitions=[
            partition_row(
                partition_index=index,
                committed_offset=NO_OFFSET,
                metadata="",
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
            for index in asked.partition_indexes
        ],
        **topic_id,
    )


OFFSET_FETCH = coordinated(
    ApiKey.OFFSET_FETCH,
    GroupCoordinator.offset_fetch,
    error_response,
    guard=guard,
    item_needs=(
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.GROUP),
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
    divisions=(
        Division(("groups",), "groups", items=500, inner=(("topics", "topics"), ("partition_indexes", "partitions"))),
        Division(("topics",), "topics", items=500, inner=(("partition_indexes", "partitions"),)),
    ),
)
