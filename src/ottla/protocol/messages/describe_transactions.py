"""DescribeTransactions (key 65): state of single transactional ids (KIP-664)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, STRING, array, f, message, struct


@message("0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[str] = f(array(STRING), "0+")


@struct
class TopicData:
    topic: str = f(STRING, "0+")
    partitions: list[int] = f(array(INT32), "0+")


@struct
class TransactionState:
    error_code: int = f(INT16, "0+")
    transactional_id: str = f(STRING, "0+")
    transaction_state: str = f(STRING, "0+")
    transaction_timeout_ms: int = f(INT32, "0+")
    transaction_start_time_ms: int = f(INT64, "0+")
    producer_id: int = f(INT64, "0+")
    producer_epoch: int = f(INT16, "0+")
    topics: list[TopicData] = f(array(TopicData), "0+")


@message("0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    transaction_states: list[TransactionState] = f(array(TransactionState), "0+")


SPEC = ApiSpec(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest, DescribeTransactionsResponse)
