"""OffsetForLeaderEpoch (key 23): where the leader's log of an epoch ends (KIP-101, KIP-279, KIP-320).

3 adds the replica id; consumers send -1, the debugging value is -2. 4 is flexible.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, STRING, array, f, message, struct


@struct
class OffsetForLeaderPartition:
    partition: int = f(INT32, "0+")
    current_leader_epoch: int = f(INT32, "0+", default=-1)
    leader_epoch: int = f(INT32, "0+")


@struct
class OffsetForLeaderTopic:
    topic: str = f(STRING, "0+")
    partitions: list[OffsetForLeaderPartition] = f(array(OffsetForLeaderPartition), "0+")


@message("2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: int = f(INT32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = f(array(OffsetForLeaderTopic), "0+")


@struct
class EpochEndOffset:
    error_code: int = f(INT16, "0+")
    partition: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+", default=-1)
    end_offset: int = f(INT64, "0+", default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = f(STRING, "0+")
    partitions: list[EpochEndOffset] = f(array(EpochEndOffset), "0+")


@message("2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = f(INT32, "0+")
    topics: list[OffsetForLeaderTopicResult] = f(array(OffsetForLeaderTopicResult), "0+")


SPEC = ApiSpec(ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
