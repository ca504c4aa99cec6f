"""DeleteRecords (21): versions 0 to 2. Raises a partition's log start; -1 means up to the high watermark (KIP-107)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.request import Request

NO_WATERMARK = -1


def handle(context: BrokerContext, request: Request, message: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Answer each partition by itself, of one that is named twice the last mention; internal topics are refused."""
    context.check_partition_count(sum([len(topic.partitions) for topic in message.topics]))
    asked_offsets: dict[str, dict[int, int]] = {}
    for topic in message.topics:
        for asked in topic.partitions:
            asked_offsets.setdefault(topic.name, {})[asked.partition_index] = asked.offset
    topics = []
    for name, offsets in asked_offsets.items():
        answers = []
        for index, offset in offsets.items():
            low_watermark, code = NO_WATERMARK, ErrorCode.NONE
            try:
                if name in context.internal_topics:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                low_watermark = context.replicas.find(name, index).delete_records(offset)
            except KafkaError as error:
                request.count_error(error.code)
                code = error.code
            answers.append(
                DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=code)
            )
        topics.append(DeleteRecordsTopicResult(name=name, partitions=answers))
    return DeleteRecordsResponse(topics=topics)


def error_response(message: DeleteRecordsRequest, code: ErrorCode, text: str) -> DeleteRecordsResponse:
    """The same error for every partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=asked.partition_index, low_watermark=NO_WATERMARK, error_code=code
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


DELETE_RECORDS = DeclaredApi(ApiKey.DELETE_RECORDS, handle, error_response)
