"""AssignReplicasToDirs (key 73): a broker reports the directories of its replicas to the controller (KIP-858).

Flexible from the start.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, UUID, array, f, message, struct


@struct
class AssignedPartition:
    partition_index: int = f(INT32, "0+")


@struct
class AssignedTopic:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[AssignedPartition] = f(array(AssignedPartition), "0+")


@struct
class AssignedDirectory:
    id: bytes = f(UUID, "0+")
    topics: list[AssignedTopic] = f(array(AssignedTopic), "0+")


@message("0", flexible="0+")
class AssignReplicasToDirsRequest:
    broker_id: int = f(INT32, "0+")
    broker_epoch: int = f(INT64, "0+", default=-1)
    directories: list[AssignedDirectory] = f(array(AssignedDirectory), "0+")


@struct
class PartitionAssignmentResult:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")


@struct
class TopicAssignmentResult:
    topic_id: bytes = f(UUID, "0+")
    partitions: list[PartitionAssignmentResult] = f(array(PartitionAssignmentResult), "0+")


@struct
class DirectoryAssignmentResult:
    id: bytes = f(UUID, "0+")
    topics: list[TopicAssignmentResult] = f(array(TopicAssignmentResult), "0+")


@message("0", flexible="0+")
class AssignReplicasToDirsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    directories: list[DirectoryAssignmentResult] = f(array(DirectoryAssignmentResult), "0+")


SPEC = ApiSpec(ApiKey.ASSIGN_REPLICAS_TO_DIRS, AssignReplicasToDirsRequest, AssignReplicasToDirsResponse)
