"""OffsetFetch (key 9): the committed offsets of groups.

0 reads from ZooKeeper if that manages the cluster, otherwise from the group, like 1. 2 can request all topics by null
and returns a group-level error, 3 adds the throttle time, 5 the leader epoch (KIP-320), 6 is flexible, 7 can require
stable offsets (KIP-447), 8 takes several groups at once (KIP-709), 9 adds member id and epoch (KIP-848), 10 identifies
topics by id only.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, INT64, STRING, UUID, array, f, message, struct


@struct
class OffsetFetchRequestTopic:
    name: str = f(STRING, "0-7")
    partition_indexes: list[int] = f(array(INT32), "0-7")


@struct
class OffsetFetchRequestTopics:
    name: str = f(STRING, "8-9", ignorable=True)
    topic_id: bytes = f(UUID, "10+", ignorable=True)
    partition_indexes: list[int] = f(array(INT32), "8+")


@struct
class OffsetFetchRequestGroup:
    group_id: str = f(STRING, "8+")
    member_id: str | None = f(STRING, "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = f(INT32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = f(array(OffsetFetchRequestTopics), "8+", nullable="8+")


@message("0-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = f(STRING, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = f(array(OffsetFetchRequestTopic), "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = f(array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = f(BOOL, "7+")


@struct
class OffsetFetchResponsePartition:
    partition_index: int = f(INT32, "0-7")
    committed_offset: int = f(INT64, "0-7")
    committed_leader_epoch: int = f(INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = f(STRING, "0-7", nullable="0-7")
    error_code: int = f(INT16, "0-7")


@struct
class OffsetFetchResponseTopic:
    name: str = f(STRING, "0-7")
    partitions: list[OffsetFetchResponsePartition] = f(array(OffsetFetchResponsePartition), "0-7")


@struct
class OffsetFetchResponsePartitions:
    partition_index: int = f(INT32, "8+")
    committed_offset: int = f(INT64, "8+")
    committed_leader_epoch: int = f(INT32, "8+", default=-1, ignorable=True)
    metadata: str | None = f(STRING, "8+", nullable="8+")
    error_code: int = f(INT16, "8+")


@struct
class OffsetFetchResponseTopics:
    name: str = f(STRING, "8-9", ignorable=True)
    topic_id: bytes = f(UUID, "10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = f(array(OffsetFetchResponsePartitions), "8+")


@struct
class OffsetFetchResponseGroup:
    group_id: str = f(STRING, "8+")
    topics: list[OffsetFetchResponseTopics] = f(array(OffsetFetchResponseTopics), "8+")
    error_code: int = f(INT16, "8+")


@message("0-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int = f(INT32, "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = f(array(OffsetFetchResponseTopic), "0-7")
    error_code: int = f(INT16, "2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = f(array(OffsetFetchResponseGroup), "8+")


SPEC = ApiSpec(ApiKey.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse)
