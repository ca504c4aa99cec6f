"""OffsetCommit (key 8): store offsets of a group.

0 and 1 date from the move of offsets from ZooKeeper to the group. 0 stores in ZooKeeper if that manages the cluster,
otherwise in the group. 1 has a timestamp for each offset, and 2 to 4 a retention time, which the broker ignores like
Apache Kafka since offsets expire with their group (KIP-211). 3 adds the throttle time, 6 the leader epoch (KIP-320), 7
static membership (KIP-345), 8 is flexible, 9 is open to members of the consumer protocol (KIP-848), 10 identifies
topics by id only.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, STRING, UUID, array, f, message, struct


@struct
class OffsetCommitRequestPartition:
    partition_index: int = f(INT32, "0+")
    committed_offset: int = f(INT64, "0+")
    committed_leader_epoch: int = f(INT32, "6+", default=-1, ignorable=True)
    commit_timestamp_ms: int = f(INT64, "1", default=-1, ignorable=True)
    committed_metadata: str | None = f(STRING, "0+", nullable="0+")


@struct
class OffsetCommitRequestTopic:
    name: str = f(STRING, "0-9", ignorable=True)
    topic_id: bytes = f(UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = f(array(OffsetCommitRequestPartition), "0+")


@message("0-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = f(STRING, "0+")
    generation_id_or_member_epoch: int = f(INT32, "1+", default=-1, ignorable=True)
    member_id: str = f(STRING, "1+", ignorable=True)
    group_instance_id: str | None = f(STRING, "7+", nullable="7+", default=None)
    retention_time_ms: int = f(INT64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = f(array(OffsetCommitRequestTopic), "0+")


@struct
class OffsetCommitResponsePartition:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")


@struct
class OffsetCommitResponseTopic:
    name: str = f(STRING, "0-9", ignorable=True)
    topic_id: bytes = f(UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = f(array(OffsetCommitResponsePartition), "0+")


@message("0-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: int = f(INT32, "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = f(array(OffsetCommitResponseTopic), "0+")


SPEC = ApiSpec(ApiKey.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse)
