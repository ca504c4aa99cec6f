"""ListOffsets (key 2): the offset for a timestamp, or for a special (negative) timestamp.

0 returns several offsets, by segments' last modification; 1 returns one, by its record (KIP-79). 2 adds isolation
levels, 4 leader epochs (KIP-320), 6 is flexible. Each special timestamp needs its version: 7 the maximum timestamp
(KIP-734), 8 the local log start (KIP-405), 9 the end of the tiered log (KIP-1005), 11 the first offset not yet uploaded
(KIP-1023). 10 adds a timeout for remote lookups (KIP-1075).

Ottla's own tagged fields ask for ranges of offsets without some keys. A broker that does not know the tag ignores it
(KIP-482), and no client receives it that did not send it.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BYTES, INT8, INT16, INT32, INT64, STRING, array, f, message, struct

KEY_TAG = 20_000
"""Tag of Ottla's fields in requests and responses, far from the tags that Apache Kafka assigns in order."""


@struct
class KeySearch:
    start_offset: int = f(INT64, "6+")
    end_offset: int = f(INT64, "6+")
    keys: list[bytes] = f(array(BYTES), "6+")


@struct
class ListOffsetsPartition:
    partition_index: int = f(INT32, "0+")
    current_leader_epoch: int = f(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = f(INT64, "0+")
    max_num_offsets: int = f(INT32, "0", default=1, ignorable=True)
    key_search: KeySearch | None = f(KeySearch, "6+", nullable="6+", tag=KEY_TAG, default=None, ignorable=True)


@struct
class ListOffsetsTopic:
    name: str = f(STRING, "0+")
    partitions: list[ListOffsetsPartition] = f(array(ListOffsetsPartition), "0+")


@message("0-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int = f(INT32, "0+")
    isolation_level: int = f(INT8, "2+")
    topics: list[ListOffsetsTopic] = f(array(ListOffsetsTopic), "0+")
    timeout_ms: int = f(INT32, "10+", ignorable=True)


@struct
class KeyFreeOffsets:
    start_offset: int = f(INT64, "6+")
    end_offset: int = f(INT64, "6+")
    records: int = f(INT64, "6+")
    oldest_ms: int = f(INT64, "6+")
    newest_ms: int = f(INT64, "6+")


@struct
class KeySearchResult:
    searched_end_offset: int = f(INT64, "6+")
    ranges: list[KeyFreeOffsets] = f(array(KeyFreeOffsets), "6+")


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    old_style_offsets: list[int] = f(array(INT64), "0", ignorable=True)
    timestamp: int = f(INT64, "1+", default=-1, ignorable=True)
    offset: int = f(INT64, "1+", default=-1, ignorable=True)
    leader_epoch: int = f(INT32, "4+", default=-1, ignorable=True)
    key_search: KeySearchResult | None = f(
        KeySearchResult, "6+", nullable="6+", tag=KEY_TAG, default=None, ignorable=True
    )


@struct
class ListOffsetsTopicResponse:
    name: str = f(STRING, "0+")
    partitions: list[ListOffsetsPartitionResponse] = f(array(ListOffsetsPartitionResponse), "0+")


@message("0-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int = f(INT32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = f(array(ListOffsetsTopicResponse), "0+")


SPEC = ApiSpec(ApiKey.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse)
