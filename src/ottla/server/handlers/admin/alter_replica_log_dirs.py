"""AlterReplicaLogDirs (34): versions 1 and 2 (KIP-113).

Left out: the move itself. A replica that is in the directory already is fine, for any other the answer is
KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import posixpath

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi
from ottla.server.authorization import Need
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.request import Request


def handle(context: AdminContext, request: Request, message: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """Answer each partition by itself; where one is named for two directories the last of them counts."""
    wanted: dict[str, dict[int, str]] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
    context.check_partition_count(sum(len(paths) for paths in wanted.values()))
    response = AlterReplicaLogDirsResponse()
    for name, paths in wanted.items():
        results = [
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=_outcome(context, name, index, path))
            for index, path in paths.items()
        ]
        response.results.append(AlterReplicaLogDirTopicResult(topic_name=name, partitions=results))
    return response


def _outcome(context: AdminContext, name: str, index: int, path: str) -> ErrorCode:
    if path not in [each.path for each in context.logs.directories]:
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        partition = context.replicas.find(name, index)
    except KafkaError as error:
        return error.code if error.code is ErrorCode.KAFKA_STORAGE_ERROR else ErrorCode.REPLICA_NOT_AVAILABLE
    here = posixpath.dirname(partition.log.directory) == path
    return ErrorCode.NONE if here else ErrorCode.KAFKA_STORAGE_ERROR


def error_response(message: AlterReplicaLogDirsRequest, code: ErrorCode, text: str) -> AlterReplicaLogDirsResponse:
    """The same error for every partition."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for directory in message.dirs
            for topic in directory.topics
        ]
    )


ALTER_REPLICA_LOG_DIRS = DeclaredApi(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    handle,
    error_response,
    needs=Need(AclOperation.ALTER, ResourceType.CLUSTER),
)
