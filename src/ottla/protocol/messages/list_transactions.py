"""ListTransactions (key 66): the transactional ids of one coordinator (KIP-664).

1 filters by the duration of open transactions (KIP-994), 2 by a pattern of the id (KIP-1152).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, STRING, array, f, message, struct


@message("0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: list[str] = f(array(STRING), "0+")
    producer_id_filters: list[int] = f(array(INT64), "0+")
    duration_filter: int = f(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = f(STRING, "2+", nullable="2+", default=None)


@struct
class ListedTransaction:
    transactional_id: str = f(STRING, "0+")
    producer_id: int = f(INT64, "0+")
    transaction_state: str = f(STRING, "0+")


@message("0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    unknown_state_filters: list[str] = f(array(STRING), "0+")
    transaction_states: list[ListedTransaction] = f(array(ListedTransaction), "0+")


SPEC = ApiSpec(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest, ListTransactionsResponse)
