"""DescribeLogDirs (35): versions 1 to 5. The sizes of the logs and of the disk under them (KIP-113, KIP-827)."""

from __future__ import annotations

import posixpath
from itertools import chain

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request
from ottla.storage.directory.log_directory import LogDirectory

UNKNOWN_SIZE = -1


def handle(context: AdminContext, request: Request, message: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe every log directory, with the requested topics or all of them; a failed one by its error."""
    wanted: dict[str, frozenset[int]] | None = None
    if message.topics is not None:
        wanted = {topic.topic: frozenset(topic.partitions) for topic in message.topics}
    topics: dict[str, dict[str, DescribeLogDirsTopic]] = {each.path: {} for each in context.logs.directories}
    logs = [(partition, partition.log) for partition in context.replicas.partitions()]
    for partition, log in chain(logs, context.replicas.moves.copies()):
        if wanted is not None and partition.index not in wanted.get(partition.topic, ()):
            continue
        here = topics[posixpath.dirname(log.directory)]
        topic = here.setdefault(partition.topic, DescribeLogDirsTopic(name=partition.topic))
        is_copy = log is not partition.log
        end = partition.log.log_end_offset if is_copy else partition.high_watermark
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=partition.index,
                partition_size=log.size_bytes,
                offset_lag=max(0, end - log.log_end_offset),
                is_future_key=is_copy,
            )
        )
    return DescribeLogDirsResponse(
        results=[_described(context, each, list(topics[each.path].values())) for each in context.logs.directories]
    )


def _described(
    context: AdminContext, directory: LogDirectory, topics: list[DescribeLogDirsTopic]
) -> DescribeLogDirsResult:
    """Describe one directory; one that can't be used has an error, with its readable data."""
    total_bytes = usable_bytes = UNKNOWN_SIZE
    code = ErrorCode.NONE if directory.health.is_served else ErrorCode.KAFKA_STORAGE_ERROR
    if directory.health.is_served:
        try:
            total_bytes, usable_bytes = context.disk.usage(directory.path)
        except OSError as error:
            context.failures.warn("DescribeLogDirs", f"{directory.path}: {error}")
            code = ErrorCode.KAFKA_STORAGE_ERROR
    return DescribeLogDirsResult(
        error_code=code,
        log_dir=directory.path,
        topics=topics,
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=directory.is_cordoned,
    )


DESCRIBE_LOG_DIRS = SchemaApi(
    ApiKey.DESCRIBE_LOG_DIRS,
    handle,
    bare_error(DescribeLogDirsResponse),
    needs=RequiredPermission(AclOperation.DESCRIBE, ResourceType.CLUSTER),
)
