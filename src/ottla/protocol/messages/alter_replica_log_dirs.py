"""AlterReplicaLogDirs (key 34): move replicas of this broker to another of its directories (KIP-113)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, array, f, message, struct


@struct
class AlterReplicaLogDirTopic:
    name: str = f(STRING, "0+")
    partitions: list[int] = f(array(INT32), "0+")


@struct
class AlterReplicaLogDir:
    path: str = f(STRING, "0+")
    topics: list[AlterReplicaLogDirTopic] = f(array(AlterReplicaLogDirTopic), "0+")


@message("1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = f(array(AlterReplicaLogDir), "0+")


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = f(STRING, "0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = f(array(AlterReplicaLogDirPartitionResult), "0+")


@message("1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    results: list[AlterReplicaLogDirTopicResult] = f(array(AlterReplicaLogDirTopicResult), "0+")


SPEC = ApiSpec(ApiKey.ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse)
