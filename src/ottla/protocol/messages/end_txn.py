"""EndTxn (key 26): commit or abort a transaction (KIP-98).

3 is flexible, 4 may return TRANSACTION_ABORTABLE, 5 belongs to transactions v2: the response has the producer id and
epoch of the next transaction (KIP-890).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, INT64, STRING, f, message


@message("0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = f(STRING, "0+")
    producer_id: int = f(INT64, "0+")
    producer_epoch: int = f(INT16, "0+")
    committed: bool = f(BOOL, "0+")


@message("0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    producer_id: int = f(INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = f(INT16, "5+", default=-1, ignorable=True)


SPEC = ApiSpec(ApiKey.END_TXN, EndTxnRequest, EndTxnResponse)
