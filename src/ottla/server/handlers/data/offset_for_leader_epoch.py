"""OffsetForLeaderEpoch (23): versions 2 to 4. End offset of an epoch, for truncation detection."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.data.context import DataContext
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division


def handle(
    context: DataContext, request: Request, message: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Answer each partition separately."""
    context.check_partition_count(sum([len(topic.partitions) for topic in message.topics]))
    topics = []
    for topic in message.topics:
        answers = []
        for asked in topic.partitions:
            try:
                answers.append(_find(context, topic.topic, asked))
            except KafkaError as error:
                answers.append(_failed(asked, error.code))
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)


def _find(context: DataContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = context.replicas.find(topic, asked.partition)
    partition.check_leader(asked.current_leader_epoch)
    found = partition.epoch_end_offset(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=found.leader_epoch, end_offset=found.end_offset)


def _failed(asked: OffsetForLeaderPartition, code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(partition=asked.partition, error_code=code, leader_epoch=-1, end_offset=-1)


def error_response(message: OffsetForLeaderEpochRequest, code: ErrorCode, text: str) -> OffsetForLeaderEpochResponse:
    """The error for every partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_failed(asked, code) for asked in topic.partitions]
            )
            for topic in message.topics
        ]
    )


def guard(context: DataContext, request: Request, message: OffsetForLeaderEpochRequest) -> object | None:
    """Permitted to brokers; to clients with DESCRIBE on the topic (KIP-320)."""
    if request.allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, audit=False):
        return None
    return guard_items(
        request,
        message,
        Items("topics", "topics", error_response),
        lambda topic: request.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic),
    )


OFFSET_FOR_LEADER_EPOCH = SchemaApi(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    handle,
    error_response,
    guard=guard,
    item_needs=(
        RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
).divided(Division(("topics",), "topics", items=256, inner=(("partitions", "partitions"),)))
