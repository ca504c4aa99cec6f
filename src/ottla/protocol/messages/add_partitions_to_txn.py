"""AddPartitionsToTxn (key 24): add partitions to a transaction before writing to them (KIP-98).

Clients send 0 to 3, with one transaction each; 3 is flexible. Brokers send 4 and 5, with several transactions, and may
only verify that the partitions belong to the transaction (`verify_only`, KIP-890); 5 may return TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, INT64, STRING, array, f, message, struct


@struct
class AddPartitionsToTxnTopic:
    name: str = f(STRING, "0+")
    partitions: list[int] = f(array(INT32), "0+")


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = f(STRING, "4+")
    producer_id: int = f(INT64, "4+")
    producer_epoch: int = f(INT16, "4+")
    verify_only: bool = f(BOOL, "4+")
    topics: list[AddPartitionsToTxnTopic] = f(array(AddPartitionsToTxnTopic), "4+")


@message("0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = f(array(AddPartitionsToTxnTransaction), "4+")
    v3_and_below_transactional_id: str = f(STRING, "0-3")
    v3_and_below_producer_id: int = f(INT64, "0-3")
    v3_and_below_producer_epoch: int = f(INT16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = f(array(AddPartitionsToTxnTopic), "0-3")


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int = f(INT32, "0+")
    partition_error_code: int = f(INT16, "0+")


@struct
class AddPartitionsToTxnTopicResult:
    name: str = f(STRING, "0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = f(array(AddPartitionsToTxnPartitionResult), "0+")


@struct
class AddPartitionsToTxnResult:
    transactional_id: str = f(STRING, "4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = f(array(AddPartitionsToTxnTopicResult), "4+")


@message("0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = f(array(AddPartitionsToTxnResult), "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = f(array(AddPartitionsToTxnTopicResult), "0-3")


SPEC = ApiSpec(ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
