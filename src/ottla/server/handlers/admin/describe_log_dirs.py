"""DescribeLogDirs (35): versions 1 to 5. The sizes of the logs and of the disk under them (KIP-113, KIP-827)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.replica.partition import Partition
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Steps
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.log.log import Log

UNKNOWN_SIZE = -1
PARTITIONS_PER_STEP = 64


def handle(context: AdminContext, request: Request, message: DescribeLogDirsRequest) -> Steps:
    """Describe every log directory, with the requested topics or all of them; a failed one by its error."""
    wanted: dict[str, frozenset[int]] | None = None
    if message.topics is not None:
        wanted = {topic.topic: frozenset(topic.partitions) for topic in message.topics}
    topics: dict[str, dict[str, DescribeLogDirsTopic]] = {each.path: {} for each in context.logs.directories}
    for number, partition in enumerate(_partitions(context, wanted), 1):
        if partition is not None:
            _add(topics, partition, partition.log)
        if number % PARTITIONS_PER_STEP == 0:
            yield None
    for partition, log in context.replicas.moves.copies():
        if wanted is None or partition.index in wanted.get(partition.topic, ()):
            _add(topics, partition, log)
    return DescribeLogDirsResponse(
        results=[_described(context, each, list(topics[each.path].values())) for each in context.logs.directories]
    )


def _partitions(context: AdminContext, wanted: Mapping[str, frozenset[int]] | None) -> Iterator[Partition | None]:
    """All partitions of the start, or the requested ones; None for one that this broker does not have."""
    if wanted is None:
        yield from list(context.replicas.partitions())
        return
    for topic, indexes in wanted.items():
        for index in sorted(indexes):
            try:
                yield context.replicas.find(topic, index)
            except KafkaError:
                yield None


def _add(topics: Mapping[str, dict[str, DescribeLogDirsTopic]], partition: Partition, log: Log) -> None:
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
        if directory.health.is_full and code is ErrorCode.NONE:
            usable_bytes = 0  # too little for a write, or a quota is used up that the file system does not report
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
