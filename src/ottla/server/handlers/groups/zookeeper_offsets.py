"""OffsetCommit 0 and OffsetFetch 0 in a cluster on ZooKeeper, which stores the offsets of these versions.

As in Apache Kafka up to 3.9 every broker answers them, for partitions that exist; metadata of a commit is checked for
its size and dropped. Unlike Kafka, a negative offset is refused, since it could not be read back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ottla.common.errors import ErrorCode, InvariantError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.requests.api import ApiBinding, SchemaApi
from ottla.server.requests.request import Request
from ottla.zookeeper.offsets import ConsumerOffsets

NO_OFFSET = -1


class ZooKeeperOffsetsCall(Protocol):
    """Answers version 0 of a request.

    Implementations: `server.handlers.groups.zookeeper_offsets.commit_offsets` and
    `server.handlers.groups.zookeeper_offsets.fetch_offsets`.
    """

    def __call__(self, context: GroupContext, offsets: ConsumerOffsets, request: Request, message: Any, /) -> None:
        """Answer the request, now or later."""


def with_zookeeper_offsets(served: Iterable[ApiBinding], offsets: ConsumerOffsets) -> list[ApiBinding]:
    """A broker's APIs, version 0 of OffsetCommit and OffsetFetch with the offsets in ZooKeeper."""
    calls: dict[ApiKey, ZooKeeperOffsetsCall] = {
        ApiKey.OFFSET_COMMIT: commit_offsets,
        ApiKey.OFFSET_FETCH: fetch_offsets,
    }
    return [
        each if (call := calls.get(each.row.key)) is None else _with_version_0(each, call, offsets) for each in served
    ]


def _with_version_0(served: ApiBinding, call: ZooKeeperOffsetsCall, offsets: ConsumerOffsets) -> ApiBinding:
    api = served.row.api
    if not isinstance(api, SchemaApi):
        raise InvariantError(f"{api.key.name} has a codec of its own")

    def handle(context: GroupContext, request: Request, message: Any) -> object | None:
        if request.api_version > 0:
            return api.handle(context, request, message)
        call(context, offsets, request, message)
        return None

    changed = copy.copy(api)
    changed.handle = handle
    return ApiBinding(served.row.changed(changed), served.context)


def commit_offsets(
    context: GroupContext, offsets: ConsumerOffsets, request: Request, message: OffsetCommitRequest
) -> None:
    """Commit each partition separately; answers when all offsets are written."""
    max_metadata = context.config.get_int("offset.metadata.max.bytes")

    def refusal(topic: str, partition: OffsetCommitRequestPartition) -> ErrorCode:
        if not _exists(context, topic, partition.partition_index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(partition.committed_metadata or "") > max_metadata:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.OFFSET_OUT_OF_RANGE if partition.committed_offset < 0 else ErrorCode.NONE

    rows = [(topic.name, each, refusal(topic.name, each)) for topic in message.topics for each in topic.partitions]
    accepted = {
        (topic, each.partition_index): each.committed_offset
        for topic, each, refused in rows
        if refused is ErrorCode.NONE
    }

    def written(codes: Mapping[TopicPartition, ErrorCode]) -> None:
        answers = iter(rows)
        request.answer_with(
            OffsetCommitResponse(
                topics=[
                    OffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=[
                            OffsetCommitResponsePartition(
                                partition_index=each.partition_index,
                                error_code=next(answers)[2] or codes[topic.name, each.partition_index],
                            )
                            for each in topic.partitions
                        ],
                    )
                    for topic in message.topics
                ]
            )
        )

    offsets.commit(message.group_id, accepted, written)


def fetch_offsets(
    context: GroupContext, offsets: ConsumerOffsets, request: Request, message: OffsetFetchRequest
) -> None:
    """Fetch each partition separately; answers when all offsets are read."""
    asked = [(topic.name, number) for topic in message.topics or () for number in topic.partition_indexes]

    def answer(found: int | ErrorCode, number: int) -> OffsetFetchResponsePartition:
        offset, code = (NO_OFFSET, found) if isinstance(found, ErrorCode) else (found, ErrorCode.NONE)
        return OffsetFetchResponsePartition(
            partition_index=number, committed_offset=offset, metadata="", error_code=code
        )

    def read(found: Mapping[TopicPartition, int | ErrorCode]) -> None:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        request.answer_with(
            OffsetFetchResponse(
                topics=[
                    OffsetFetchResponseTopic(
                        name=topic.name,
                        partitions=[
                            answer(found.get((topic.name, number), unknown), number)
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in message.topics or ()
                ]
            )
        )

    offsets.fetch(message.group_id, (key for key in asked if _exists(context, *key)), read)


def _exists(context: GroupContext, topic: str, partition: int) -> bool:
    found = context.metadata.image.topics.get(topic)
    return found is not None and partition in found.partitions
