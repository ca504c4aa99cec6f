"""WriteTxnMarkers (key 27): the transaction coordinator writes markers to the partitions (KIP-98).

2 adds the transaction version (KIP-1228); Apache Kafka 4 removed 0.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT8, INT16, INT32, INT64, STRING, array, f, message, struct


@struct
class WritableTxnMarkerTopic:
    name: str = f(STRING, "0+")
    partition_indexes: list[int] = f(array(INT32), "0+")


@struct
class WritableTxnMarker:
    producer_id: int = f(INT64, "0+")
    producer_epoch: int = f(INT16, "0+")
    transaction_result: bool = f(BOOL, "0+")
    topics: list[WritableTxnMarkerTopic] = f(array(WritableTxnMarkerTopic), "0+")
    coordinator_epoch: int = f(INT32, "0+")
    transaction_version: int = f(INT8, "2+", ignorable=True)


@message("1-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = f(array(WritableTxnMarker), "0+")


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")


@struct
class WritableTxnMarkerTopicResult:
    name: str = f(STRING, "0+")
    partitions: list[WritableTxnMarkerPartitionResult] = f(array(WritableTxnMarkerPartitionResult), "0+")


@struct
class WritableTxnMarkerResult:
    producer_id: int = f(INT64, "0+")
    topics: list[WritableTxnMarkerTopicResult] = f(array(WritableTxnMarkerTopicResult), "0+")


@message("1-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = f(array(WritableTxnMarkerResult), "0+")


SPEC = ApiSpec(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest, WriteTxnMarkersResponse)
