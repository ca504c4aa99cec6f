"""DescribeTopicPartitions (75): version 0 (KIP-966). Topics in pages of partitions, with eligible leader replicas.

Topics are listed by name; the cursor names the first partition of the next page. No topic is created here.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.kafka.internal_topics import INTERNAL_TOPICS
from ottla.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from ottla.metadata.topic_names import unknown_name
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Steps


def handle(context: AdminContext, request: Request, message: DescribeTopicPartitionsRequest) -> Steps:
    """One page from the cursor; the broker's `max.request.partition.size.limit` bounds it too."""
    cursor = message.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "DescribeTopicPartitionsRequest cursor partition must be valid.")
    limit = context.config.get_int("max.request.partition.size.limit")
    limit = max(1, min(limit, message.response_partition_limit))
    ask_all = not message.topics
    image = context.metadata.image
    names = sorted(image.topics if ask_all else {topic.name for topic in message.topics})
    asked, names = names, []
    refused: list[str] = []
    for name in asked:
        allowed = request.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name, audit=not ask_all)
        (names if allowed else refused).append(name)
        yield None
    if cursor is not None and not ask_all and cursor.topic_name not in (*names, *refused):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "DescribeTopicPartitionsRequest topic list should contain the cursor topic."
        )
    response = DescribeTopicPartitionsResponse()
    for name in names:
        yield None
        first = 0
        if cursor is not None:
            if name < cursor.topic_name:
                continue
            if name == cursor.topic_name:
                first = cursor.partition_index
        if limit <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        taken, following = _append_topic(image, request, response, name, first, limit)
        limit -= taken
        if following is not None:
            response.next_cursor = Cursor(topic_name=name, partition_index=following)
            break
    if not ask_all:
        response.topics += [
            DescribeTopicPartitionsResponseTopic(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            for name in refused
        ]
    return response


def _append_topic(
    image: MetadataImage,
    request: Request,
    response: DescribeTopicPartitionsResponse,
    name: str,
    first: int,
    limit: int,
) -> tuple[int, int | None]:
    """Add a topic from partition `first`; returns the number of added partitions and the next one."""
    topic = image.topic(name)
    operations = request.authorized_operations(ResourceType.TOPIC, name)
    if topic is None:
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name, error_code=unknown_name(name).code, topic_authorized_operations=operations
            )
        )
        return 0, None
    indexes = [index for index in topic.partitions if index >= first]
    response.topics.append(
        DescribeTopicPartitionsResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=operations,
            partitions=[_partition(image, index, topic.partitions[index]) for index in indexes[:limit]],
        )
    )
    following = indexes[limit] if len(indexes) > limit else None
    return min(len(indexes), limit), following


def _partition(image: MetadataImage, index: int, partition: PartitionImage) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=image.offline_replicas(partition),
    )


def error_response(
    message: DescribeTopicPartitionsRequest, code: ErrorCode, text: str
) -> DescribeTopicPartitionsResponse:
    """The error for every named topic."""
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=code) for topic in message.topics]
    )


DESCRIBE_TOPIC_PARTITIONS = SchemaApi(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    handle,
    error_response,
    item_needs=(RequiredPermission(AclOperation.DESCRIBE, ResourceType.TOPIC),),
)
