"""DescribeProducers (61): version 0. Active producers of a partition, with their last batches (KIP-664)."""

from __future__ import annotations

from collections.abc import Generator

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.metadata.topic_names import unknown_name
from ottla.protocol.messages.describe_producers import (
    ActiveProducer,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.data.context import DataContext
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Steps

PRODUCERS_PER_STEP = 256


def handle(context: DataContext, request: Request, message: DescribeProducersRequest) -> Steps:
    """Answer each partition separately; a repeated one is refused, since its response may be large."""
    context.check_partition_count(sum(len(topic.partition_indexes) for topic in message.topics))
    response = DescribeProducersResponse()
    described: set[tuple[str, int]] = set()
    for topic in message.topics:
        yield None
        answers = []
        unknown = None if context.metadata.image.find(topic.name) is not None else unknown_name(topic.name)
        for index in topic.partition_indexes:
            if unknown is not None:
                answers.append(_refused(index, unknown.code, unknown.message))
            elif (topic.name, index) in described:
                answers.append(_refused(index, ErrorCode.INVALID_REQUEST))
            else:
                described.add((topic.name, index))
                try:
                    answers.append((yield from _describe(context, topic.name, index)))
                except KafkaError as error:
                    answers.append(_refused(index, error.code))
            yield None
        response.topics.append(DescribeProducersTopicResponse(name=topic.name, partitions=answers))
    return response


def _refused(index: int, code: ErrorCode, text: str | None = None) -> DescribeProducersPartition:
    return DescribeProducersPartition(partition_index=index, error_code=code, error_message=text)


def _describe(context: DataContext, name: str, index: int) -> Generator[None, None, DescribeProducersPartition]:
    """The producers known at the start, except those that expire before their step.

    Followers answer too: a hanging transaction may be open on one replica only, and `--broker-id` of the tools asks it.
    """
    partition = context.replicas.find(name, index)
    partition.check_leader(or_follower=True)
    answer = DescribeProducersPartition(partition_index=index)
    entries = partition.log.producers.entries()
    known = list(entries)
    for start in range(0, len(known), PRODUCERS_PER_STEP):
        answer.active_producers += [
            ActiveProducer(
                producer_id=producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
            for producer_id in known[start : start + PRODUCERS_PER_STEP]
            if (entry := entries.get(producer_id)) is not None
        ]
        yield
    return answer


def error_response(message: DescribeProducersRequest, code: ErrorCode, text: str) -> DescribeProducersResponse:
    """The error for every partition."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResponse(
                name=topic.name,
                partitions=[
                    DescribeProducersPartition(partition_index=index, error_code=code, error_message=text)
                    for index in topic.partition_indexes
                ],
            )
            for topic in message.topics
        ]
    )


def guard(context: DataContext, request: Request, message: DescribeProducersRequest) -> object | None:
    """READ on a topic permits listing its producers."""
    return guard_items(
        request,
        message,
        Items("topics", "topics", error_response),
        lambda topic: request.allowed(AclOperation.READ, ResourceType.TOPIC, topic.name),
    )


DESCRIBE_PRODUCERS = SchemaApi(
    ApiKey.DESCRIBE_PRODUCERS,
    handle,
    error_response,
    guard=guard,
    item_needs=(RequiredPermission(AclOperation.READ, ResourceType.TOPIC),),
)
