"""ElectLeaders (key 43): move leadership to the preferred replica, or to any live one (KIP-460).

1 adds the election type, 2 is flexible. A null list requests all partitions.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT8, INT16, INT32, STRING, array, f, message, struct


@struct
class ElectLeadersTopic:
    topic: str = f(STRING, "0+")
    partitions: list[int] = f(array(INT32), "0+")


@message("0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int = f(INT8, "1+")
    topic_partitions: list[ElectLeadersTopic] | None = f(array(ElectLeadersTopic), "0+", nullable="0+")
    timeout_ms: int = f(INT32, "0+", default=60000)


@struct
class ElectLeadersPartitionResult:
    partition_id: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default="")


@struct
class ReplicaElectionResult:
    topic: str = f(STRING, "0+")
    partition_result: list[ElectLeadersPartitionResult] = f(array(ElectLeadersPartitionResult), "0+")


@message("0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "1+", ignorable=True)
    replica_election_results: list[ReplicaElectionResult] = f(array(ReplicaElectionResult), "0+")


SPEC = ApiSpec(ApiKey.ELECT_LEADERS, ElectLeadersRequest, ElectLeadersResponse)
