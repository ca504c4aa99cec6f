"""AlterReplicaLogDirs (34): versions 1 and 2 (KIP-113).

A replica that is not on this broker yet gets an error, and the directory is remembered for its creation.

Not here: the move itself (`replica.moves`).
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Steps
from ottla.storage.files.names import has_future_dir


def handle(context: AdminContext, request: Request, message: AlterReplicaLogDirsRequest) -> Steps:
    """Answer each partition separately; if one is named for two directories the last one applies."""
    wanted: dict[str, dict[int, str]] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
            yield None
    context.check_partition_count(sum(len(paths) for paths in wanted.values()))
    response = AlterReplicaLogDirsResponse()
    for name, paths in wanted.items():
        result = AlterReplicaLogDirTopicResult(topic_name=name)
        response.results.append(result)
        yield None
        for index, path in paths.items():
            code = _outcome(context, name, index, path)
            result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
            yield None
    return response


def _outcome(context: AdminContext, name: str, index: int, path: str) -> ErrorCode:
    if not has_future_dir(name, index):
        return ErrorCode.INVALID_TOPIC_EXCEPTION  # the name would not be valid for the copy's directory
    directory = next((each for each in context.logs.directories if each.path == path), None)
    if directory is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if directory.health.offline is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if directory.is_cordoned:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    try:
        partition = context.replicas.find(name, index)
        if partition.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        context.replicas.moves.begin(partition, directory)
    except KafkaError as error:
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            context.failures.warn("AlterReplicaLogDirs", error.message)
            return error.code
        context.logs.futures.set_target_dir((name, index), path)
        is_known = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_known else error.code
    return ErrorCode.NONE


def error_response(message: AlterReplicaLogDirsRequest, code: ErrorCode, text: str) -> AlterReplicaLogDirsResponse:
    """The error for every partition."""
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


ALTER_REPLICA_LOG_DIRS = SchemaApi(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    handle,
    error_response,
    needs=RequiredPermission(AclOperation.ALTER, ResourceType.CLUSTER),
)
