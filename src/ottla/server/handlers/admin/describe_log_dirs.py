"""DescribeLogDirs (35): versions 1 to 5. The sizes of the logs and of the disk under them (KIP-113, KIP-827)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, bare_error
from ottla.server.authorization import Need
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.request import Request

UNKNOWN_SIZE = -1


def handle(context: AdminContext, request: Request, message: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe the one log directory, with the topics asked for or all of them."""
    wanted: dict[str, frozenset[int]] | None = None
    if message.topics is not None:
        wanted = {topic.topic: frozenset(topic.partitions) for topic in message.topics}
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in context.replicas.partitions():
        if wanted is not None and partition.index not in wanted.get(partition.topic, ()):
            continue
        topic = topics.setdefault(partition.topic, DescribeLogDirsTopic(name=partition.topic))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=partition.index,
                partition_size=partition.log.size_bytes,
                offset_lag=max(0, partition.high_watermark - partition.log.log_end_offset),
            )
        )
    total_bytes = usable_bytes = UNKNOWN_SIZE
    code = ErrorCode.NONE
    try:
        total_bytes, usable_bytes = context.disk.usage(context.config.log_dir)
    except OSError as error:
        context.failures.complain("DescribeLogDirs", f"{context.config.log_dir}: {error}")
        code = ErrorCode.KAFKA_STORAGE_ERROR
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                error_code=code,
                log_dir=context.config.log_dir,
                topics=list(topics.values()),
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        ]
    )


DESCRIBE_LOG_DIRS = DeclaredApi(
    ApiKey.DESCRIBE_LOG_DIRS,
    handle,
    bare_error(DescribeLogDirsResponse),
    needs=Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),
)
