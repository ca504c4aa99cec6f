"""ListOffsets (2): versions 1 to 11. Which offset a timestamp or one of the special timestamps stands for.

Version notes: 2 adds isolation, 4 leader epochs, 7 the maximum timestamp (-3), 8 earliest local (-4), 9 latest tiered
(-5), 10 a timeout, 11 earliest pending upload (-6). Right after an election the latest offset may not be known yet:
that is LEADER_NOT_AVAILABLE below version 5 and OFFSET_NOT_AVAILABLE from there on (KIP-207).
"""

from __future__ import annotations

from collections import Counter

from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.replica.offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    MAX_TIMESTAMP,
    find_offset,
)
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.request import Request

CONSUMER_REPLICA_ID = -1

_FIRST_VERSION_OF = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


def handle(context: BrokerContext, request: Request, message: ListOffsetsRequest) -> ListOffsetsResponse:
    """Answer each partition by itself and once; one that was named twice is INVALID_REQUEST, as in Kafka."""
    context.check_partition_count(sum([len(topic.partitions) for topic in message.topics]))
    times_asked = Counter(
        (topic.name, partition.partition_index) for topic in message.topics for partition in topic.partitions
    )
    topics: dict[str, ListOffsetsTopicResponse] = {}
    for topic in message.topics:
        for partition in topic.partitions:
            times = times_asked.pop((topic.name, partition.partition_index), None)
            if times is None:
                continue
            try:
                if times > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                answer = _find(context, request, message, topic.name, partition)
            except KafkaError as error:
                request.count_error(error.code)
                answer = _failed(partition, error.code, request.api_version)
            topics.setdefault(topic.name, ListOffsetsTopicResponse(name=topic.name)).partitions.append(answer)
    return ListOffsetsResponse(topics=list(topics.values()))


def _find(
    context: BrokerContext, request: Request, message: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    if asked.timestamp < 0 and request.api_version < _FIRST_VERSION_OF.get(asked.timestamp, 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if asked.timestamp < EARLIEST_PENDING_UPLOAD_TIMESTAMP:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition = context.replicas.find(topic, asked.partition_index)
    partition.check_leader(asked.current_leader_epoch)
    found = find_offset(
        partition,
        asked.timestamp,
        message.isolation_level,
        from_replica=message.replica_id != CONSUMER_REPLICA_ID,
    )
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        offset=found.offset,
        timestamp=found.timestamp,
        leader_epoch=found.leader_epoch,
    )


def _failed(asked: ListOffsetsPartition, code: ErrorCode, api_version: int) -> ListOffsetsPartitionResponse:
    if code == ErrorCode.OFFSET_NOT_AVAILABLE and api_version < 5:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=code, offset=-1, timestamp=-1, leader_epoch=-1
    )


def error_response(message: ListOffsetsRequest, code: ErrorCode, text: str) -> ListOffsetsResponse:
    """The same error for every partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[_failed(partition, code, 5) for partition in topic.partitions]
            )
            for topic in message.topics
        ]
    )


LIST_OFFSETS = DeclaredApi(ApiKey.LIST_OFFSETS, handle, error_response)
